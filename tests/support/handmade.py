"""Stores made by hand, file by file as a job writes them, without a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from statecore.model import DistributionMode, StateKind, key_group_range
from statecore.runtime.messages import StreamRead, SubtaskCommit
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import (
    KeyedRows,
    encode_base,
    encode_changelog,
    footer_of,
    key_schema,
    rows_table,
)
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    FileRef,
    KeyedFile,
    Manifest,
    OperatorFile,
    OperatorState,
    PartitionsRef,
    StateSchema,
    SubtaskState,
)
from statecore.snapshot.operator_files import elements_table, encode_elements
from statecore.state import TableSchema

MAX_PARALLELISM = 16
KEYS = key_schema([("k", "string")])
STATES = (
    StateSchema(name="total", scope="keyed", kind=StateKind.VALUE, type="bigint"),
    StateSchema(
        name="waiting",
        scope="operator",
        kind=StateKind.LIST,
        type="bigint",
        strategy="contiguous",
        mode=DistributionMode.SPLIT,
    ),
)
TOTAL = TableSchema(StateKind.VALUE, "bigint")


def manifest(**changes: Any) -> Manifest:
    """Return a valid manifest without files, with some fields changed."""
    parallelism = changes.get("parallelism", 1)
    made = Manifest(
        writer="test", job="orders", lineage=1, epoch=7, generation=1, root="..", parent=None,
        parallelism=parallelism, max_parallelism=MAX_PARALLELISM, batch_timestamp_ms=1_700_000_000_000,
        committed_ms=1_700_000_000_500, rows=3, rows_total=30, operators=(operator((SubtaskState(),) * parallelism),),
        outputs=(), progress=(),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def subtask_commit(uid: str = "totals", subtask: int = 0, **changes: Any) -> SubtaskCommit:
    """Return the commit of a subtask that did nothing, with some fields changed."""
    made = SubtaskCommit(
        uid=uid, subtask=subtask, attempt=0, read_from=(), keyed=(), replaces=False, operator=None,
        operator_token="", states=(), outputs=(), read=(StreamRead(),), next_event_timer_ms=None,
        next_processing_timer_ms=None, key_groups=0, cached_key_groups=0, state_rows={}, key_group_rows=None,
        heavy_keys=(), heavy_key_groups=(), load_ms=0, read_ms=0, process_ms=0, write_ms=0, memory_used=0,
        memory_limit=1,
        host_share=None,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def operator(
    subtasks: Sequence[SubtaskState],
    states: tuple[StateSchema, ...] = STATES,
    key_fields: tuple[FieldRef, ...] = (FieldRef(name="k", type="string"),),
) -> OperatorState:
    return OperatorState(uid="totals", key_fields=key_fields, states=states, subtasks=tuple(subtasks))


def file_ref(path: str) -> FileRef:
    """Return a reference to a file that nobody wrote."""
    return FileRef(path=path, size=1, sha256="0" * 64)


def keyed_file(
    store: CheckpointStore, path: str, values: Mapping[int, Any], groups: tuple[int, int], *, kind: FileKind, token: str
) -> KeyedFile:
    """Write a file with one key per key group, named after it: ``{key group: value}``; of a changelog None removes."""
    deleted = [value is None for value in values.values()] if kind is FileKind.CHANGELOG else None
    rows = KeyedRows([(f"k{group}",) for group in values], list(values), list(values.values()), deleted=deleted)
    encode = encode_base if kind is FileKind.BASE else encode_changelog
    data = encode(rows_table(rows, KEYS, TOTAL, "total"))
    footer = footer_of(data) if kind is FileKind.BASE else None
    return KeyedFile(
        file=store.write_file(path, data), state="total", kind=kind, token=token, key_groups=groups,
        rows=len(values), footer=footer,
    )  # fmt: skip


def operator_file(
    store: CheckpointStore, path: str, elements: Sequence[int], mode: DistributionMode = DistributionMode.SPLIT
) -> OperatorFile:
    file = store.write_file(path, encode_elements(elements_table(elements, pa.int64(), "waiting")))
    partitions = PartitionsRef(mode=mode, offsets=tuple(range(len(elements))))
    return OperatorFile(file=file, state="waiting", partitions=partitions)


def written(store: CheckpointStore, parallelism: int, **changes: Any) -> Manifest:
    """Write state of every key group and three waiting elements per subtask; return the manifest, not committed."""
    subtasks = []
    for index in range(parallelism):
        own = key_group_range(MAX_PARALLELISM, parallelism, index)
        folder = f"state/totals/000001-000000000007/{index:05d}-t{index}"
        base = keyed_file(
            store, f"{folder}-total.parquet", {group: group * 10 for group in own}, (own.start, own.end),
            kind=FileKind.BASE, token=f"t{index}",
        )  # fmt: skip
        listed = operator_file(store, f"{folder}-operator-waiting.arrow", range(index * 3, index * 3 + 3))
        subtasks.append(SubtaskState(keyed=(base,), operator=(listed,), operator_token=f"t{index}"))
    return manifest(parallelism=parallelism, operators=(operator(subtasks),), **changes)
