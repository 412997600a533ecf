"""Patterns of arrivals that may repeat: piles, and recurring loads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from statecore.policy.arrivals import STEP_MS, Arrived

PILES_MS = 3_300_000
"""Piles closer together than this are a pattern; piles an hour apart are not."""
# Faster arrivals for longer are a load, not a pile. A measured span may begin before the pile does.
_LONGEST_PILE_MS = 120_000 + STEP_MS
# Means over this time decide whether a load is high or low.
_MEAN_MS = 120_000


@dataclass(frozen=True, slots=True)
class Turn:
    """Durations in ms of a recurring load: low now, high before, and low before that; 0 for none."""

    low_ms: int = 0
    high_ms: int = 0
    before_ms: int = 0


def piles(arrived: Arrived, rate: float, limit_s: float) -> Arrived:
    """Return the arrivals, capped at a rate except for piles.

    A pile is a burst of at most two minutes that alone makes rows late.

    Args:
        arrived: Arrivals.
        rate: Rows per second that a job processes.
        limit_s: How long rows may wait.

    """
    kept = [(at_ms, 0.0) for at_ms, _ in arrived[:1]]
    spans = [(to_ms - from_ms, after - before) for (from_ms, before), (to_ms, after) in pairwise(arrived)]
    for is_faster, run in groupby(spans, key=lambda span: span[1] > rate * span[0] / 1000):
        alike = list(run)
        took_ms, rows = sum(ms for ms, _ in alike), sum(rows for _, rows in alike)
        is_pile = took_ms <= _LONGEST_PILE_MS and rows > rate * (took_ms / 1000 + limit_s)
        for ms, came in alike:
            at_ms, before = kept[-1]
            kept.append((at_ms + ms, before + (rate * ms / 1000 if is_faster and not is_pile else came)))
    return kept


def last_turn(arrived: Arrived, rate: float) -> Turn:
    """Return for how long arrivals have been below a rate, above it before, and below it before that."""
    if not arrived:
        return Turn()
    times_ms, rows = np.array(arrived, dtype=float).T
    ends_ms = np.arange(times_ms[-1], times_ms[0] - 1, -_MEAN_MS)
    totals = np.interp(ends_ms, times_ms, rows)
    # The newest first.
    high = (totals[:-1] - totals[1:]) * 1000 / _MEAN_MS > rate
    if not len(high):
        return Turn()
    # A span that differs from both of its neighbours counts as they do.
    padded = np.pad(high, 1, mode="edge").astype(int)
    lasting = padded[:-2] + padded[1:-1] + padded[2:] >= 2
    runs = [(bool(is_high), sum(1 for _ in run) * _MEAN_MS) for is_high, run in groupby(lasting)][:3]
    return Turn() if runs[0][0] else Turn(*(ms for _, ms in runs))
