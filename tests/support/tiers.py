"""Which of many combinations ``make test`` tries; ``make nightly`` tries all."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, islice, product
from typing import Any

import pytest

from tests.support.marks import NIGHTLY


def every_value_once(*axes: Iterable[Any]) -> list[Any]:
    """Return all combinations of values as parameters, all but a few of them nightly.

    In the few, each value of each axis occurs, the values of the longest axis once: the first combination has the first
    value of each axis, the second the second, and so on, with the shorter axes begun anew.
    """
    lists = [list(axis) for axis in axes]
    longest = max(map(len, lists))
    chosen = set(zip(*(islice(cycle(range(len(axis))), longest) for axis in lists), strict=True))
    combinations = product(*map(enumerate, lists))
    return [_parameter(pairs, tuple(index for index, _ in pairs) in chosen) for pairs in combinations]


def nightly(*values: Any) -> Any:
    """Return a parameter of a test that only ``make nightly`` tries."""
    return pytest.param(*values, marks=getattr(pytest.mark, NIGHTLY), id=_id(values))


def _parameter(pairs: tuple[tuple[int, Any], ...], chosen: bool) -> Any:
    values = tuple(value for _, value in pairs)
    return pytest.param(*values, id=_id(values)) if chosen else nightly(*values)


def _id(values: Iterable[Any]) -> str:
    return "-".join(getattr(value, "__name__", str(value)) for value in values)
