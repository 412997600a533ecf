"""The sizes that a job with less to do keeps for what arrived before, and may again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from statecore.policy.arrivals import TREND_MS, WINDOW_MS, late_s, since
from statecore.policy.needs import Needs
from statecore.policy.patterns import last_turn

# How much longer a smaller size may be late.
_ABOUT_AS_LATE_S = 20.0
# What arrived in so short a time is no new rate yet, but may become one.
_JUST_NOW_MS = 30_000
# The beginning of what arrived lately; long enough that a pile there does not count for long.
_FIRST_MS = 120_000
# A load that was high for so long comes back if it was low before for about as long as it has been now.
_HIGH_MS, _ABOUT_AS_LONG = 600_000, 1.25


def kept(needs: Needs) -> int:
    """Return the smallest size that arrivals of ten minutes, piles and loads that come and go allow."""
    return max(for_arrivals(needs, WINDOW_MS), _for_piles(needs), _for_return(needs))


def for_arrivals(needs: Needs, within_ms: int) -> int:
    """Return the smallest size with which the arrivals lately would have been late no longer than with this one."""
    arrived = since(needs.figures.arrived, needs.figures.at_ms - within_ms)

    def late(size: int) -> float:
        return late_s(arrived, needs.measured.rows_per_second(size), needs.may_wait_s())

    most_s = late(needs.now) + _ABOUT_AS_LATE_S
    return next((size for size in needs.sizes if size < needs.now and late(size) <= most_s), needs.now)


def has_fallen(needs: Needs, parallelism: int) -> bool:
    """Return whether the last 25 minutes begin with more than a size can do: that is soon forgotten."""
    arrived = since(needs.figures.arrived, needs.figures.at_ms - TREND_MS)
    first = [rows for at_ms, rows in arrived if at_ms - arrived[0][0] <= _FIRST_MS]
    can = needs.measured.rows_per_second(parallelism) * _FIRST_MS / 1000
    return bool(first) and first[-1] - first[0] > can


def just_now(needs: Needs) -> int:
    """Return the smallest size with headroom for the newest half of a minute; the present one if none."""
    arrived = needs.figures.arrived
    if not arrived:
        return needs.sizes[0]
    to_ms, rows = arrived[-1]
    from_ms, before = next((each for each in reversed(arrived) if to_ms - each[0] >= _JUST_NOW_MS), arrived[0])
    arriving = 1000 * (rows - before) / max(1, to_ms - from_ms)
    return next((size for size in needs.sizes if needs.with_headroom(size) >= arriving), needs.now)


def _for_piles(needs: Needs) -> int:
    """Return the smallest size with which piles would have been late no longer than with this one."""

    def late(size: int) -> float:
        return sum(spell.seconds for spell in needs.late_in_piles(size))

    most_s = late(needs.now)
    return _down_to(needs, lambda size: late(size) <= most_s)


def _for_return(needs: Needs) -> int:
    """Return the smallest size for what will come back, if a load comes and goes.

    A size that would be short then would be changed each time that it comes and goes.
    """

    def suffices(size: int) -> bool:
        turn = last_turn(needs.figures.arrived, needs.bears(size))
        return turn.high_ms < _HIGH_MS or turn.low_ms >= _ABOUT_AS_LONG * turn.before_ms

    return _down_to(needs, suffices)


def _down_to(needs: Needs, suffices: Callable[[int], bool]) -> int:
    """Return the smallest size such that it and all between it and the present one suffice."""
    smaller = [size for size in needs.sizes if size < needs.now]
    return min(takewhile(suffices, reversed(smaller)), default=needs.now)
