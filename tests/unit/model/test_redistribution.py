"""Redistribution, against Flink's recorded values and by its properties."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import InvalidParallelismError, MaxParallelismError, RedistributionError
from statecore.model.handles import DistributionMode, KeyedStateHandle, OperatorStateHandle, StatePartitions
from statecore.model.key_groups import KeyGroupRange, key_group_range
from statecore.model.redistribution import redistribute_keyed_state, redistribute_operator_state
from tests.support.golden import golden

SPLIT, UNION, BROADCAST = DistributionMode.SPLIT, DistributionMode.UNION, DistributionMode.BROADCAST


def operator_handle(path, **states) -> OperatorStateHandle:
    return OperatorStateHandle(path, {n: StatePartitions(mode, tuple(o)) for n, (mode, o) in states.items()})


def flat(result) -> list[list]:
    """Per subtask sorted [name, mode, handle, offsets], as the golden file has it."""
    return [
        sorted([name, p.mode.value, h.path, list(p.offsets)] for h in handles for name, p in h.states.items())
        for handles in result
    ]


def elements(result, name) -> list[list[tuple]]:
    """Per subtask the (handle, offset) of one state, in the order a restore reads them."""
    return [[(h.path, o) for h in handles if name in h.states for o in h.states[name].offsets] for handles in result]


@pytest.mark.parametrize("case", golden("operator_redistribution"), ids=lambda case: case["id"])
def test_operator_state_goes_where_flink_sends_it(case):
    previous = [
        [
            operator_handle(
                h["handle"],
                **{n: (DistributionMode(s["mode"]), s["offsets"]) for n, s in h["states"].items()},
            )
            for h in handles
        ]
        for handles in case["previous"]
    ]
    result = flat(redistribute_operator_state(previous, case["new_parallelism"]))
    if case["exact"]:
        assert result == case["expected"]
        return
    without_split = [[entry for entry in share if entry[1] != "split"] for share in result]
    assert without_split == [[e for e in share if e[1] != "split"] for share in case["expected"]]
    assert_split_is_fair(flat(previous), result)


def assert_split_is_fair(previous, result):
    """Nothing lost or doubled, and even, per state and over all of them."""
    before: Counter[Any] = Counter()
    after: Counter[Any] = Counter()
    sizes: dict[Any, list[int]] = defaultdict(lambda: [0] * len(result))
    for counter, shares in ((before, previous), (after, result)):
        for subtask, share in enumerate(shares):
            for name, mode, path, offsets in share:
                if mode == "split":
                    counter.update((name, path, offset) for offset in offsets)
                    if counter is after:
                        sizes[name][subtask] += len(offsets)
    assert before == after
    totals = [sum(column) for column in zip(*sizes.values(), strict=True)]
    for loads in [*sizes.values(), totals]:
        assert max(loads, default=0) - min(loads, default=0) <= 1


@pytest.mark.parametrize("case", golden("keyed_redistribution"), ids=lambda case: case["id"])
def test_keyed_state_goes_where_flink_sends_it(case):
    previous = [[KeyedStateHandle(p, KeyGroupRange(a, b)) for p, a, b in share] for share in case["previous"]]
    result = redistribute_keyed_state(previous, case["max_parallelism"], case["new_parallelism"])
    assert [[[h.path, h.key_groups.start, h.key_groups.end] for h in share] for share in result] == case["expected"]


# --- operator state ---

KAFKA = [[operator_handle("a", s=(SPLIT, [1, 2]))], [operator_handle("b", s=(SPLIT, [3, 4]))]]


def test_split_state_is_cut_into_contiguous_chunks():
    assert elements(redistribute_operator_state(KAFKA, 3), "s") == [
        [("a", 1), ("a", 2)],
        [("b", 3)],
        [("b", 4)],
    ]


def test_interleaved_split_state_is_dealt_one_by_one():
    result = redistribute_operator_state(KAFKA, 3, strategies={"s": "interleaved"})
    assert elements(result, "s") == [[("a", 1), ("b", 4)], [("a", 2)], [("b", 3)]]


def test_the_starting_subtask_carries_over_in_the_order_of_names():
    previous = [[operator_handle("h", b=(SPLIT, [0]), a=(SPLIT, [1]), c=(SPLIT, [2]))]]
    for strategies in (None, {"a": "interleaved", "b": "interleaved"}):
        result = redistribute_operator_state(previous, 3, strategies=strategies)
        assert [list(share[0].states) for share in result] == [["a"], ["b"], ["c"]]


def test_at_unchanged_parallelism_split_and_broadcast_stay_and_union_goes_to_all():
    previous = [
        [operator_handle("x", s=(SPLIT, [0, 1, 2]), b=(BROADCAST, [3]), u=(UNION, [4]))],
        [operator_handle("y", b=(BROADCAST, [0]), u=(UNION, [1]))],
    ]
    result = redistribute_operator_state(previous, 2, strategies={"s": "interleaved"})
    assert elements(result, "s") == [[("x", 0), ("x", 1), ("x", 2)], []]
    assert elements(result, "b") == [[("x", 3)], [("y", 0)]]
    assert elements(result, "u") == [[("x", 4), ("y", 1)]] * 2


def test_each_broadcast_state_takes_its_copies_from_the_handles_that_hold_it():
    previous = [
        [operator_handle("x", b=(BROADCAST, [0]))],
        [
            operator_handle("y", b=(BROADCAST, [0]), r=(BROADCAST, [1])),
            operator_handle("z", r=(BROADCAST, [])),
        ],
    ]
    result = redistribute_operator_state(previous, 3)
    assert elements(result, "b") == [[("x", 0)], [("y", 0)], [("x", 0)]]
    assert elements(result, "r") == [[("y", 1)]] * 3


def test_old_subtasks_without_handles_and_states_without_elements_leave_nothing():
    assert redistribute_operator_state([], 2) == [[], []]
    assert redistribute_operator_state([[], [], []], 2) == [[], []]
    assert redistribute_operator_state([[operator_handle("x", s=(SPLIT, []), u=(UNION, []))]], 2) == [[], []]


def test_rescaling_by_reference_twice_does_not_double_union_state():
    previous = [[operator_handle("x", u=(UNION, [0]))], [operator_handle("y", u=(UNION, [0, 5]))]]
    once = redistribute_operator_state(previous, 3)
    assert elements(once, "u") == [[("x", 0), ("y", 0), ("y", 5)]] * 3
    assert redistribute_operator_state(redistribute_operator_state(once, 5), 3) == once


@st.composite
def operator_state(draw):
    modes = draw(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(list(DistributionMode)), max_size=5))
    previous, count = [], 0
    for subtask in range(draw(st.integers(1, 6))):
        handles: list[Any] = []
        for _ in range(draw(st.integers(0, 2))):
            states = {}
            for name, mode in modes.items():
                size = 1 if mode is BROADCAST else draw(st.integers(0, 5))
                if draw(st.booleans()):
                    states[name] = (mode, range(count, count + size))
                    count += size
            handles.append(operator_handle(f"h{subtask}-{len(handles)}", **states))
        previous.append(handles)
    return modes, previous


@given(operator_state(), st.integers(1, 9), st.sets(st.sampled_from("abcdef")))
def test_no_element_is_lost_or_doubled_and_none_out_of_order(state, new_parallelism, interleaved):
    modes, previous = state
    result = redistribute_operator_state(
        previous, new_parallelism, strategies=dict.fromkeys(interleaved, "interleaved")
    )
    assert len(result) == new_parallelism
    for name, mode in modes.items():
        old = [element for share in elements(previous, name) for element in share]
        new = elements(result, name)
        if mode is UNION:
            assert new == [old] * new_parallelism
        elif mode is SPLIT:
            assert sorted(e for share in new for e in share) == sorted(old)
            assert all(share == sorted(share, key=old.index) for share in new)
        elif len(previous) == new_parallelism:
            assert new == elements(previous, name)
        elif old:
            assert new == [[old[i % len(old)]] for i in range(new_parallelism)]
    if len(previous) != new_parallelism:
        assert_split_is_fair(flat(previous), flat(result))


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, None, 32769])
def test_a_parallelism_out_of_bounds_is_refused(bad):
    with pytest.raises(InvalidParallelismError):
        redistribute_operator_state(KAFKA, bad)
    with pytest.raises(InvalidParallelismError):
        redistribute_keyed_state([], 128, bad)


def test_one_state_name_with_two_modes_is_refused_and_both_are_named():
    previous = [[operator_handle("x", s=(SPLIT, [0]))], [operator_handle("y", s=(UNION, []))]]
    with pytest.raises(RedistributionError, match=r"'split' in 'x' and as 'union' in 'y'"):
        redistribute_operator_state(previous, 2)


def test_an_unknown_strategy_is_refused():
    with pytest.raises(RedistributionError, match="round_robin"):
        redistribute_operator_state(KAFKA, 3, strategies={"s": "round_robin"})


# --- keyed state ---


@given(st.data())
def test_every_key_group_goes_to_its_owner_once(data):
    groups = data.draw(st.integers(1, 200))
    old, new = (data.draw(st.integers(1, groups)) for _ in range(2))
    previous = [[KeyedStateHandle(f"h{i}", key_group_range(groups, old, i))] for i in range(old)]
    result = redistribute_keyed_state(previous, groups, new)
    writer = {group: f"h{i}" for i in range(old) for group in key_group_range(groups, old, i)}
    for subtask, handles in enumerate(result):
        read = [(group, handle.path) for handle in handles for group in handle.key_groups]
        assert read == [(group, writer[group]) for group in key_group_range(groups, new, subtask)]
    assert redistribute_keyed_state(previous, groups, old) == previous


def test_changelog_handles_stay_behind_their_base_in_old_order():
    whole = KeyGroupRange(0, 7)
    previous = [[KeyedStateHandle(name, whole) for name in ("base", "delta-1", "delta-2")]]
    for share in redistribute_keyed_state(previous, 8, 2):
        assert [handle.path for handle in share] == ["base", "delta-1", "delta-2"]


def test_another_max_parallelism_is_refused_and_rewrite_is_the_remedy():
    previous = [[KeyedStateHandle("h", KeyGroupRange(0, 127))]]
    with pytest.raises(MaxParallelismError, match="rewrite"):
        redistribute_keyed_state(previous, 64, 2)


def test_a_parallelism_above_max_parallelism_is_refused():
    with pytest.raises(InvalidParallelismError):
        redistribute_keyed_state([[]], 4, 5)
