"""Writes the state files of one attempt."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from statecore.model import parse_type
from statecore.runtime.messages import EpochSpec, OperatorSpec
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import encode_base, encode_changelog, key_schema, stored_type
from statecore.snapshot.manifest import FileKind, KeyedFile, OperatorFile, PartitionsRef
from statecore.snapshot.operator_files import encode_elements
from statecore.snapshot.restore import all_rows, changed_rows
from statecore.state import HeapKeyedStateBackend, OperatorListSnapshot


class StateWriter:
    """Writes the files of one attempt; its token is in every file's name."""

    def __init__(self, spec: OperatorSpec, epoch: EpochSpec, subtask: int) -> None:
        self.token = uuid.uuid4().hex
        self._store = CheckpointStore.at(spec.store_url)
        self._folder = f"state/{spec.uid}/{epoch.lineage:06d}-{epoch.epoch:012d}/{subtask:05d}-{self.token}"
        self._key_schema = key_schema((field.name, field.type) for field in spec.key_fields)

    def changelog(self, keyed: HeapKeyedStateBackend) -> list[KeyedFile]:
        """Write what the epoch changed, one file per state that changed."""
        written = []
        for name, table in sorted(keyed.tables.items()):
            rows = changed_rows(table)
            if rows.keys:
                data = encode_changelog(rows, self._key_schema, stored_type(table.kind, table.type), name)
                written.append(self._keyed_file(keyed, name, FileKind.CHANGELOG, "arrow", data, len(rows.keys)))
        return written

    def base(self, keyed: HeapKeyedStateBackend) -> list[KeyedFile]:
        """Write all state, one file per state that is not empty."""
        written = []
        for name, table in sorted(keyed.tables.items()):
            rows = all_rows(table)
            if rows.keys:
                data = encode_base(rows, self._key_schema, stored_type(table.kind, table.type), name)
                written.append(self._keyed_file(keyed, name, FileKind.BASE, "parquet", data, len(rows.keys)))
        return written

    def operator(self, states: Mapping[str, OperatorListSnapshot]) -> list[OperatorFile]:
        """Write all operator state, one file per state that is not empty."""
        written = []
        for name, snapshot in states.items():
            if snapshot.elements:
                data = encode_elements(snapshot.elements, parse_type(snapshot.type).arrow(), name)
                file = self._store.write_file(f"{self._folder}-operator-{name}.arrow", data)
                partitions = PartitionsRef(mode=snapshot.mode, offsets=tuple(range(len(snapshot.elements))))
                written.append(OperatorFile(file=file, state=name, partitions=partitions))
        return written

    def _keyed_file(
        self, keyed: HeapKeyedStateBackend, state: str, kind: FileKind, suffix: str, data: bytes, rows: int
    ) -> KeyedFile:
        return KeyedFile(
            file=self._store.write_file(f"{self._folder}-{state}.{suffix}", data),
            state=state,
            kind=kind,
            token=self.token,
            key_groups=(keyed.key_groups.start, keyed.key_groups.end),
            rows=rows,
        )
