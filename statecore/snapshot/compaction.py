"""Compacts state files, so that a restore reads a bounded number of them.

Every epoch adds a changelog to each state that changed. Two rules keep them few and short:

* Sixteen changelogs of about the same size become one, together with smaller ones between them; so does one changelog
  with fifteen smaller ones right before it. Few of each size remain, whatever their order.
* Once the changelogs of a state are larger than its base, all its files become a new base.

Both work on files only, in parallel to the stream: the next commit names the merged file in place of its inputs. A row
is rewritten once per size class and once per doubling of its state, so the cost per epoch does not grow with the state.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter

import msgspec
import pyarrow as pa

from statecore.model import KeyGroupRange, StateKind, key_encoder, key_group_range
from statecore.snapshot import arrow_merge
from statecore.snapshot.arrow_merge import can_merge, merged_base
from statecore.snapshot.base_parts import read_keyed
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import (
    Encoded,
    decode_base,
    decode_changelog,
    encode_base,
    encode_changelog,
    footer_of,
    key_schema,
    merged_changelog,
    rows_table,
)
from statecore.snapshot.live_rows import apply_rows, base_rows, without_expired
from statecore.snapshot.manifest import FieldRef, FileKind, KeyedFile, Manifest, OperatorState, StateSchema
from statecore.snapshot.restore import NoClock, table_schema
from statecore.state import HeapKeyedStateBackend

# Below this size a base does not pay off: reading that many bytes of changelogs is fast.
BASE_FLOOR_BYTES = 4 * 1024 * 1024
_RUN = 16
# Files up to 64 KiB are of one size class, then each class is sixteen times the one before.
_SMALLEST_CLASS_BITS = 16
_CLASS_BITS = 4
_SMALLEST_CLASS = _SMALLEST_CLASS_BITS // _CLASS_BITS
# Rows to merge at a time, so that a merge needs little memory compared to the worker's state.
_SLICE_ROWS = 256 * 1024
# A row takes a fraction of the memory in columns that it takes as Python objects; each slice reads every changelog.
_SLICES_BY_COLUMNS = 4


class Merge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State files of one state and subtask to merge into one.

    Attributes:
        uid: The operator.
        subtask: The owner of the files.
        state: The state in the files.
        key_fields: The operator's key.
        key_groups: First and last key group of the subtask.
        max_parallelism: Number of key groups of the job.
        inputs: Consecutive files of the state, oldest first.
        kind: Kind of the merged file.
        now_ms: The epoch's time, to drop expired state.

    """

    uid: str
    subtask: int
    state: StateSchema
    key_fields: tuple[FieldRef, ...]
    key_groups: tuple[int, int]
    max_parallelism: int
    inputs: tuple[KeyedFile, ...]
    kind: FileKind
    now_ms: int


