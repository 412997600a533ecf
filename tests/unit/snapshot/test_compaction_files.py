"""State files laid together: what the merged file holds, and whose place it takes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore import (
    StateTtlConfig,
)
from statecore.errors import CorruptFileError, MissingFileError
from statecore.model import KeyGroupRange
from statecore.snapshot import compaction
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merge, Merged, carry_out, whole_bases, with_merged
from statecore.snapshot.keyed_files import KeyedRows, encode_changelog, key_schema, rows_table
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    KeyedFile,
    SubtaskState,
    TtlRef,
)
from statecore.snapshot.restore import apply_keyed_files, table_schema
from statecore.state import HeapKeyedStateBackend
from statecore.testing import ManualClock
from tests.support.handmade import MAX_PARALLELISM, STATES, TOTAL, keyed_file, manifest, operator
from tests.unit.snapshot.merges import ALL, changelog, changelogs, merge


def test_a_merged_file_takes_the_place_of_the_last_of_its_inputs() -> None:
    files = changelogs(*[10] * 5)
    done = Merged(merge=merge(files[1:4]), output=msgspec.structs.replace(changelog("new", 30), token="c3"))
    assert with_merged(files, [done]) == (files[0], done.output, files[4])
    assert with_merged(files, []) == tuple(files)


def test_operator_state_with_the_name_of_a_keyed_state_gets_no_base() -> None:
    keyed, listed = STATES
    states = (keyed, msgspec.structs.replace(listed, name=keyed.name))
    made = manifest(operators=(operator([SubtaskState(keyed=tuple(changelogs(10)))], states),))
    assert [each.state for each in whole_bases(made)] == [keyed]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_merge_whose_inputs_are_not_all_there_any_more_is_left_out(gone: int) -> None:
    files = changelogs(10, 10, 10)
    done = Merged(merge=merge(files), output=changelog("new", 30))
    left = [item for index, item in enumerate(files) if index != gone]
    assert with_merged(left, [done]) == tuple(left)
    rescaled = [msgspec.structs.replace(files[0], key_groups=(0, 7)), *files[1:]]
    assert with_merged(rescaled, [done]) == tuple(rescaled)


def test_of_two_merges_of_one_file_the_second_is_left_out() -> None:
    files = changelogs(*[10] * 4)
    first, second = (
        Merged(merge=merge(inputs), output=msgspec.structs.replace(changelog(name, 30), token=inputs[-1].token))
        for name, inputs in [("new1", files[:3]), ("new2", files[2:])]
    )
    assert with_merged(files, [first, second]) == (first.output, files[3])


def written(
    store: CheckpointStore, *values: dict[int, int | None], kinds: Sequence[FileKind] | None = None
) -> list[KeyedFile]:
    kinds = kinds or [FileKind.CHANGELOG] * len(values)
    return [
        keyed_file(store, f"in/{number}", each, ALL, kind=kind, token=f"t{number}")
        for number, (each, kind) in enumerate(zip(values, kinds, strict=True))
    ]


def restored(store: CheckpointStore, files: Sequence[KeyedFile]) -> dict[int, Any]:
    own = KeyGroupRange(*ALL)
    backend = HeapKeyedStateBackend(MAX_PARALLELISM, own, ManualClock())
    apply_keyed_files(backend, store, operator([]), files, dict.fromkeys(own, 0))
    return {group: stored for group, rows in backend.tables["total"].groups.items() for stored in rows.values()}


@pytest.mark.parametrize("kind", FileKind)
def test_a_merged_file_holds_what_its_inputs_held_and_says_how_many_rows_it_has(
    store: CheckpointStore, kind: FileKind
) -> None:
    inputs = written(store, {1: 10, 2: 20, 9: 90}, {2: None, 9: 91}, {3: 30})
    done = carry_out(store, merge(inputs, kind), "state/totals/merged")

    output = done.output
    assert restored(store, [output]) == restored(store, inputs) == {1: 10, 3: 30, 9: 91}
    assert (output.state, output.kind, output.token, output.key_groups) == ("total", kind, "t2", ALL)
    assert output.rows == {FileKind.BASE: 3, FileKind.CHANGELOG: 6}[kind]
    assert output.file.path.startswith("state/totals/merged/00000-")
    assert output.file.path.endswith({FileKind.BASE: "-total.parquet", FileKind.CHANGELOG: "-total.arrow"}[kind])
    assert all(store.read_file(item.file) for item in inputs)


@pytest.mark.parametrize("kind", FileKind)
def test_what_another_subtask_has_in_a_shared_file_is_left_out(store: CheckpointStore, kind: FileKind) -> None:
    inputs = written(store, {1: 10, 2: 20, 9: 90}, {2: 21, 10: 100})
    inputs = [msgspec.structs.replace(item, key_groups=(2, 9)) for item in inputs]
    # A subtask may have more key groups than files that it shares with others give it.
    own = (2, 9) if kind is FileKind.BASE else ALL
    done = carry_out(store, merge(inputs, kind, key_groups=own), "merged")
    assert (done.output.key_groups, done.output.rows) == ((2, 9), {FileKind.BASE: 2, FileKind.CHANGELOG: 3}[kind])
    assert restored(store, [msgspec.structs.replace(done.output, key_groups=ALL)]) == {2: 21, 9: 90}


def test_a_base_is_made_of_files_of_different_key_groups(store: CheckpointStore) -> None:
    kinds = [FileKind.BASE, FileKind.BASE, FileKind.CHANGELOG]
    left, right, whole = written(store, {1: 10, 2: 20, 9: 99}, {1: 99, 9: 90, 10: 100}, {2: 21, 10: None}, kinds=kinds)
    left = msgspec.structs.replace(left, key_groups=(0, 7))
    right = msgspec.structs.replace(right, key_groups=(8, 15))
    done = carry_out(store, merge([left, right, whole], FileKind.BASE), "merged")
    assert restored(store, [done.output]) == restored(store, [left, right, whole]) == {1: 10, 2: 21, 9: 90}


def test_a_base_without_rows_is_written_too_and_takes_away_what_an_older_memory_holds(store: CheckpointStore) -> None:
    inputs = written(store, {1: 10}, {1: None})
    output = carry_out(store, merge(inputs, FileKind.BASE), "merged").output
    assert output.rows == 0
    own = KeyGroupRange(*ALL)
    backend = HeapKeyedStateBackend(MAX_PARALLELISM, own, ManualClock())
    apply_keyed_files(backend, store, operator([]), inputs[:1], dict.fromkeys(own, 0))
    apply_keyed_files(backend, store, operator([]), [output], dict.fromkeys(own, 0))
    assert not any(backend.tables["total"].groups.values())


def test_a_base_is_made_column_by_column_unless_keys_or_columns_have_to_be_looked_at(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("made of Python objects")

    inputs = written(
        store, {1: 10, 2: 20, 9: 90}, {2: None, 9: 91}, {2: 22}, kinds=[FileKind.BASE, *[FileKind.CHANGELOG] * 2]
    )
    monkeypatch.setattr(compaction, "_by_rows", refuse)
    done = carry_out(store, merge(inputs, FileKind.BASE), "merged")
    assert restored(store, [done.output]) == restored(store, inputs) == {1: 10, 2: 22, 9: 91}
    wider = msgspec.structs.replace(STATES[0], type="string")
    with pytest.raises(AssertionError, match="made of Python objects"):
        carry_out(store, merge(inputs, FileKind.BASE, state=wider), "merged")


def test_merged_keys_stand_in_order_and_cost_what_they_differ_by(store: CheckpointStore) -> None:
    keys = list(range(10_000))
    random.Random(5).shuffle(keys)
    names = key_schema([("k", "string")])
    rows = KeyedRows(
        [(f"customer-{key:08}",) for key in keys], [7] * len(keys), [1] * len(keys), deleted=[False] * len(keys)
    )
    changelog = encode_changelog(rows_table(rows, names, table_schema(STATES[0]), "total"))
    item = KeyedFile(
        file=store.write_file("state/totals/one.arrow", changelog),
        state="total",
        kind=FileKind.CHANGELOG,
        token="one",
        key_groups=ALL,
        rows=len(keys),
    )
    inputs = merge([item], FileKind.BASE)
    done = carry_out(store, inputs, "merged")
    merged = store.read_file(done.output.file)
    assert pq.read_table(pa.BufferReader(merged))["k"].to_pylist() == [f"customer-{key:08}" for key in range(10_000)]
    assert len(merged) < 1.5 * len(keys)


@pytest.mark.parametrize(("slice_rows", "slices"), [(1, 16), (5, 6), (20, 2), (10**6, 1)])
def test_a_base_made_slice_by_slice_is_one_file_sorted_by_key_group(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, slice_rows: int, slices: int
) -> None:
    inputs = written(store, {g: g for g in range(16)}, {g: g + 100 for g in range(0, 16, 2)}, {3: None})
    monkeypatch.setattr(compaction, "_SLICE_ROWS", slice_rows)
    monkeypatch.setattr(compaction, "_SLICES_BY_COLUMNS", 1)
    done = carry_out(store, merge(inputs, FileKind.BASE), "merged")
    with pq.ParquetFile(pa.BufferReader(store.read_file(done.output.file))) as file:
        assert (file.num_row_groups, done.output.rows) == (slices, 15)
        read = file.read().to_pydict()
    assert read["_key_group"] == [g for g in range(16) if g != 3]
    assert read["_value"] == [g + 100 if g % 2 == 0 else g for g in range(16) if g != 3]
    assert restored(store, [done.output]) == restored(store, inputs)


@pytest.mark.parametrize("kind", FileKind)
def test_an_input_that_is_damaged_or_gone_is_named_and_nothing_is_written(
    store: CheckpointStore, kind: FileKind
) -> None:
    inputs = written(store, {1: 10}, {2: 20}, {3: 30})
    data = bytearray(store.files.read("in/1"))
    data[len(data) // 2] ^= 1
    store.files.write("in/1", bytes(data))
    with pytest.raises(CorruptFileError, match="in/1"):
        carry_out(store, merge(inputs, kind), "merged")
    store.files.delete("in/1")
    with pytest.raises(MissingFileError, match="in/1"):
        carry_out(store, merge(inputs, kind), "merged")
    assert store.files.list("merged") == []


def test_two_attempts_at_one_merge_write_two_files(store: CheckpointStore) -> None:
    inputs = written(store, {1: 10}, {2: 20})
    first, second = (carry_out(store, merge(inputs), "merged").output for _ in range(2))
    assert first.file.path != second.file.path
    assert restored(store, [first]) == restored(store, [second])


def test_a_merge_and_what_it_made_survive_the_way_to_a_worker_and_back(store: CheckpointStore) -> None:
    state = msgspec.structs.replace(STATES[0], stamped=True, ttl=TtlRef.of(StateTtlConfig(timedelta(minutes=1))))
    made = merge(written(store, {1: 10}, {2: 20}), FileKind.BASE, state=state)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Merge) == made
    done = Merged(merge=made, output=made.inputs[0])
    assert msgspec.json.decode(msgspec.json.encode(done), type=Merged) == done


def under(store: CheckpointStore, number: int, names: Sequence[str], value: int) -> KeyedFile:
    """Write a changelog with one row under the key ("a", 1), whose columns have these names."""
    rows = KeyedRows([("a", 1)], [3], [value], deleted=[False])
    table = rows_table(rows, key_schema(zip(names, ("string", "bigint"), strict=True)), TOTAL, "total")
    file = store.write_file(f"in/{number}", encode_changelog(table))
    return KeyedFile(
        file=file, state="total", kind=FileKind.CHANGELOG, token=f"t{number}", key_groups=ALL, rows=1
    )  # fmt: skip


@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize(
    "names",
    [[("x", "y"), ("x", "z")], [("x", "y"), ("y", "x")], [("_order", "y"), ("_order", "y")]],
    ids=["renamed", "renamed crosswise", "named as our own column could be"],
)
def test_a_key_stays_what_it_is_whatever_its_columns_are_called(
    store: CheckpointStore, kind: FileKind, names: list[tuple[str, str]]
) -> None:
    inputs = [under(store, number, of_file, number) for number, of_file in enumerate(names)]
    fields = tuple(FieldRef(name=name, type=ddl) for name, ddl in zip(names[-1], ("string", "bigint"), strict=True))
    chosen = msgspec.structs.replace(merge(inputs, kind), key_fields=fields)
    output = carry_out(store, chosen, "merged").output

    own = KeyGroupRange(*ALL)
    backend = HeapKeyedStateBackend(MAX_PARALLELISM, own, ManualClock())
    apply_keyed_files(backend, store, operator([], key_fields=fields), [output], dict.fromkeys(own, 0))
    assert dict(backend.tables["total"].groups) == {3: {("a", 1): 1}}
