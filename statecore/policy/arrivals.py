"""The arrival rate of rows, from the number of rows arrived at several times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from statistics import median_low

from statecore.policy.figures import EpochCost

WINDOW_MS = 600_000
_SPANS = 12
# The backlog is measured every five seconds: shorter spans would show that rhythm instead of the arrivals.
_SHORTEST_MS = 15_000
# A backlog of at least a minute's arrivals is a pile from an outage.
_PILE_S = 60

Arrived = Sequence[tuple[int, float]]
"""(time in ms, rows arrived until then, read or waiting), in order of time."""


def arriving(arrived: Arrived, epochs: Sequence[EpochCost], waiting: int | None, now_ms: int) -> float | None:
    """Return the rows that arrive per second; None before there are enough measurements.

    After a long outage, the last ten minutes show nothing but one pile. The rate from before the outage is then the
    best estimate.
    """
    lately = arrival_rate(arrived, now_ms)
    if lately != 0 or not waiting:
        return lately
    earlier = [epoch for epoch in epochs if epoch.committed_ms < now_ms - WINDOW_MS]
    read = accumulate(float(epoch.rows) for epoch in earlier)
    points = [(epoch.committed_ms, rows) for epoch, rows in zip(earlier, read, strict=True)]
    before = arrival_rate(points, points[-1][0]) if points else None
    return before if before is not None and waiting >= before * _PILE_S else lately


def arrival_rate(arrived: Arrived, now_ms: int) -> float | None:
    """Return the rows that arrive per second: the median over spans of the last ten minutes; None before the first.

    The median ignores a pile that arrives at once after an outage: it counts as backlog. So a source that delivers a
    pile now and then may have a rate of 0.
    """
    points = [(at_ms, rows) for at_ms, rows in arrived if at_ms >= now_ms - WINDOW_MS]
    if not points or points[-1][0] - points[0][0] < _SHORTEST_MS:
        return None
    begin_ms, end_ms = points[0][0], points[-1][0]
    spans = min(_SPANS, (end_ms - begin_ms) // _SHORTEST_MS)
    edges = [begin_ms + (end_ms - begin_ms) * index / spans for index in range(spans + 1)]
    totals = [_at(points, edge) for edge in edges]
    seconds = (end_ms - begin_ms) / spans / 1000
    return median_low(max(0.0, after - before) / seconds for before, after in pairwise(totals))


def _at(points: Arrived, at_ms: float) -> float:
    """Return the rows arrived at a time, interpolated between the points around it."""
    after = min(bisect_left(points, at_ms, key=itemgetter(0)), len(points) - 1)
    (to_ms, to_rows), (from_ms, from_rows) = points[after], points[max(0, after - 1)]
    return to_rows if to_ms == from_ms else from_rows + (to_rows - from_rows) * (at_ms - from_ms) / (to_ms - from_ms)
