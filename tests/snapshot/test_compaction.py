"""State files laid together: when, how often, and that nobody who reads them can tell."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from statecore.errors import CorruptFileError, MissingFileError
from statecore.model import KeyGroupRange, StateKind, key_group_range, subtask_for_key_group
from statecore.runtime.cache import _after
from statecore.snapshot import compaction
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merge, Merged, carry_out, due_merges, with_merged
from statecore.snapshot.keyed_files import KeyedRows, encode_changelog, key_schema, rows_table
from statecore.snapshot.live_rows import changelog_rows
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    FileRef,
    KeyedFile,
    Manifest,
    OperatorState,
    StateSchema,
    SubtaskState,
    TtlRef,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files, table_schema
from statecore.state import HeapKeyedStateBackend
from statecore.state.tables import Window, copied_rows
from statecore.testing import ManualClock
from tests.handmade import MAX_PARALLELISM, STATES, TOTAL, keyed_file, manifest, operator

# The machine may be busy; slowness proves nothing here.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

ALL = (0, MAX_PARALLELISM - 1)
KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path))


# --- which files: sizes alone, no file is there ---


def changelog(name: str, size: int, groups: tuple[int, int] = ALL, kind: FileKind = FileKind.CHANGELOG) -> KeyedFile:
    file = FileRef(path=name, size=size, sha256="0" * 64)
    return KeyedFile(file=file, state="total", kind=kind, token=name, key_groups=groups, rows=1)


def changelogs(*sizes: int) -> list[KeyedFile]:
    return [changelog(f"c{number}", size) for number, size in enumerate(sizes)]


def base(size: int) -> KeyedFile:
    return changelog("base", size, kind=FileKind.BASE)


def of(files: Iterable[KeyedFile]) -> Manifest:
    return manifest(operators=(operator([SubtaskState(keyed=tuple(files))]),))


def due(files: Iterable[KeyedFile], *, floor: int = 2**62) -> list[tuple[FileKind, list[str]]]:
    return [(each.kind, [item.token for item in each.inputs]) for each in due_merges(of(files), base_floor_bytes=floor)]


def named(files: Iterable[KeyedFile]) -> list[str]:
    return [item.token for item in files]


@pytest.mark.parametrize("size", [500, 64 * KIB - 1, 64 * KIB, 1 * MIB, 20 * MIB])
def test_sixteen_changelogs_in_a_row_of_one_size_class_become_one_and_fifteen_do_not(size: int) -> None:
    files = changelogs(*[size] * 16)
    assert due(files) == [(FileKind.CHANGELOG, named(files))]
    assert due(files[:-1]) == []


def test_up_to_64_kib_all_files_are_of_one_size_and_then_each_class_is_sixteen_times_the_one_before() -> None:
    bounds = [64 * KIB, 1 * MIB, 16 * MIB, 256 * MIB]
    for smaller, larger in pairwise(bounds):
        within = changelogs(*[smaller, larger - 1] * 8)
        assert due(within) == [(FileKind.CHANGELOG, named(within))]
        assert due(changelogs(*[smaller] * 8, *[smaller - 1] * 8)) == []
    assert len(due(changelogs(*[1, 64 * KIB - 1] * 8))) == 1


def test_a_large_changelog_is_not_written_again_for_the_small_ones_that_follow_it() -> None:
    files = changelogs(5 * MIB, *[1000] * 16)
    assert due(files) == [(FileKind.CHANGELOG, named(files[1:]))]
    assert due(files[:-1]) == []


def test_small_changelogs_become_a_part_of_the_larger_one_that_follows_them() -> None:
    files = changelogs(*[1000] * 15, 5 * MIB, 1000, 1000)
    assert due(files) == [(FileKind.CHANGELOG, named(files[:16]))]
    assert due(files[1:]) == []


def test_smaller_ones_in_between_do_not_keep_large_ones_apart() -> None:
    files = changelogs(*[MIB, 1000, 100 * KIB] * 15, MIB, 1000)
    assert due(files) == [(FileKind.CHANGELOG, named(files[:-1]))]
    assert due(files[:-2]) == []


@pytest.mark.parametrize(
    ("base_bytes", "changelog_bytes", "floor", "expected"),
    [
        (0, 101, 100, True),
        (0, 100, 100, False),
        (200, 201, 100, True),
        (200, 200, 100, False),
        (200, 150, 100, False),
    ],
    ids=["over the floor", "at the floor", "over the base", "as much as the base", "over the floor under the base"],
)
def test_changelogs_that_outweigh_the_base_and_the_floor_become_a_base(
    base_bytes: int, changelog_bytes: int, floor: int, expected: bool
) -> None:
    files = [*([base(base_bytes)] if base_bytes else []), *changelogs(changelog_bytes - 40, 40)]
    assert due(files, floor=floor) == ([(FileKind.BASE, named(files))] if expected else [])


def test_a_base_goes_before_a_run_of_changelogs() -> None:
    files = [base(10), *changelogs(*[1000] * 16)]
    assert due(files, floor=100) == [(FileKind.BASE, named(files))]


def test_nothing_is_due_without_changelogs() -> None:
    assert due([]) == due([], floor=0) == []
    assert due([base(10)], floor=0) == []
    assert due([base(10)] * 16) == []
    assert due_merges(manifest()) == []


@pytest.mark.parametrize("floor", [0, 2**62])
def test_changelogs_of_different_key_groups_are_never_laid_together(floor: int) -> None:
    left = [changelog(f"l{n}", 1000, (0, 7)) for n in range(15)]
    right = [changelog(f"r{n}", 1000, (8, 15)) for n in range(15)]
    whole = [changelog(f"w{n}", 1000) for n in range(15)]
    assert due([*left, *right], floor=floor) == []
    assert due([*left, *right, *whole]) == []
    assert due([*left, changelog("l15", 1000, (0, 7)), *right]) == [
        (FileKind.CHANGELOG, [*named(left), "l15"]),
    ]


def test_a_base_is_made_when_the_last_file_covers_the_whole_subtask_and_not_before() -> None:
    files = [changelog("l", 1000, (0, 7)), changelog("r", 1000, (8, 15))]
    assert due(files, floor=0) == []
    files.append(changelog("w", 10))
    assert due(files, floor=0) == [(FileKind.BASE, ["l", "r", "w"])]


def test_the_file_of_another_state_does_not_cover_for_one_that_does_not() -> None:
    states = (*STATES, StateSchema(name="other", scope="keyed", kind=StateKind.VALUE, type="bigint"))
    other = msgspec.structs.replace(changelog("w", 10), state="other")
    subtask = SubtaskState(keyed=(changelog("l", 1000, (0, 7)), changelog("r", 1000, (8, 15)), other))
    found = due_merges(manifest(operators=(operator([subtask], states),)), base_floor_bytes=100)
    assert found == []


def test_of_a_subtask_there_is_one_merge_for_each_state_and_bases_come_first() -> None:
    states = (*STATES, StateSchema(name="other", scope="keyed", kind=StateKind.VALUE, type="bigint"))
    subtasks = []
    for index in range(2):
        own = key_group_range(MAX_PARALLELISM, 2, index)
        files = [changelog(f"{index}-{n}", 1000, (own.start, own.end)) for n in range(40)]
        other = [msgspec.structs.replace(item, state="other") for item in files[:3]]
        subtasks.append(SubtaskState(keyed=(*files, *other)))
    made = manifest(parallelism=2, operators=(operator(subtasks, states),), batch_timestamp_ms=77)

    found = due_merges(made, base_floor_bytes=2500)
    assert [(each.kind, each.subtask, each.state.name) for each in found] == [
        (FileKind.BASE, 0, "total"),
        (FileKind.BASE, 0, "other"),
        (FileKind.BASE, 1, "total"),
        (FileKind.BASE, 1, "other"),
    ]
    first, second = due_merges(made, base_floor_bytes=20_000)
    assert (first.key_groups, second.key_groups) == ((0, 7), (8, 15))
    assert (first.uid, first.max_parallelism, first.now_ms) == ("totals", MAX_PARALLELISM, 77)
    assert first.key_fields == (FieldRef(name="k", type="string"),)


def test_a_base_of_any_subtask_comes_before_changelogs_of_another() -> None:
    files = [
        [changelog(f"{index}-{n}", size, groups) for n in range(16)]
        for index, size, groups in [(0, 10, (0, 7)), (1, 99, (8, 15))]
    ]
    subtasks = [SubtaskState(keyed=tuple(of_subtask)) for of_subtask in files]
    found = due_merges(manifest(parallelism=2, operators=(operator(subtasks),)), base_floor_bytes=500)
    assert [(each.kind, each.subtask) for each in found] == [(FileKind.BASE, 1), (FileKind.CHANGELOG, 0)]


def test_of_two_runs_of_one_state_the_first_is_merged_first() -> None:
    left, right = ([changelog(f"{n}-{groups}", 1000, groups) for n in range(16)] for groups in [(0, 7), (8, 15)])
    assert due([*left, *right]) == [(FileKind.CHANGELOG, named(left))]


class Simulated:
    """A long history of one subtask's state, each merge carried out before the next epoch.

    Args:
        base_bytes: How large a base can get; None for a state that has none.

    Attributes:
        times: How often the bytes of each epoch were written again as a part of changelogs.

    """

    def __init__(self, base_bytes: int | None = None) -> None:
        self.base_bytes = base_bytes
        self.floor = 2**62 if base_bytes is None else 4 * MIB
        self.files: list[KeyedFile] = []
        self.epochs_in: dict[str, list[int]] = {}
        self.times: Counter[int] = Counter()
        self.most_files = self.taken = self.written = 0

    def run(self, sizes: Sequence[int]) -> Simulated:
        for epoch, size in enumerate(sizes):
            self.taken += size
            self.files.append(changelog(f"e{epoch}", size))
            self.epochs_in[f"e{epoch}"] = [epoch]
            for each in due_merges(of(self.files), base_floor_bytes=self.floor):
                self.carry_out(each, f"m{epoch}")
            self.most_files = max(self.most_files, len(self.files))
            self.check_outweighed()
        return self

    def carry_out(self, due: Merge, name: str) -> None:
        size = sum(item.file.size for item in due.inputs)
        epochs = list(chain.from_iterable(self.epochs_in.pop(item.file.path) for item in due.inputs))
        if due.kind is FileKind.BASE:
            size = min(size, self.base_bytes or 0)
        else:
            self.times.update(epochs)
        self.written += size
        self.epochs_in[name] = epochs
        self.files = list(with_merged(self.files, [Merged(merge=due, output=changelog(name, size, kind=due.kind))]))

    def check_outweighed(self) -> None:
        bases = sum(item.file.size for item in self.files if item.kind is FileKind.BASE)
        assert sum(item.file.size for item in self.files) - bases <= max(bases, self.floor)


EPOCHS = 10_000
R = random.Random(7)
HISTORIES = {
    "always small": [1000] * EPOCHS,
    "always large": [5 * MIB] * EPOCHS,
    "even": [R.randint(600, MIB) for _ in range(EPOCHS)],
    "of every order": [int(10 ** R.uniform(2.8, 7)) for _ in range(EPOCHS)],
    "heavy tail": [int(800 * R.paretovariate(0.7)) for _ in range(EPOCHS)],
    "rarely large": [R.choice([*[1000] * 15, 3_000_000]) for _ in range(EPOCHS)],
    "by turns": [1000, 300_000] * (EPOCHS // 2),
    "fourteen small and a large one": ([1000] * 14 + [3_000_000]) * (EPOCHS // 15),
}


@pytest.mark.parametrize("sizes", HISTORIES.values(), ids=HISTORIES)
def test_over_ten_thousand_epochs_files_stay_few_and_no_byte_is_written_again_often(sizes: list[int]) -> None:
    simulated = Simulated().run(sizes)

    assert simulated.most_files <= 256
    assert max(simulated.times.values()) <= 8
    assert simulated.written <= 4 * simulated.taken
    assert sorted(chain.from_iterable(simulated.epochs_in.values())) == list(range(len(sizes)))


@pytest.mark.parametrize("base_bytes", [10 * MIB, 10 * KIB * MIB], ids=["10 MiB", "10 GiB"])
@pytest.mark.parametrize("name", ["always small", "of every order", "by turns"])
def test_what_is_written_again_does_not_grow_with_the_state(name: str, base_bytes: int) -> None:
    simulated = Simulated(base_bytes).run(HISTORIES[name])

    assert simulated.most_files <= 256
    assert simulated.written <= 6 * simulated.taken


# --- with_merged ---


def merge(
    inputs: Sequence[KeyedFile],
    kind: FileKind = FileKind.CHANGELOG,
    *,
    state: StateSchema = STATES[0],
    subtask: int = 0,
    key_groups: tuple[int, int] = ALL,
    now_ms: int = 0,
) -> Merge:
    return Merge(
        uid="totals", subtask=subtask, state=state, key_fields=(FieldRef(name="k", type="string"),),
        key_groups=key_groups, max_parallelism=MAX_PARALLELISM, inputs=tuple(inputs), kind=kind, now_ms=now_ms,
    )  # fmt: skip


def test_a_merged_file_takes_the_place_of_the_last_of_its_inputs() -> None:
    files = changelogs(*[10] * 5)
    done = Merged(merge=merge(files[1:4]), output=msgspec.structs.replace(changelog("new", 30), token="c3"))
    assert with_merged(files, [done]) == (files[0], done.output, files[4])
    assert with_merged(files, []) == tuple(files)


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


# --- carry_out ---


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


# --- histories of every kind of state ---


class Sum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0]

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


TTL = StateTtlConfig(timedelta(milliseconds=3))
AGGREGATING = "struct<total:bigint,count:bigint>"
DESCRIPTORS = [
    ValueStateDescriptor("value", "struct<n:bigint,l:array<bigint>>"),
    ValueStateDescriptor("value_ttl", "bigint", TTL),
    ListStateDescriptor("list", "bigint"),
    ListStateDescriptor("list_ttl", "bigint", TTL),
    MapStateDescriptor("map", "bigint", "bigint"),
    MapStateDescriptor("map_ttl", "bigint", "bigint", TTL),
    ReducingStateDescriptor("reducing", "bigint", reduce=lambda a, b: a + b),
    ReducingStateDescriptor("reducing_ttl", "bigint", ttl=TTL, reduce=lambda a, b: a + b),
    AggregatingStateDescriptor("aggregating", AGGREGATING, aggregate=Sum()),
    AggregatingStateDescriptor("aggregating_ttl", AGGREGATING, ttl=TTL, aggregate=Sum()),
]
TIMERS = "__event_timers"
KEYS = [(f"k{n}",) for n in range(3)]
OPERATIONS: dict[StateKind, dict[str, Callable[[Any, int], object]]] = {
    StateKind.VALUE: {
        "write": lambda state, n: state.update((n, [n, None]) if state.table.type != "bigint" else n),
        "read": lambda state, n: state.value(),
    },
    StateKind.LIST: {
        "write": lambda state, n: state.add(n),
        "replace": lambda state, n: state.update(range(n % 3)),
        "read": lambda state, n: list(state.get()),
    },
    StateKind.MAP: {
        "write": lambda state, n: state.put(n % 4, n),
        "remove": lambda state, n: state.remove(n % 4),
        "write two": lambda state, n: state.put_all({n % 4: n, (n + 1) % 4: -n}),
        "move to the end": lambda state, n: (state.remove(n % 4), state.put(n % 4, n)),
        "read": lambda state, n: list(state.items()),
    },
    StateKind.REDUCING: {"write": lambda state, n: state.add(n), "read": lambda state, n: state.get()},
    StateKind.AGGREGATING: {"write": lambda state, n: state.add(n), "read": lambda state, n: state.get()},
}


@dataclass(frozen=True)
class Do:
    """One write or read of one state under one key, perhaps in a window.

    Attributes:
        what: Name of the state, and what to do with it.

    """

    what: tuple[str, str]
    key: int
    n: int
    windowed: bool = False

    def to(self, backend: HeapKeyedStateBackend) -> None:
        name, what = self.what
        backend.set_current_key(KEYS[self.key], self.key_group)
        backend.set_current_namespace(Window(self.n, self.n + 10) if self.windowed else None)
        if name == TIMERS:
            timers = backend.timers(TIMERS)
            assert backend.scope is not None
            change = timers.delete if what == "clear" else timers.register
            change(self.key_group, backend.scope, self.n)
        else:
            descriptor = next(each for each in DESCRIPTORS if each.name == name)
            state: Any = backend.get_state(descriptor)
            if what == "clear":
                state.clear()
            else:
                OPERATIONS[descriptor.kind][what](state, self.n)
        backend.set_current_namespace(None)

    @property
    def key_group(self) -> int:
        return self.key * 7


def operations(names: Sequence[str], *, keys: int = len(KEYS), windows: bool = False) -> st.SearchStrategy[Do]:
    kinds = {each.name: each.kind for each in DESCRIPTORS}
    whats = [(TIMERS, "write"), *((name, what) for name, kind in kinds.items() for what in OPERATIONS[kind])]
    whats += [(name, "clear") for name in (TIMERS, *kinds)]
    return st.builds(
        Do,
        st.sampled_from([(name, what) for name, what in whats if name in names]),
        st.integers(0, keys - 1),
        st.integers(0, 7),
        st.booleans() if windows else st.just(False),
    )


Held = dict[int, dict[str, dict[Any, Any]]]


def held(backends: Iterable[HeapKeyedStateBackend]) -> Held:
    """What backends hold, without what is as good as not there; the entries of a map in their order."""
    found: Held = {}
    for backend in backends:
        for name, table in backend.tables.items():
            for key_group, rows in table.groups.items():
                for scope, stored in rows.items():
                    if stored or table.kind not in (StateKind.LIST, StateKind.MAP, StateKind.TIMERS):
                        shown = list(stored.items()) if table.kind is StateKind.MAP else stored
                        found.setdefault(key_group, {}).setdefault(name, {})[scope] = shown
    return found


class Job:
    """A job with keyed state of every kind, its files, and workers that remember any epoch.

    Attributes:
        truth: State of all key groups that never saw a file.
        memories: After each epoch, per key group its version and what a worker has in memory.

    """

    def __init__(self, store: CheckpointStore, parallelism: int) -> None:
        self.store = store
        self.clock = ManualClock()
        self.truth = self.backend(KeyGroupRange(*ALL))
        self.newest = manifest(
            parallelism=parallelism, epoch=-1, operators=(self.operator((), [SubtaskState()] * parallelism),)
        )
        self.subtasks = [self.backend(self.own(index)) for index in range(parallelism)]
        self.memories: list[dict[int, tuple[str, dict[str, Any]]]] = []
        self.versions = dict.fromkeys(range(MAX_PARALLELISM), "")
        self.pending: list[tuple[int, Merged]] = []

    def backend(self, own: KeyGroupRange) -> HeapKeyedStateBackend:
        return HeapKeyedStateBackend(MAX_PARALLELISM, own, self.clock)

    def own(self, index: int) -> KeyGroupRange:
        return key_group_range(MAX_PARALLELISM, self.newest.parallelism, index)

    @staticmethod
    def operator(states: tuple[StateSchema, ...], subtasks: Sequence[SubtaskState]) -> OperatorState:
        return operator(subtasks, states)

    def epoch(self, todo: Iterable[Do]) -> None:
        """Run and commit an epoch; merges that are ready take the place of their inputs."""
        for each in todo:
            each.to(self.truth)
            each.to(self.subtasks[subtask_for_key_group(MAX_PARALLELISM, len(self.subtasks), each.key_group)])
        epoch = self.newest.epoch + 1
        ready = [each for when, each in self.pending if when <= epoch]
        self.pending = [(when, each) for when, each in self.pending if when > epoch]
        subtasks = []
        for index, before in enumerate(self.newest.operators[0].subtasks):
            merged = [each for each in ready if each.merge.subtask == index]
            subtasks.append(SubtaskState(keyed=(*with_merged(before.keyed, merged), *self.written(epoch, index))))
        states = self.schemas()
        self.newest = manifest(
            epoch=epoch, parallelism=len(subtasks), operators=(self.operator(states, subtasks),),
            batch_timestamp_ms=self.clock.now_ms(),
        )  # fmt: skip
        self.truth.clear_changes()
        self.memories.append({g: (version, self.memory(g)) for g, version in self.versions.items()})

    def written(self, epoch: int, index: int) -> Iterator[KeyedFile]:
        own, token = self.own(index), f"e{epoch}s{index}"
        for name, table in sorted(self.subtasks[index].tables.items()):
            rows = changelog_rows(table)
            if rows.keys:
                data = encode_changelog(rows_table(rows, key_schema([("k", "string")]), table.schema, name))
                file = self.store.write_file(f"state/{epoch}/{token}-{name}", data)
                yield KeyedFile(
                    file=file, state=name, kind=FileKind.CHANGELOG, token=token, key_groups=(own.start, own.end),
                    rows=len(rows.keys),
                )  # fmt: skip
                self.versions.update(dict.fromkeys(own, token))
        self.subtasks[index].clear_changes()

    def schemas(self) -> tuple[StateSchema, ...]:
        schemas: dict[str, StateSchema] = {}
        for backend in self.subtasks:
            for name, table in backend.tables.items():
                windowed = table.windowed or (name in schemas and schemas[name].windowed)
                schemas[name] = StateSchema(
                    name=name, scope="keyed", kind=table.kind, type=table.type, stamped=table.stamped,
                    windowed=windowed, ttl=TtlRef.of(TTL) if table.stamped else None,
                )  # fmt: skip
        for state in self.newest.operators[0].states:
            now = schemas.get(state.name, state)
            schemas[state.name] = msgspec.structs.replace(now, windowed=now.windowed or state.windowed)
        return tuple(schemas[name] for name in sorted(schemas))

    def memory(self, key_group: int) -> dict[str, Any]:
        found = {}
        for name, table in self.truth.tables.items():
            if key_group in table.groups:
                rows: Any = copied_rows(table.kind, table.groups[key_group])
                found[name] = (table.schema, (rows, None, 0) if table.kind is StateKind.TIMERS else rows)
        return found

    def rescale(self, parallelism: int) -> None:
        """Go on at another parallelism, as a new generation does: with state from files, without merges of the old."""
        self.newest = rescale_by_reference(self.newest, parallelism)
        self.pending = []
        self.subtasks = [self.restored(self.newest, index) for index in range(parallelism)]

    def restored(self, made: Manifest, index: int) -> HeapKeyedStateBackend:
        own = key_group_range(MAX_PARALLELISM, made.parallelism, index)
        backend = self.backend(own)
        of_job = made.operators[0]
        apply_keyed_files(backend, self.store, of_job, of_job.subtasks[index].keyed, dict.fromkeys(own, 0))
        return backend

    def mergeable(self) -> list[Merge]:
        """Return every merge that could be: neighbours of one state and range, or all of a state."""
        found = []
        states = {state.name: state for state in self.newest.operators[0].states}
        for index, subtask in enumerate(self.newest.operators[0].subtasks):
            own = self.own(index)
            groups = (own.start, own.end)
            for name, state in states.items():
                files = [item for item in subtask.keyed if item.state == name]
                for kind_and_range, items in groupby(files, lambda item: (item.kind, item.key_groups)):
                    run = list(items)
                    if kind_and_range[0] is FileKind.CHANGELOG:
                        spans = [(i, j) for i in range(len(run)) for j in range(i + 2, len(run) + 1)]
                        found += [merge(run[i:j], state=state, subtask=index, key_groups=groups) for i, j in spans]
                if files and files[-1].key_groups == groups:
                    found.append(merge(files, FileKind.BASE, state=state, subtask=index, key_groups=groups))
        return found

    def lay_together(self, chosen: Merge | None, ready_after: int) -> None:
        if chosen is not None:
            done = carry_out(self.store, chosen, "merged")
            self.pending.append((self.newest.epoch + 1 + ready_after, done))

    def check(self) -> None:
        """Compare with the truth what everybody gets who takes up the newest epoch, whatever they remember."""
        expected = held([self.truth])
        of_job = self.newest.operators[0]
        for index, subtask in enumerate(of_job.subtasks):
            heads = dict.fromkeys(self.own(index), "")
            for item in subtask.keyed:
                heads.update(dict.fromkeys(range(item.key_groups[0], item.key_groups[1] + 1), item.token))
            assert heads == {g: self.versions[g] for g in self.own(index)}
        assert held(self.restored(self.newest, index) for index in range(self.newest.parallelism)) == expected
        for memory in self.memories:
            assert held(self.caught_up(memory, index) for index in range(self.newest.parallelism)) == expected

    def caught_up(self, memory: dict[int, tuple[str, dict[str, Any]]], index: int) -> HeapKeyedStateBackend:
        """Do what ``SubtaskStateLoader`` does with key groups that are in memory as of another epoch."""
        files = self.newest.operators[0].subtasks[index].keyed
        backend = self.backend(self.own(index))
        first_file = {}
        for key_group in self.own(index):
            version, states = memory[key_group]
            first_file[key_group] = _after(files, key_group, version)
            if first_file[key_group]:
                copies = {
                    name: (
                        schema,
                        (set_rows(rows[0]), None, 0)
                        if schema.kind is StateKind.TIMERS
                        else copied_rows(schema.kind, rows),
                    )
                    for name, (schema, rows) in states.items()
                }
                backend.attach_key_group(key_group, copies)
        apply_keyed_files(backend, self.store, self.newest.operators[0], files, first_file)
        return backend


def set_rows(rows: dict[Any, set[int]]) -> dict[Any, set[int]]:
    return copied_rows(StateKind.TIMERS, rows)


@settings(unhurried, max_examples=80)
@given(st.data())
def test_whoever_takes_up_merged_files_has_the_state_that_the_originals_give(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    job = Job(CheckpointStore.at(str(tmp_path_factory.mktemp("job"))), data.draw(st.integers(1, 2)))
    names = data.draw(
        st.lists(st.sampled_from([TIMERS, *(each.name for each in DESCRIPTORS)]), min_size=2, max_size=3, unique=True)
    )
    first_window = data.draw(st.integers(0, 6))
    for epoch in range(data.draw(st.integers(2, 6))):
        job.clock.advance(data.draw(st.integers(0, 2)))
        job.epoch(data.draw(st.lists(operations(names, windows=epoch >= first_window), max_size=8)))
        for chosen in data.draw(st.lists(st.sampled_from(job.mergeable() or [None]), max_size=2)):
            job.lay_together(chosen, data.draw(st.integers(0, 1)))
        if data.draw(st.integers(0, 4)) == 4:
            job.rescale(data.draw(st.integers(1, 3)))
    job.epoch([])
    job.epoch([])
    job.check()


MAP_WRITES = st.builds(
    Do,
    st.sampled_from([("map", what) for what in ("write", "remove", "move to the end")]),
    st.just(0),
    st.integers(0, 3),
)


@settings(unhurried, max_examples=20)
@given(st.lists(MAP_WRITES, min_size=8, max_size=8))
def test_the_entries_of_a_map_are_in_the_same_order_whatever_was_merged(
    tmp_path_factory: pytest.TempPathFactory, writes: list[Do]
) -> None:
    """Else a function that takes the first entry would go on differently on another worker."""
    job = Job(CheckpointStore.at(str(tmp_path_factory.mktemp("job"))), 1)
    for number, write in enumerate(writes):
        # The files of another state show where a memory stands.
        job.epoch([Do(("value", "write"), 0, number), write])
    newest = job.newest
    last = [item for item in newest.operators[0].subtasks[0].keyed if item.state == "map"][-1:]
    for chosen in job.mergeable():
        if chosen.inputs[-1:] == tuple(last):
            job.newest = newest
            job.lay_together(chosen, 0)
            job.epoch([])
            job.check()


def neighbours(job: Job, name: str, start: int, end: int) -> Merge:
    """Return the merge of the changelogs that epochs from ``start`` to ``end`` wrote of a state."""
    tokens = [f"e{epoch}s0" for epoch in range(start, end + 1)]
    (found,) = [
        each
        for each in job.mergeable()
        if (each.state.name, each.kind) == (name, FileKind.CHANGELOG) and named(each.inputs) == tokens
    ]
    return found


@pytest.mark.parametrize("other", ["list", "value"], ids=["before it in the list of files", "behind it"])
@pytest.mark.parametrize("start", [1, 2])
def test_a_memory_from_within_a_merged_run_has_its_map_in_the_order_of_everybody_else(
    store: CheckpointStore, other: str, start: int
) -> None:
    """The file of another state shows where it stands, and of the merged file it has a part already."""
    job = Job(store, 1)
    for writes in [
        [("write", 1)],
        [("move to the end", 1)],
        [("write", 2), ("move to the end", 2), ("write", 3)],
        [("write", 3)],
    ]:
        job.epoch([Do((other, "write"), 0, 1), *(Do(("map", what), 0, n) for what, n in writes)])
    job.lay_together(neighbours(job, "map", start, 3), 0)
    job.epoch([])
    job.check()


@pytest.mark.parametrize("map_first", [True, False])
def test_a_merge_of_another_state_does_not_bring_back_where_such_a_memory_stands(
    store: CheckpointStore, map_first: bool
) -> None:
    job = Job(store, 1)
    for what, n in [("write", 1), ("move to the end", 1), ("write", 2), ("write", 2)]:
        job.epoch([Do(("value", "write"), 0, n), Do(("map", what), 0, n)])
    chosen = [neighbours(job, "map", 1, 3), neighbours(job, "value", 0, 2)]
    for each in chosen if map_first else reversed(chosen):
        job.lay_together(each, 0)
    job.epoch([])
    assert len(job.newest.operators[0].subtasks[0].keyed) == 4
    job.check()


@pytest.mark.parametrize("name", [TIMERS, *(each.name for each in DESCRIPTORS)])
def test_files_from_before_the_first_window_of_a_state_and_from_after_it_are_laid_together(
    store: CheckpointStore, name: str
) -> None:
    job = Job(store, 1)
    for windowed in (False, True, False):
        job.epoch([Do((name, "write"), 0, 1), Do((name, "write"), 1, 2, windowed)])
    newest = job.newest
    for chosen in job.mergeable():
        job.newest = newest
        job.lay_together(chosen, 0)
        job.epoch([])
        job.check()


def live_at(name: str, stored: Any, now_ms: int) -> Any:
    """Return what is left of something stored, or nothing that is true."""

    def live(cell: tuple[Any, int]) -> bool:
        return cell[1] + 3 > now_ms

    if name == "list_ttl":
        return [cell for cell in stored if live(cell)]
    if name == "map_ttl":
        return [(map_key, cell) for map_key, cell in stored if live(cell)]
    return stored if live(stored) else None


EXPIRING = [each.name for each in DESCRIPTORS if each.ttl]


@pytest.mark.parametrize("now_ms", range(8))
def test_expired_state_leaves_with_a_base_where_that_was_asked_for_and_nothing_else_does(
    store: CheckpointStore, now_ms: int
) -> None:
    job = Job(store, 1)
    for time in (0, 2, 3):
        job.clock.set(time)
        job.epoch(
            [Do((name, "write"), key, time) for name in EXPIRING for key in range(time, 3)]
            + [Do(("value", "write"), 0, 1)]
        )
        job.epoch([Do((name, "write"), 0, time + 1) for name in ("list_ttl", "map_ttl")])
    originals = held([job.truth])
    cleaned = TtlRef.of(StateTtlConfig(timedelta(milliseconds=3), cleanup_full_snapshot=True))
    for ttl, clean in [(cleaned, True), (TtlRef.of(TTL), False)]:
        files = []
        for chosen in job.mergeable():
            if chosen.kind is FileKind.BASE:
                state = msgspec.structs.replace(chosen.state, ttl=ttl if chosen.state.stamped else None)
                files.append(
                    carry_out(store, msgspec.structs.replace(chosen, state=state, now_ms=now_ms), "merged").output
                )
        subtask = SubtaskState(keyed=tuple(files))
        made = msgspec.structs.replace(job.newest, operators=(operator([subtask], job.newest.operators[0].states),))
        expected = {
            group: {
                name: {
                    scope: live_at(name, stored, now_ms) if clean and name in EXPIRING else stored
                    for scope, stored in rows.items()
                }
                for name, rows in states.items()
            }
            for group, states in originals.items()
        }
        assert held([job.restored(made, 0)]) == without_nothing(expected)


def without_nothing(held: Held) -> Held:
    kept = {
        g: {n: {s: stored for s, stored in rows.items() if stored} for n, rows in states.items()}
        for g, states in held.items()
    }
    return {g: found for g, states in kept.items() if (found := {n: rows for n, rows in states.items() if rows})}


def test_laying_changelogs_together_drops_nothing_that_has_expired(store: CheckpointStore) -> None:
    job = Job(store, 1)
    job.epoch([Do((name, "write"), 0, 1) for name in EXPIRING])
    job.epoch([Do((name, "write"), 1, 1) for name in EXPIRING])
    job.clock.set(1000)
    for chosen in job.mergeable():
        if chosen.kind is FileKind.CHANGELOG:
            cleaned = TtlRef.of(StateTtlConfig(timedelta(milliseconds=3), cleanup_full_snapshot=True))
            state = msgspec.structs.replace(chosen.state, ttl=cleaned)
            job.lay_together(msgspec.structs.replace(chosen, state=state, now_ms=1000), 0)
    job.epoch([])
    assert len(job.newest.operators[0].subtasks[0].keyed) == len(EXPIRING)
    job.check()
