"""Writes the state files of one attempt."""

from __future__ import annotations

import uuid

import pyarrow as pa

from statecore.model import parse_type
from statecore.runtime.messages import EpochSpec, OperatorSpec
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import (
    DELETE,
    KeyedRows,
    base_table,
    changelog_table,
    encode_base,
    encode_changelog,
    key_schema,
    stored_type,
    stored_values,
)
from statecore.snapshot.manifest import FileKind, KeyedFile, OperatorFile, PartitionsRef
from statecore.snapshot.operator_files import elements_table, encode_elements, stored_elements
from statecore.snapshot.restore import all_rows, changed_rows
from statecore.state import HeapKeyedStateBackend, OperatorStateBackend, StateTable

_FORMATS = {
    FileKind.BASE: (all_rows, base_table, encode_base, "parquet"),
    FileKind.CHANGELOG: (changed_rows, changelog_table, encode_changelog, "arrow"),
}


class StateWriter:
    """Writes the files of one attempt; its token is in every file's name."""

    def __init__(self, spec: OperatorSpec, epoch: EpochSpec, subtask: int) -> None:
        self.token = uuid.uuid4().hex
        self._store = CheckpointStore.at(spec.store_url)
        self._folder = f"state/{spec.uid}/{epoch.lineage:06d}-{epoch.epoch:012d}/{subtask:05d}-{self.token}"
        self._key_schema = key_schema((field.name, field.type) for field in spec.key_fields)

    def keyed(self, backend: HeapKeyedStateBackend, kind: FileKind) -> list[KeyedFile]:
        """Write all keyed state, or what the epoch changed: one file per state that has rows."""
        rows_of, table_of, encode, suffix = _FORMATS[kind]
        written = []
        for name, state in sorted(backend.tables.items()):
            rows = rows_of(state)
            if rows.keys:
                table = table_of(rows, self._key_schema, stored_type(state.kind, state.type), name)
                _hold_as_stored(state, rows, table)
                file = self._store.write_file(f"{self._folder}-{name}.{suffix}", encode(table))
                groups = (backend.key_groups.start, backend.key_groups.end)
                written.append(
                    KeyedFile(
                        file=file, state=name, kind=kind, token=self.token, key_groups=groups, rows=len(rows.keys)
                    )
                )
        return written

    def operator(self, backend: OperatorStateBackend) -> list[OperatorFile]:
        """Write all operator state, one file per state that is not empty."""
        written = []
        for name, snapshot in backend.snapshot().items():
            if snapshot.elements:
                table = elements_table(snapshot.elements, parse_type(snapshot.type).arrow(), name)
                backend.hold(name, stored_elements(table))
                file = self._store.write_file(f"{self._folder}-operator-{name}.arrow", encode_elements(table))
                partitions = PartitionsRef(mode=snapshot.mode, offsets=tuple(range(table.num_rows)))
                written.append(OperatorFile(file=file, state=name, partitions=partitions))
        return written


def _hold_as_stored(table: StateTable, rows: KeyedRows, encoded: pa.Table) -> None:
    """Hold written values as a restore would give them, or a run that was killed would differ from one that was not."""
    for key, key_group, value in zip(rows.keys, rows.key_groups, stored_values(encoded), strict=True):
        if value is not DELETE:
            table.groups[key_group][key] = value
