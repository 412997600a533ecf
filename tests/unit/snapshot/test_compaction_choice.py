"""Which state files are laid together: when, and how often. Sizes alone; no file is there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import msgspec
import pytest

from statecore.model import StateKind, key_group_range
from statecore.snapshot.compaction import Merge, Merged, due_merges, with_merged
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    KeyedFile,
    Manifest,
    StateSchema,
    SubtaskState,
)
from tests.support.handmade import MAX_PARALLELISM, STATES, manifest, operator
from tests.unit.snapshot.merges import KIB, MIB, changelog, changelogs, named

# Simulated epochs by the ten thousand: measuring coverage would take four times as long.
pytestmark = pytest.mark.untraced


def base(size: int) -> KeyedFile:
    return changelog("base", size, kind=FileKind.BASE)


def of(files: Iterable[KeyedFile]) -> Manifest:
    return manifest(operators=(operator([SubtaskState(keyed=tuple(files))]),))


def due(files: Iterable[KeyedFile], *, floor: int = 2**62) -> list[tuple[FileKind, list[str]]]:
    return [(each.kind, [item.token for item in each.inputs]) for each in due_merges(of(files), base_floor_bytes=floor)]


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


# More than 16 ** 3: a changelog of every size class is merged.
EPOCHS = 5_000
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
def test_over_thousands_of_epochs_files_stay_few_and_no_byte_is_written_again_often(sizes: list[int]) -> None:
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
