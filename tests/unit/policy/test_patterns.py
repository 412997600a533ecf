"""Piles, and loads that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest

from statecore.policy.patterns import Turn, last_turn, piles

STEP_S = 30


def arrived(rates: Sequence[float]) -> list[tuple[int, float]]:
    """Rows that arrived by the end of each half minute, at rates in rows a second."""
    rows = accumulate((STEP_S * rate for rate in rates), initial=0.0)
    return [(1_000 * STEP_S * at, total) for at, total in enumerate(rows)]


def rates(points: Sequence[tuple[int, float]]) -> list[float]:
    """The rates of such arrivals."""
    return [(after - before) / STEP_S for (_, before), (_, after) in pairwise(points)]


def test_what_comes_for_longer_than_two_minutes_is_a_load_and_no_pile() -> None:
    pile, load = [400.0] * 4, [400.0] * 5
    known = [10.0, *pile, 100.0, 10.0, *load, 10.0]
    assert rates(piles(arrived(known), 100.0, 60.0)) == [10.0, *pile, 100.0, 10.0, *[100.0] * 5, 10.0]
    # Measurements are never quite so far apart as wanted.
    late = [(round(at_ms * 1.01), rows) for at_ms, rows in arrived(known)]
    assert piles(late, 100.0, 60.0)[5][1] == late[5][1]


@pytest.mark.parametrize(("limit_s", "rate"), [(60.0, 310.0), (70.0, 100.0)])
def test_what_makes_no_row_late_by_itself_is_no_pile(limit_s: float, rate: float) -> None:
    # In 30 s, 63 s more of work than is done.
    assert rates(piles(arrived([10.0, 310.0, 10.0]), 100.0, limit_s)) == [10.0, rate, 10.0]


def test_without_arrivals_there_is_no_pile_and_no_turn() -> None:
    for few in ([], arrived([])):
        assert piles(few, 1.0, 60.0) == few and last_turn(few, 1.0) == Turn()


@pytest.mark.parametrize(
    ("minutes", "turn"),
    [
        ([(10, 8), (200, 10), (10, 6)], Turn(360_000, 600_000, 480_000)),
        ([(200, 4), (10, 8), (200, 10), (10, 6)], Turn(360_000, 600_000, 480_000)),
        ([(200, 10), (10, 6)], Turn(360_000, 600_000, 0)),
        ([(10, 6)], Turn(360_000, 0, 0)),
        # Spikes, and a lull.
        (
            [(10, 8), (200, 2), (10, 4), (200, 6), (10, 2), (200, 4), (10, 4), (200, 2), (10, 4)],
            Turn(6 * 10**5, 72 * 10**4, 84 * 10**4),
        ),
        # It is high now.
        ([(10, 8), (200, 10)], Turn()),
    ],
)
def test_a_turn_is_what_was_low_and_high_and_low_last(minutes: list[tuple[float, int]], turn: Turn) -> None:
    known = [rate for rate, lasts in minutes for _ in range(2 * lasts)]
    assert last_turn(arrived(known), 100.0) == turn
