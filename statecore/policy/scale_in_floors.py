"""The smallest sizes that a scale-in may choose, because of earlier arrivals that may come again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from statecore.policy.arrivals import TREND_MS, WINDOW_MS, late_s, since
from statecore.policy.needs import Needs
from statecore.policy.patterns import last_turn

# Rows may be late for this much longer at a smaller size.
_ABOUT_AS_LATE_S = 20.0
# Arrivals of this time are no new rate yet, but may become one.
_JUST_NOW_MS = 30_000
# The start of the recent arrivals; long enough that a pile in it soon ceases to count.
_FIRST_MS = 120_000
# A load that was high for this long is expected to return, until it has been low this many times as long as before.
_HIGH_MS, _ABOUT_AS_LONG = 600_000, 1.25


def kept(needs: Needs) -> int:
    """Return the smallest size that suffices for the arrivals of ten minutes, for piles and for recurring loads."""
    return max(for_arrivals(needs, WINDOW_MS), _for_piles(needs), _for_return(needs))


def for_arrivals(needs: Needs, within_ms: int) -> int:
    """Return the smallest size at which recent arrivals would have been late about as briefly as at the current one."""
    arrived = since(needs.figures.arrived, needs.figures.at_ms - within_ms)

    def late(size: int) -> float:
        return late_s(arrived, needs.measured.rows_per_second(size), needs.may_wait_s())

    most_s = late(needs.now) + _ABOUT_AS_LATE_S
    return next((size for size in needs.sizes if size < needs.now and late(size) <= most_s), needs.now)


def has_fallen(needs: Needs, parallelism: int) -> bool:
    """Return whether the load 25 minutes ago exceeded a size's throughput: it will soon cease to count."""
    arrived = since(needs.figures.arrived, needs.figures.at_ms - TREND_MS)
    first = [rows for at_ms, rows in arrived if at_ms - arrived[0][0] <= _FIRST_MS]
    can = needs.measured.rows_per_second(parallelism) * _FIRST_MS / 1000
    return bool(first) and first[-1] - first[0] > can


def just_now(needs: Needs) -> int:
    """Return the smallest size with headroom for the arrivals of the last half minute; the current one if none."""
    arrived = needs.figures.arrived
    if not arrived:
        return needs.sizes[0]
    to_ms, rows = arrived[-1]
    from_ms, before = next((each for each in reversed(arrived) if to_ms - each[0] >= _JUST_NOW_MS), arrived[0])
    arriving = 1000 * (rows - before) / max(1, to_ms - from_ms)
    return next((size for size in needs.sizes if needs.with_headroom(size) >= arriving), needs.now)


def _for_piles(needs: Needs) -> int:
    """Return the smallest size at which piles would have been late no longer than at the current one."""

    def late(size: int) -> float:
        return sum(spell.seconds for spell in needs.late_in_piles(size))

    most_s = late(needs.now)
    return _down_to(needs, lambda size: late(size) <= most_s)


def _for_return(needs: Needs) -> int:
    """Return the smallest size that suffices for a recurring load when it returns.

    A smaller one would be rescaled each time.
    """

    def suffices(size: int) -> bool:
        turn = last_turn(needs.figures.arrived, needs.bears(size))
        return turn.high_ms < _HIGH_MS or turn.low_ms >= _ABOUT_AS_LONG * turn.before_ms

    return _down_to(needs, suffices)


def _down_to(needs: Needs, suffices: Callable[[int], bool]) -> int:
    """Return the smallest size such that it and all sizes up to the current one suffice."""
    smaller = [size for size in needs.sizes if size < needs.now]
    return min(takewhile(suffices, reversed(smaller)), default=needs.now)
