"""Key-group arithmetic, against Flink's recorded values and by its properties."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import InvalidParallelismError
from statecore.model.key_groups import (
    KeyGroupRange,
    default_max_parallelism,
    key_group_range,
    subtask_for_key_group,
)
from tests.support.golden import golden


@pytest.mark.parametrize("case", golden("key_group_ranges"), ids=lambda case: case["id"])
def test_ranges_and_owners_are_flinks(case):
    groups, parallelism = case["max_parallelism"], case["parallelism"]
    ranges = [key_group_range(groups, parallelism, i) for i in range(parallelism)]
    assert [[r.start, r.end] for r in ranges] == case["ranges"]
    for group, owner in enumerate(case.get("owner", [])):
        assert subtask_for_key_group(groups, parallelism, group) == owner


def test_default_max_parallelism_is_flinks():
    for case in golden("default_max_parallelism"):
        if case["raises"]:
            with pytest.raises(InvalidParallelismError):
                default_max_parallelism(case["parallelism"])
        else:
            assert default_max_parallelism(case["parallelism"]) == case["expected"], case["id"]


@given(st.integers(1, 32768).flatmap(lambda g: st.tuples(st.just(g), st.integers(1, min(g, 500)))))
def test_ranges_follow_each_other_and_agree_with_the_owners(sizes):
    groups, parallelism = sizes
    ranges = [key_group_range(groups, parallelism, i) for i in range(parallelism)]
    assert ranges[0].start == 0
    assert ranges[-1].end == groups - 1
    assert all(a.end + 1 == b.start for a, b in pairwise(ranges))
    lengths = {len(r) for r in ranges}
    assert max(lengths) - min(lengths) <= 1
    for subtask, key_groups in enumerate(ranges):
        for group in (key_groups.start, key_groups.end):
            assert subtask_for_key_group(groups, parallelism, group) == subtask


@pytest.mark.parametrize("bad", [0, -1, 32769, True, 4.0, "4", None])
def test_a_max_parallelism_out_of_bounds_is_refused(bad):
    with pytest.raises(InvalidParallelismError, match="max parallelism"):
        key_group_range(bad, 1, 0)
    with pytest.raises(InvalidParallelismError, match="max parallelism"):
        subtask_for_key_group(bad, 1, 0)


@pytest.mark.parametrize("bad", [0, -1, 129, True, 4.0, "4", None])
def test_a_parallelism_beyond_max_parallelism_is_refused(bad):
    with pytest.raises(InvalidParallelismError, match="parallelism"):
        key_group_range(128, bad, 0)
    with pytest.raises(InvalidParallelismError, match="parallelism"):
        subtask_for_key_group(128, bad, 0)


@pytest.mark.parametrize("bad", [True, 4.0, "4", None])
def test_default_max_parallelism_takes_integers_only(bad):
    with pytest.raises(InvalidParallelismError):
        default_max_parallelism(bad)


@pytest.mark.parametrize("bad", [-1, 4, True, 1.0])
def test_a_subtask_or_key_group_that_is_not_there_is_refused(bad):
    with pytest.raises(InvalidParallelismError, match="subtask"):
        key_group_range(8, 4, bad)
    with pytest.raises(InvalidParallelismError, match="key group"):
        subtask_for_key_group(4, 4, bad)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (0, -1), (True, 3), (0, 3.0), ("0", 3), (None, 1)])
def test_a_range_that_is_no_range_is_refused(start, end):
    with pytest.raises(InvalidParallelismError, match="start <= end"):
        KeyGroupRange(start, end)


def test_a_range_counts_holds_and_walks_through_its_groups():
    key_groups = KeyGroupRange(3, 5)
    assert len(key_groups) == 3
    assert list(key_groups) == [3, 4, 5]
    assert 3 in key_groups
    assert 5 in key_groups
    assert 2 not in key_groups
    assert 6 not in key_groups
    assert "3" not in key_groups


ranges = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda p: KeyGroupRange(min(p), max(p)))


@given(ranges, ranges)
def test_an_intersection_holds_what_both_hold(a, b):
    both = set(a) & set(b)
    shared = a.intersect(b)
    assert (set(shared) if shared else set()) == both
    assert shared == b.intersect(a)