class Merged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finished merge."""

    merge: Merge
    output: KeyedFile


def whole_bases(manifest: Manifest) -> list[Merge]:
    """Return the merges that make one base of each keyed state of each subtask that has any."""
    return [
        _Place(manifest, operator, index, state).merge(files, FileKind.BASE)
        for operator in manifest.operators
        for index, subtask in enumerate(operator.subtasks)
        for state in operator.states
        if state.scope == "keyed" and (files := tuple(item for item in subtask.keyed if item.state == state.name))
    ]


def due_merges(manifest: Manifest, *, base_floor_bytes: int = BASE_FLOOR_BYTES) -> list[Merge]:
    """Return the merges due after a manifest, at most one per state and subtask, bases first."""
    due: list[Merge] = []
    for operator in manifest.operators:
        keyed = [state for state in operator.states if state.scope == "keyed"]
        for index, subtask in enumerate(operator.subtasks):
            by_state: dict[str, list[KeyedFile]] = defaultdict(list)
            for item in subtask.keyed:
                by_state[item.state].append(item)
            for state in keyed:
                place = _Place(manifest, operator, index, state)
                due += _due(place, by_state[state.name], base_floor_bytes)
    return sorted(due, key=lambda merge: (merge.kind is not FileKind.BASE, merge.subtask))


@dataclass(frozen=True, slots=True)
class _Place:
    manifest: Manifest
    operator: OperatorState
    subtask: int
    state: StateSchema

    def key_groups(self) -> KeyGroupRange:
        return key_group_range(self.manifest.max_parallelism, len(self.operator.subtasks), self.subtask)

    def merge(self, inputs: Sequence[KeyedFile], kind: FileKind) -> Merge:
        own = self.key_groups()
        return Merge(
            uid=self.operator.uid,
            subtask=self.subtask,
            state=self.state,
            key_fields=self.operator.key_fields,
            key_groups=(own.start, own.end),
            max_parallelism=self.manifest.max_parallelism,
            inputs=tuple(inputs),
            kind=kind,
            now_ms=self.manifest.batch_timestamp_ms,
        )


def _due(place: _Place, files: Sequence[KeyedFile], base_floor_bytes: int) -> Iterator[Merge]:
    bytes_ = {FileKind.BASE: 0, FileKind.CHANGELOG: 0}
    for item in files:
        bytes_[item.kind] += item.file.size
    if bytes_[FileKind.CHANGELOG] > max(bytes_[FileKind.BASE], base_floor_bytes):
        own = place.key_groups()
        # The merged file takes the version of its last input, so that version must cover all key groups.
        if files[-1].key_groups == (own.start, own.end):
            yield place.merge(files, FileKind.BASE)
            return
    for run in _changelogs_in_a_row(files):
        due = _run(run)
        if due:
            yield place.merge(due, FileKind.CHANGELOG)
            return


def _changelogs_in_a_row(files: Sequence[KeyedFile]) -> Iterator[Sequence[KeyedFile]]:
    """Yield consecutive changelogs of the same key groups, where they are enough for a merge."""
    for (kind, _), group in groupby(files, key=attrgetter("kind", "key_groups")):
        run = [*group]
        if kind is FileKind.CHANGELOG and len(run) >= _RUN:
            yield run


def _run(changelogs: Sequence[KeyedFile]) -> Sequence[KeyedFile]:
    """Return the first run of consecutive files that is due, empty without one."""
    # A unit is a file with the files of smaller classes before it: they must not separate it from others of its own
    # class, and files after it must not cause it to be rewritten. Each unit is (its class, where it starts).
    units: list[tuple[int, int]] = []
    for place, item in enumerate(changelogs):
        bits, start = item.file.size.bit_length(), place
        size_class = _SMALLEST_CLASS if bits <= _SMALLEST_CLASS_BITS else -(-bits // _CLASS_BITS)
        while units and units[-1][0] < size_class:
            start = units.pop()[1]
        units.append((size_class, start))
    starts = [*(start for _, start in units), len(changelogs)]
    for start, end in pairwise(starts):
        if end - start >= _RUN:
            return changelogs[start:end]
    first = 0
    for _, same in groupby(units, key=itemgetter(0)):
        after = first + sum(1 for _ in same)
        if after - first >= _RUN:
            return changelogs[starts[first] : starts[after]]
        first = after
    return ()


def with_merged(files: Sequence[KeyedFile], merged: Iterable[Merged]) -> tuple[KeyedFile, ...]:
    """Return a subtask's files with each merged file in the place of its last input.

    A merge is skipped when an input is gone: a rescale or a new base has superseded it.
    """
    current = list(files)
    for each in merged:
        inputs = {_reference(item) for item in each.merge.inputs}
        places = [place for place, item in enumerate(current) if _reference(item) in inputs]
        if len(places) == len(inputs):
            current = _replaced(current, each, places)
    return tuple(current)


def _replaced(files: Sequence[KeyedFile], merged: Merged, places: Sequence[int]) -> list[KeyedFile]:
    first, last = places[0], places[-1]
    token, key_groups = files[last].token, files[last].key_groups
    passed_over: set[str] = set()
    if merged.merge.kind is FileKind.CHANGELOG and merged.merge.state.kind is StateKind.MAP:
        # A worker whose memory has a version inside the run would apply a part of the run twice. The entries of a map
        # would be right, but in another order; so files of other states must not name that version.
        passed_over = {item.token for item in files[first:last]}
    output = msgspec.structs.replace(merged.output, token=token)
    return [
        msgspec.structs.replace(item, token=token)
        if item.token in passed_over and item.key_groups == key_groups
        else item
        for place, item in enumerate([*files[:last], output, *files[last + 1 :]])
        if place == last or place not in places
    ]


def _reference(item: KeyedFile) -> tuple[str, tuple[int, int]]:
    return item.file.path, item.key_groups


def carry_out(store: CheckpointStore, merge: Merge, folder: str) -> Merged:
    """Read the inputs of a merge and write the merged file into a folder of the store."""
    if merge.kind is FileKind.BASE:
        # A base without rows is written, too: it tells a worker with older memory that the rows are gone.
        tables = list(base_tables(store, merge))
        encoded, suffix = encode_base(*tables), "parquet"
        rows = sum(table.num_rows for table in tables)
    else:
        data = [store.read_file(item.file) for item in merge.inputs]
        ranges = [KeyGroupRange(*item.key_groups) for item in merge.inputs]
        table = merged_changelog(data, ranges)
        encoded, suffix, rows = encode_changelog(table), "arrow", table.num_rows
    path = f"{folder}/{merge.subtask:05d}-{uuid.uuid4().hex}-{merge.state.name}.{suffix}"
    last = merge.inputs[-1]
    output = KeyedFile(
        file=store.write_file(path, encoded),
        state=merge.state.name,
        kind=merge.kind,
        token=last.token,
        key_groups=merge.key_groups if merge.kind is FileKind.BASE else last.key_groups,
        rows=rows,
        footer=footer_of(encoded) if merge.kind is FileKind.BASE else None,
    )
    return Merged(merge=merge, output=output)


def base_tables(store: CheckpointStore, merge: Merge) -> Iterator[pa.Table]:
    """Yield the tables of the merged base, one slice of key groups after another."""
    data = [read_keyed(store, item, KeyGroupRange(*item.key_groups)) for item in merge.inputs]
    for part in _slices(merge):
        parts = [part.intersect(KeyGroupRange(*item.key_groups)) for item in merge.inputs]
        inputs = [
            (encoded, item.kind, groups)
            for encoded, item, groups in zip(data, merge.inputs, parts, strict=True)
            if groups is not None
        ]
        table = _by_columns(merge, inputs)
        yield _by_rows(merge, inputs, part) if table is None else table


_Inputs = Sequence[tuple[Encoded, FileKind, KeyGroupRange]]


def _by_columns(merge: Merge, inputs: _Inputs) -> pa.Table | None:
    schema, keys, ttl = table_schema(merge.state), _key_schema(merge), merge.state.ttl
    cleans = ttl is not None and ttl.cleanup_full_snapshot
    if not inputs or not can_merge(keys, schema) or (cleans and schema.kind is StateKind.LIST):
        return None
    table = merged_base(inputs, keys, schema)
    if table is None or ttl is None or not cleans:
        return table
    return arrow_merge.without_expired(table, ttl.ttl_ms, merge.now_ms)


def _by_rows(merge: Merge, inputs: _Inputs, part: KeyGroupRange) -> pa.Table:
    schema, ttl = table_schema(merge.state), merge.state.ttl
    encode = key_encoder([field.type for field in merge.key_fields])
    backend = HeapKeyedStateBackend(merge.max_parallelism, part, NoClock())
    table = backend.restored_table(merge.state.name, schema)
    for encoded, kind, key_groups in inputs:
        decode = decode_base if kind is FileKind.BASE else decode_changelog
        apply_rows(table, decode(encoded, key_groups), key_groups, encode)
    if ttl is not None and ttl.cleanup_full_snapshot:
        table = without_expired(table, ttl.ttl_ms, merge.now_ms)
    return rows_table(base_rows(table), _key_schema(merge), schema, merge.state.name)


def _key_schema(merge: Merge) -> pa.Schema:
    return key_schema((field.name, field.type) for field in merge.key_fields)


def _slices(merge: Merge) -> Iterator[KeyGroupRange]:
    start, end = merge.key_groups
    count = end - start + 1
    by_columns = can_merge(_key_schema(merge), table_schema(merge.state))
    slice_rows = _SLICE_ROWS * (_SLICES_BY_COLUMNS if by_columns else 1)
    slices = min(count, sum(item.rows for item in merge.inputs) // slice_rows + 1)
    for index in range(slices):
        yield KeyGroupRange(start + index * count // slices, start + (index + 1) * count // slices - 1)
