"""Rescale by reference: every piece of state to exactly one subtask, no byte touched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import msgspec
import pyarrow as pa
import pytest

from statecore.errors import InvalidParallelismError
from statecore.model import DistributionMode, StateKind, key_group_range, subtask_for_key_group
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import (
    FileKind,
    Manifest,
    OperatorFile,
    StateSchema,
    SubtaskState,
    decode_manifest,
    encode_manifest,
)
from statecore.snapshot.operator_files import elements_table, encode_elements
from statecore.snapshot.plan import plan_rescale
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files, operator_snapshots, read_elements
from statecore.state import HeapKeyedStateBackend, OperatorStateBackend
from statecore.testing import ManualClock
from tests.support.handmade import MAX_PARALLELISM, STATES, TOTAL, keyed_file, manifest, operator, operator_file


@pytest.fixture
def of_three(store: CheckpointStore) -> Manifest:
    """Three subtasks, each with a base, two changelogs over it, and operator state; 7 elements of 3, 0 and 4."""
    subtasks = []
    for index, elements in enumerate([[0, 1, 2], [], [3, 4, 5, 6]]):
        own = key_group_range(MAX_PARALLELISM, 3, index)
        groups = (own.start, own.end)
        keyed = [
            keyed_file(store, f"s{index}/base", {g: g for g in own}, groups, kind=FileKind.BASE, token="a"),
            keyed_file(store, f"s{index}/log1", {g: g + 100 for g in own}, groups, kind=FileKind.CHANGELOG, token="b"),
            keyed_file(store, f"s{index}/log2", {own.end: 999}, groups, kind=FileKind.CHANGELOG, token="c"),
        ]
        listed = (operator_file(store, f"s{index}/elements", elements),) if elements else ()
        subtasks.append(SubtaskState(keyed=tuple(keyed), operator=listed, operator_token=f"t{index}"))
    return manifest(parallelism=3, operators=(operator(subtasks),))


def keyed_references(made: Manifest) -> Counter[tuple[int, str]]:
    """Count how often each (key group, file) is given to a subtask."""
    return Counter(
        (group, item.file.path)
        for subtask in made.operators[0].subtasks
        for item in subtask.keyed
        for group in range(item.key_groups[0], item.key_groups[1] + 1)
    )


def element_references(made: Manifest) -> list[tuple[str, int]]:
    return [
        (item.file.path, offset)
        for subtask in made.operators[0].subtasks
        for item in subtask.operator
        for offset in item.partitions.offsets
    ]


def restored(store: CheckpointStore, made: Manifest) -> dict[str, int]:
    """Restore every subtask as a worker does and return all keys with their values."""
    state: dict[str, int] = {}
    for index, subtask in enumerate(made.operators[0].subtasks):
        own = key_group_range(MAX_PARALLELISM, made.parallelism, index)
        backend = HeapKeyedStateBackend(MAX_PARALLELISM, own, ManualClock())
        apply_keyed_files(backend, store, made.operators[0], subtask.keyed, dict.fromkeys(own, 0))
        groups = backend.restored_table("total", TOTAL).groups
        assert set(groups) == set(own)
        for rows in groups.values():
            for (key,), value in rows.items():  # type: ignore[misc]  # no state here has windows
                assert key not in state
                state[key] = value
    return state


STEPS = [(5,), (5, 1), (5, 1, 3), (1, 16, 2), (16,), (2, 3), (4, 4)]


@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_every_key_group_of_every_file_and_every_element_is_kept_exactly_once(
    of_three: Manifest, steps: tuple[int, ...]
) -> None:
    rescaled = of_three
    for parallelism in steps:
        rescaled = rescale_by_reference(rescaled, parallelism)
        assert rescaled.parallelism == len(rescaled.operators[0].subtasks) == parallelism

    assert keyed_references(rescaled) == keyed_references(of_three)
    assert set(keyed_references(rescaled).values()) == {1}
    assert sorted(element_references(rescaled)) == sorted(element_references(of_three))


@pytest.mark.parametrize("parallelism", [5, 7])
def test_subtasks_that_share_a_file_keep_their_own_versions_of_it(of_three: Manifest, parallelism: int) -> None:
    # A merge gives the files of other states a later version, in the lists of its own subtask alone.
    shared = rescale_by_reference(of_three, 5).operators[0]
    versions = tuple(
        msgspec.structs.replace(
            subtask, keyed=tuple(msgspec.structs.replace(item, token=f"t{index}") for item in subtask.keyed)
        )
        for index, subtask in enumerate(shared.subtasks)
    )
    made = msgspec.structs.replace(
        of_three, parallelism=5, operators=(msgspec.structs.replace(shared, subtasks=versions),)
    )
    rescaled = rescale_by_reference(made, parallelism)
    for subtask in rescaled.operators[0].subtasks:
        for item in subtask.keyed:
            for group in range(item.key_groups[0], item.key_groups[1] + 1):
                assert item.token == f"t{subtask_for_key_group(MAX_PARALLELISM, 5, group)}"


@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_every_subtask_holds_its_own_key_groups_alone(of_three: Manifest, steps: tuple[int, ...]) -> None:
    rescaled = of_three
    for parallelism in steps:
        rescaled = rescale_by_reference(rescaled, parallelism)
    for index, subtask in enumerate(rescaled.operators[0].subtasks):
        own = key_group_range(MAX_PARALLELISM, rescaled.parallelism, index)
        assert all(own.start <= item.key_groups[0] <= item.key_groups[1] <= own.end for item in subtask.keyed)


@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_files_stay_in_old_order_so_that_the_restored_state_is_the_same(
    store: CheckpointStore, of_three: Manifest, steps: tuple[int, ...]
) -> None:
    rescaled = of_three
    for parallelism in steps:
        rescaled = rescale_by_reference(rescaled, parallelism)
    ends = [key_group_range(MAX_PARALLELISM, 3, index).end for index in range(3)]
    expected = {f"k{group}": 999 if group in ends else group + 100 for group in range(MAX_PARALLELISM)}
    assert restored(store, rescaled) == expected


def test_elements_of_a_contiguous_state_stay_in_old_order(store: CheckpointStore, of_three: Manifest) -> None:
    five = rescale_by_reference(of_three, 5)
    assert element_references(five) == element_references(of_three)
    assert [sum(len(item.partitions.offsets) for item in s.operator) for s in five.operators[0].subtasks] == [
        2, 2, 1, 1, 1,
    ]  # fmt: skip
    one = rescale_by_reference(five, 1)
    elements = [
        element for item in one.operators[0].subtasks[0].operator for element in read_elements(store, STATES[1], item)
    ]
    assert elements == list(range(7))


def test_elements_of_an_interleaved_state_are_dealt_one_by_one(of_three: Manifest) -> None:
    states = tuple(
        msgspec.structs.replace(state, strategy="interleaved") if state.scope == "operator" else state
        for state in of_three.operators[0].states
    )
    dealt = msgspec.structs.replace(
        of_three, operators=(msgspec.structs.replace(of_three.operators[0], states=states),)
    )
    first = rescale_by_reference(dealt, 2).operators[0].subtasks[0]
    assert [(item.file.path, item.partitions.offsets) for item in first.operator] == [
        ("s0/elements", (0, 2)),
        ("s2/elements", (1, 3)),
    ]


def test_one_file_is_given_to_several_subtasks_and_stays_one_file(of_three: Manifest) -> None:
    five = rescale_by_reference(of_three, 5)
    sharers = [s for s in five.operators[0].subtasks if any(item.file.path == "s1/base" for item in s.keyed)]
    assert len(sharers) >= 2
    assert sorted(ref.path for ref in five.files()) == sorted(ref.path for ref in of_three.files())
    back = rescale_by_reference(five, 1).operators[0].subtasks[0].keyed
    ranges = [item.key_groups for item in back if item.file.path == "s1/base"]
    assert len(ranges) == len(sharers)
    assert sorted(ranges) == ranges


def test_no_file_is_read_or_written(store: CheckpointStore, of_three: Manifest, tmp_path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    rescale_by_reference(rescale_by_reference(of_three, 5), 1)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_everything_but_the_placement_stays(of_three: Manifest) -> None:
    five = rescale_by_reference(of_three, 5)
    assert msgspec.structs.replace(five, parallelism=3, operators=of_three.operators) == of_three
    assert five.operators[0].states == of_three.operators[0].states
    assert rescale_by_reference(of_three, 3) == of_three


def test_a_rescaled_subtask_carries_no_version_of_operator_state_that_a_cache_could_match(of_three: Manifest) -> None:
    assert {s.operator_token for s in rescale_by_reference(of_three, 5).operators[0].subtasks} == {""}


@pytest.mark.parametrize("parallelism", [0, -1, MAX_PARALLELISM + 1])
def test_a_parallelism_out_of_bounds_is_refused(of_three: Manifest, parallelism: int) -> None:
    with pytest.raises(InvalidParallelismError, match=str(parallelism)):
        rescale_by_reference(of_three, parallelism)


OPERATOR_STATES = (
    *STATES,
    StateSchema(name="all", scope="operator", kind=StateKind.LIST, type="bigint", mode=DistributionMode.UNION),
    StateSchema(
        name="rules", scope="operator", kind=StateKind.MAP, type="map<string,bigint>", mode=DistributionMode.BROADCAST
    ),
)


def rules_file(store: CheckpointStore, path: str, entries: dict[str, int]) -> OperatorFile:
    table = elements_table([entries], pa.map_(pa.string(), pa.int64()), "rules")
    made = operator_file(store, path + "-rows", [0], DistributionMode.BROADCAST)
    return msgspec.structs.replace(made, state="rules", file=store.write_file(path, encode_elements(table)))


@pytest.fixture
def of_all_modes(store: CheckpointStore) -> Manifest:
    """Two subtasks with split elements, a union list and a broadcast map each."""
    subtasks = []
    for index in range(2):
        union = operator_file(store, f"s{index}/all", [index * 10, index * 10 + 1], DistributionMode.UNION)
        files = (
            operator_file(store, f"s{index}/waiting", [index]),
            msgspec.structs.replace(union, state="all"),
            rules_file(store, f"s{index}/rules", {"copy": index}),
        )
        subtasks.append(SubtaskState(operator=files, operator_token=f"t{index}"))
    return manifest(parallelism=2, operators=(operator(subtasks, OPERATOR_STATES),))


def operator_state(store: CheckpointStore, made: Manifest) -> list[dict[str, tuple[object, ...]]]:
    """Restore the operator state of every subtask as a worker does."""
    restored = []
    for subtask in made.operators[0].subtasks:
        backend = OperatorStateBackend()
        backend.restore(operator_snapshots(store, made.operators[0].states, subtask.operator))
        restored.append({name: snapshot.elements for name, snapshot in backend.snapshot().items()})
    return restored


def test_a_restore_at_unchanged_parallelism_gives_union_state_to_everybody_and_leaves_the_rest(
    store: CheckpointStore, of_all_modes: Manifest
) -> None:
    assert operator_state(store, rescale_by_reference(of_all_modes, 2)) == [
        {"all": (0, 1, 10, 11), "rules": ({"copy": 0},), "waiting": (0,)},
        {"all": (0, 1, 10, 11), "rules": ({"copy": 1},), "waiting": (1,)},
    ]


def test_within_a_generation_each_subtask_goes_on_from_its_own_elements(
    store: CheckpointStore, of_all_modes: Manifest
) -> None:
    assert [state["all"] for state in operator_state(store, of_all_modes)] == [(0, 1), (10, 11)]


@pytest.mark.parametrize("steps", [(2, 2), (2, 2, 2), (3, 3), (3, 2), (1, 4, 2), (5, 1, 2)], ids=str)
def test_however_often_it_is_restored_no_element_of_a_union_multiplies(
    store: CheckpointStore, of_all_modes: Manifest, steps: tuple[int, ...]
) -> None:
    rescaled = of_all_modes
    for parallelism in steps:
        rescaled = rescale_by_reference(rescaled, parallelism)
    states = operator_state(store, rescaled)
    assert [state["all"] for state in states] == [(0, 1, 10, 11)] * steps[-1]
    assert sorted(cast(int, element) for state in states for element in state["waiting"]) == [0, 1]


def test_a_new_subtask_takes_a_copy_of_the_broadcast_state(store: CheckpointStore, of_all_modes: Manifest) -> None:
    states = operator_state(store, rescale_by_reference(of_all_modes, 3))
    assert [state["rules"] for state in states] == [({"copy": 0},), ({"copy": 1},), ({"copy": 0},)]


def test_a_second_restore_from_the_same_manifest_gives_the_same(of_all_modes: Manifest) -> None:
    for parallelism in (2, 3):
        once = rescale_by_reference(of_all_modes, parallelism)
        assert rescale_by_reference(of_all_modes, parallelism) == once
        assert rescale_by_reference(once, parallelism) == once


def test_a_version_of_operator_state_survives_a_restore_only_where_nothing_was_added(
    store: CheckpointStore, of_all_modes: Manifest, of_three: Manifest
) -> None:
    assert [s.operator_token for s in rescale_by_reference(of_all_modes, 2).operators[0].subtasks] == ["", ""]
    assert [s.operator_token for s in rescale_by_reference(of_three, 3).operators[0].subtasks] == ["t0", "t1", "t2"]


def test_a_state_without_elements_is_restored_too_with_its_mode(store: CheckpointStore) -> None:
    backend = OperatorStateBackend()
    backend.restore(operator_snapshots(store, OPERATOR_STATES, ()))
    assert {name: (snapshot.mode, snapshot.elements) for name, snapshot in backend.snapshot().items()} == {
        "all": (DistributionMode.UNION, ()),
        "rules": (DistributionMode.BROADCAST, ({},)),
        "waiting": (DistributionMode.SPLIT, ()),
    }


class TestAParallelismOfItsOwn:
    """Of an operator whose number of subtasks the job file fixes."""

    @pytest.fixture
    def fixed(self, of_three: Manifest) -> Manifest:
        free = msgspec.structs.replace(of_three.operators[0], uid="free")
        own = msgspec.structs.replace(of_three.operators[0], own_parallelism=3)
        return msgspec.structs.replace(of_three, operators=(own, free))

    def test_a_rescale_of_the_job_leaves_it_as_it_is(self, fixed: Manifest) -> None:
        rescaled = rescale_by_reference(fixed, 5)
        assert rescaled.operators[0] == fixed.operators[0]
        assert [len(operator.subtasks) for operator in rescaled.operators] == [3, 5]
        assert decode_manifest(encode_manifest(rescaled), "made") == rescaled

    def test_a_job_file_that_changes_it_is_followed(self, store: CheckpointStore, fixed: Manifest) -> None:
        for own, expected in ((4, 4), (None, 5)):
            rescaled = rescale_by_reference(fixed, 5, {"totals": own})
            assert (rescaled.operators[0].own_parallelism, len(rescaled.operators[0].subtasks)) == (own, expected)
            assert keyed_references(rescaled) == keyed_references(fixed)

    def test_a_plan_tells_it_apart(self, store: CheckpointStore, fixed: Manifest) -> None:
        planned = plan_rescale(store, fixed, 5)
        free = msgspec.structs.replace(fixed, operators=fixed.operators[1:])
        assert planned.fixed == (("totals", 3),)
        assert planned.subtasks == plan_rescale(store, free, 5).subtasks

    def test_more_subtasks_than_key_groups_are_refused(self, fixed: Manifest) -> None:
        with pytest.raises(InvalidParallelismError):
            rescale_by_reference(fixed, 2, {"totals": MAX_PARALLELISM + 1})
