"""Writes the state files of one attempt."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pyarrow as pa

from statecore.model import parse_type
from statecore.runtime.messages import EpochSpec, OperatorSpec
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import (
    encode_base,
    encode_changelog,
    footer_of,
    key_schema,
    rows_table,
)
from statecore.snapshot.live_rows import base_rows, changelog_table, drop_expired
from statecore.snapshot.manifest import FileKind, KeyedFile, OperatorFile, PartitionsRef
from statecore.snapshot.operator_files import elements_table, encode_elements
from statecore.state import HeapKeyedStateBackend, StateTable
from statecore.state.operator_state import HeldOperatorState

_FORMATS = {
    FileKind.BASE: (encode_base, "parquet"),
    FileKind.CHANGELOG: (encode_changelog, "arrow"),
}


class StateWriter:
    """Writes the files of one attempt; its token is in every file's name."""

    def __init__(self, spec: OperatorSpec, epoch: EpochSpec, subtask: int) -> None:
        self.token = uuid.uuid4().hex
        self._now_ms = epoch.now_ms
        self._store = CheckpointStore.at(spec.store_url)
        self._folder = f"state/{spec.uid}/{epoch.lineage:06d}-{epoch.epoch:012d}/{subtask:05d}-{self.token}"
        self._key_schema = key_schema((field.name, field.type) for field in spec.key_fields)

    def keyed(self, backend: HeapKeyedStateBackend, kind: FileKind) -> list[KeyedFile]:
        """Write all keyed state, or the epoch's changes: one file per state that has rows."""
        encode, suffix = _FORMATS[kind]
        groups = (backend.key_groups.start, backend.key_groups.end)
        written = []
        if kind is FileKind.BASE:
            backend.settle()
        for name, state in sorted(backend.tables.items()):
            table = self._table(backend, state, kind)
            if table is not None:
                data = encode(table)
                written.append(
                    KeyedFile(
                        file=self._store.write_file(f"{self._folder}-{name}.{suffix}", data),
                        state=name,
                        kind=kind,
                        token=self.token,
                        key_groups=groups,
                        rows=table.num_rows,
                        footer=footer_of(data) if kind is FileKind.BASE else None,
                    )
                )
        return written

    def operator(self, changed: Mapping[str, HeldOperatorState]) -> list[OperatorFile]:
        """Write operator states, one file per state that is not empty."""
        written = []
        for name, state in changed.items():
            if state.elements:
                table = elements_table(state.elements, parse_type(state.type).arrow(), name)
                file = self._store.write_file(f"{self._folder}-operator-{name}.arrow", encode_elements(table))
                partitions = PartitionsRef(mode=state.mode, offsets=tuple(range(table.num_rows)))
                written.append(OperatorFile(file=file, state=name, partitions=partitions))
        return written

    def _table(self, backend: HeapKeyedStateBackend, state: StateTable, kind: FileKind) -> pa.Table | None:
        """Return the rows of a state's file; None without any."""
        if kind is FileKind.CHANGELOG:
            return changelog_table(backend, state.name, self._key_schema)
        drop_expired(state, self._now_ms)
        rows = base_rows(state)
        return rows_table(rows, self._key_schema, state.schema, state.name) if rows.keys else None
