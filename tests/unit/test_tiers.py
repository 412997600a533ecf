"""The combinations that ``make test`` tries have every value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiers import every_value_once

axes = st.lists(st.integers(1, 7).map(range), min_size=1, max_size=3)


@given(axes)
def test_each_value_of_each_axis_is_tried_and_those_of_the_longest_once(axes: list[range]) -> None:
    parameters = every_value_once(*axes)
    chosen = [each.values for each in parameters if not each.marks]
    assert [set(values) for values in zip(*chosen, strict=True)] == [set(axis) for axis in axes]
    assert len(chosen) == max(map(len, axes))


@given(axes)
def test_no_combination_is_lost(axes: list[range]) -> None:
    parameters = [each.values for each in every_value_once(*axes)]
    assert len(set(parameters)) == len(parameters)
    size = 1
    for axis in axes:
        size *= len(axis)
    assert len(parameters) == size
