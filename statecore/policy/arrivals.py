"""The arrival of rows: its rate now, and whether a throughput would have kept up with it lately."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import itemgetter
from statistics import fmean, median_low

import numpy as np
import numpy.typing as npt

from statecore.policy.figures import EpochCost

Rates = npt.NDArray[np.float64]

WINDOW_MS = 600_000
"""The current rate is measured over at most this time."""
TREND_MS = 1_500_000
"""Noise, and trends that it hides, are measured over this time."""
HISTORY_MS = 4_800_000
"""Arrivals are recorded for this time."""
STEP_MS = 15_000
"""The backlog is measured every five seconds: shorter spans would show that rhythm instead of the arrivals."""
# A backlog of at least a minute's arrivals is a pile from an outage.
_PILE_S = 60
# Fewest newest spans that show a new rate, and the factor by which they exceed all earlier ones.
_NEW_SPANS = 4
_NEW_RATE = 1.1
# If the newest span has less than this share of the new rate, that rate is over.
_LASTS = 0.6
_EXCEPTIONS = 8  # one of so many spans may be lower
# A trend: newest spans, and the share of their pairs (less those that go the other way) that must follow it.
_TRENDS = ((8, 0.95), (40, 0.6))
_TREND_SPANS = 12
# The same over 25 minutes, for a rise that noise hides in ten; chance gives a fifth of that share.
_LONG_TREND = (80, 0.35)
_LONG_SPANS = 8
# A rate held in every two minutes of so many spans (five minutes) is no spike.
_LASTING_SPANS = 20
# Fewest pairs of two minutes for a measurement of noise, and its upper limit, as a share of the rate.
_FEWEST_PAIRS, _MOST_NOISE = 20, 0.5
# Standard deviation of a normal distribution, in median absolute differences of two of its values.
_SIGMA = 1.4826 / 2**0.5

Arrived = Sequence[tuple[int, float]]
"""(time in ms, rows arrived until then, read or waiting), in order of time."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """How rows arrive now.

    Attributes:
        rate: Rows per second; None before there are enough measurements.
        rising: Rise of the rate, in rows per second per second; 0 if it does not rise steadily.
        noise: Standard deviation of the rate over two minutes around its trend, as a share of the rate.

    """

    rate: float | None = None
    rising: float = 0.0
    noise: float = 0.0


def arriving(arrived: Arrived, epochs: Sequence[EpochCost], waiting: int | None, now_ms: int) -> Arriving:
    """Return how rows arrive.

    - Usually the rate is the median of the two-minute means of the last ten minutes. It ignores a pile that arrives at
      once after an outage: that is backlog. A source that delivers only piles may have a rate of 0.
    - A rate above all earlier ones for a minute is the new rate; so is one below all earlier ones for two minutes.
    - If the rate rises or falls steadily, it is the newest point of the trend.
    - If it rises unsteadily, the median would lag by five minutes. The rate is then at least that of the 25-minute
      trend, and at least the smallest two-minute mean of the last five minutes.
    - If the last ten minutes show only the pile after a long outage, it is the rate before the outage.
    """
    lately = replace(_arriving(arrived, now_ms), noise=_noise(arrived, now_ms))
    if lately.rate != 0 or not waiting:
        return lately
    earlier = [epoch for epoch in epochs if epoch.committed_ms < now_ms - WINDOW_MS]
    read = accumulate(float(epoch.rows) for epoch in earlier)
    points = [(epoch.committed_ms, rows) for epoch, rows in zip(earlier, read, strict=True)]
    before = _arriving(points, points[-1][0]) if points else Arriving()
    return before if before.rate is not None and waiting >= before.rate * _PILE_S else lately


def _arriving(arrived: Arrived, now_ms: int) -> Arriving:
    rates = _rates(arrived, now_ms)
    if not len(rates):
        return Arriving()
    spans = min(len(rates), _LONG_SPANS)
    # Mean rates over two minutes, one from each span on.
    means = np.convolve(rates, np.full(spans, 1 / spans), mode="valid")
    level = _newest_level(rates)
    slope = _slope(level)
    if not slope:
        hidden = _hidden_rise(arrived, now_ms)
        lasting = means[_LONG_SPANS - 1 - _LASTING_SPANS :].min() if len(rates) >= _LASTING_SPANS else 0.0
        return Arriving(max(_usual(level), float(lasting), hidden.rate or 0.0), hidden.rising)
    # The median of the newest spans is the rate in their middle.
    newest = level[-_LONG_SPANS:]
    rate = max(0.0, median_low(newest) + slope * (len(newest) - 1) / 2)
    return Arriving(rate, max(0.0, slope) * 1000 / STEP_MS)


def _hidden_rise(arrived: Arrived, now_ms: int) -> Arriving:
    """Return the rate and its rise over 25 minutes, for a rise that noise hides in ten."""
    level = _newest_level(_rates(arrived, now_ms, TREND_MS))
    slope = _slope(level, (_LONG_TREND,)) if len(level) >= _LONG_TREND[0] else 0.0
    if slope <= 0:
        return Arriving()
    return Arriving(median_low(level) + slope * (len(level) - 1) / 2, slope * 1000 / STEP_MS)


def _usual(level: Sequence[float]) -> float:
    """Return the median of the two-minute means, at most the mean of all.

    If rows come in clumps, the median of shorter spans says little. Piles raise the mean, chance raises the median.
    """
    # A pile affects as many means as a mean has spans; they must be few of all.
    spans = min(_LONG_SPANS, max(1, len(level) // 5))
    means = np.convolve(level, np.full(spans, 1 / spans), mode="valid")
    return min(float(np.median(means)), fmean(level))


def _newest_level(rates: Rates) -> list[float]:
    """Return the rates since the rate changed to another level; all of them when it did not."""
    known = [float(rate) for rate in rates]
    most, fewest = list(accumulate(known, max)), list(accumulate(known, min))
    for first in range(len(known) - _LONG_SPANS, _NEW_SPANS - 1, -1):
        if max(known[first:]) * _NEW_RATE < fewest[first - 1]:
            return known[first:]
    for first in range(len(known) - _NEW_SPANS, _NEW_SPANS - 1, -1):
        least = _NEW_RATE * most[first - 1]
        lasts = known[-1] > max(least, _LASTS * median_low(known[first:]))
        if lasts and sum(rate <= least for rate in known[first:]) * _EXCEPTIONS <= len(known) - first:
            return known[first:]
    return known


def _slope(rates: Sequence[float], trends: Sequence[tuple[int, float]] = _TRENDS) -> float:
    """Return the change of the rate from span to span; 0 where it neither rises nor falls steadily."""
    for spans, steady in trends:
        newest = np.array(rates[-spans:])
        if len(newest) < min(spans, _TREND_SPANS):
            continue
        first, second = np.triu_indices(len(newest), 1)
        slopes = (newest[second] - newest[first]) / (second - first)
        # The median slope is that of Theil and Sen, the mean of the signs is Kendall's tau.
        if abs(np.sign(slopes).mean()) >= steady:
            return float(np.median(slopes))
    return 0.0


def _noise(arrived: Arrived, now_ms: int) -> float:
    """Return the noise by the typical difference of adjacent two-minute means; spikes and new levels are outliers."""
    rates = _rates(arrived, now_ms, TREND_MS)
    if len(rates) < 2 * _LONG_SPANS + _FEWEST_PAIRS:
        return 0.0
    means = np.convolve(rates, np.full(_LONG_SPANS, 1 / _LONG_SPANS), mode="valid")
    differences = means[_LONG_SPANS:] - means[:-_LONG_SPANS]
    around = float(np.median(np.abs(differences - np.median(differences))))
    return min(_MOST_NOISE, _SIGMA * around / max(float(np.median(rates)), 1e-9))


def _rates(arrived: Arrived, now_ms: int, window_ms: int = WINDOW_MS) -> Rates:
    """Return the rates of spans of equal length, over the last ``window_ms``."""
    points = since(arrived, now_ms - window_ms)
    if not points or points[-1][0] - points[0][0] < STEP_MS:
        return np.empty(0)
    begin_ms, end_ms = points[0][0], points[-1][0]
    spans = (end_ms - begin_ms) // STEP_MS
    times, rows = np.array(points, dtype=float).T
    totals = np.interp(np.linspace(begin_ms, end_ms, spans + 1), times, rows)
    rates: Rates = np.maximum(np.diff(totals), 0.0) * spans * 1000 / (end_ms - begin_ms)
    return rates


def history(arrived: Arrived, now_ms: int) -> tuple[tuple[int, float], ...]:
    """Return the measurements of the last ``HISTORY_MS``, thinned to one per ``STEP_MS``."""
    kept: list[tuple[int, float]] = []
    for at_ms, rows in since(arrived, now_ms - HISTORY_MS):
        if not kept or at_ms - kept[-1][0] >= STEP_MS:
            kept.append((at_ms, rows))
    return tuple(kept)


def since(arrived: Arrived, from_ms: int) -> Arrived:
    """Return the measurements since a time."""
    return arrived[bisect_left(arrived, from_ms, key=itemgetter(0)) :]


@dataclass(frozen=True, slots=True)
class Spell:
    """A spell of late rows: its start, and the seconds in which rows were late."""

    began_ms: int
    seconds: float


def late_spells(arrived: Arrived, rate: float, limit_s: float) -> list[Spell]:
    """Return the spells in which rows would have waited longer than a limit at ``rate`` rows processed per second."""
    return _played(arrived, rate, limit_s)[0]


def late_s(arrived: Arrived, rate: float, limit_s: float) -> float:
    """Return the seconds in which rows would have been late, including the drain of those still waiting at the end."""
    spells, waiting = _played(arrived, rate, limit_s)
    return sum(spell.seconds for spell in spells) + (max(0.0, waiting / rate - limit_s) if waiting else 0.0)


def _played(arrived: Arrived, rate: float, limit_s: float) -> tuple[list[Spell], float]:
    """Return the spells in which rows would have been late, and the rows that would wait at the end."""
    spells: list[Spell] = []
    if not arrived or rate <= 0:
        return spells, 0.0
    done, lag_s = arrived[0][1], 0.0
    for (from_ms, _), (to_ms, rows) in pairwise(arrived):
        done = min(rows, done + rate * (to_ms - from_ms) / 1000)
        # The oldest waiting row arrived when as many rows had arrived as are done now.
        lag_before_s, lag_s = lag_s, (to_ms - _when(arrived, done)) / 1000 if done < rows else 0.0
        if max(lag_before_s, lag_s) <= limit_s:
            continue
        if lag_before_s <= limit_s:
            spells.append(Spell(from_ms, 0.0))
        # The lag changes evenly, so it is beyond the limit for this share of the time.
        share = min(1.0, (max(lag_before_s, lag_s) - limit_s) / max(abs(lag_s - lag_before_s), 1e-9))
        spells[-1] = replace(spells[-1], seconds=spells[-1].seconds + share * (to_ms - from_ms) / 1000)
    return spells, arrived[-1][1] - done


def _when(points: Arrived, rows: float) -> float:
    """Return the time in ms at which a number of rows had arrived."""
    after = min(bisect_left(points, rows, key=itemgetter(1)), len(points) - 1)
    (to_ms, to_rows), (from_ms, from_rows) = points[after], points[max(0, after - 1)]
    if to_rows == from_rows:
        return to_ms
    return from_ms + (to_ms - from_ms) * (rows - from_rows) / (to_rows - from_rows)
