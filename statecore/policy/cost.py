"""What an epoch costs: ``a + b · rows``, fitted to the epochs of one parallelism.

``a`` is what any epoch costs however little it reads (planning, shuffles, the manifest), ``b`` what one more row costs.
Without the two apart, a job whose epochs follow each other would always look busy: each one takes what came during
the last, so rows and time grow together whatever the job could do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import median, quantiles

from statecore.policy.figures import EpochCost

FEWEST = 5
"""Epochs with rows below which nothing is said."""
_Point = tuple[float, float]  # rows and milliseconds
# So many of the newest, and so many of those before. The slopes of all pairs are computed every few seconds.
_NEWEST, _OLDER = 60, 40
# Epochs of nearly one size say nothing about what one more row costs.
_SPREAD = 1.5
# A normal distribution's standard deviation, in median absolute deviations.
_SIGMA = 1.4826
# Relative standard error from which on a slope is no better than none.
_TRUSTED = 0.25


@dataclass(frozen=True, slots=True)
class CostFit:
    """What an epoch costs at one parallelism.

    Attributes:
        fixed_ms: ``a``; 0 when the two could not be told apart.
        row_ms: ``b``; when they could not be told apart, what a row costs with its share of ``a``.
        separated: Whether they could be told apart. If not, the job can do at least what the fit says.
        row_error: Standard error of ``row_ms``, as a part of it; 0 when the two could not be told apart.
        rows: Size of a large epoch: the 90th percentile, or more where one of the newest three was larger.
        error: Typical error of the fit, as a part of what an epoch costs.
        epochs: How many were fitted, outliers left out.

    """

    fixed_ms: float
    row_ms: float
    separated: bool
    row_error: float
    rows: float
    error: float
    epochs: int


def fit_cost(epochs: Sequence[EpochCost]) -> CostFit | None:
    """Fit epochs, all of one parallelism, in the order of their commits; None when there are too few.

    Least squares on what is left when outliers are out: epochs that met no state in memory, or a busy disk. Which ones
    those are, the Theil-Sen line says, which a quarter of wild epochs does not move. All errors are parts of the cost:
    a long epoch is off by more than a short one. Epochs without rows are ticks; they skip work that others do, so they
    say nothing about ``a``.
    """
    points = [(float(each.rows), max(1.0, each.duration_ms)) for each in epochs if each.rows > 0]
    if len(points) < FEWEST:
        return None
    sizes = [rows for rows, _ in points[-_NEWEST:]]
    points = _sample(points)
    large = max(quantiles(sizes, n=10, method="inclusive")[-1], *sizes[-3:])
    line = _theil_sen(points)
    if line is not None:
        kept = _inliers(points, *line)
        fitted = _least_squares(kept)
        if fitted is not None and fitted[2] < _TRUSTED:
            fixed_ms, row_ms, row_error = fitted
            return CostFit(fixed_ms, row_ms, True, row_error, large, _error(kept, fixed_ms, row_ms), len(kept))
    row_ms = median(cost / rows for rows, cost in points)
    kept = _inliers(points, 0.0, row_ms)
    return CostFit(0.0, row_ms, False, 0.0, large, _error(kept, 0.0, row_ms), len(kept))


def _sample(points: Sequence[_Point]) -> list[_Point]:
    """Return the newest epochs, and of those before some of every size: lately they may all have been alike."""
    older, newest = sorted(points[:-_NEWEST]), points[-_NEWEST:]
    count = min(_OLDER, len(older))
    return [older[index * (len(older) - 1) // max(1, count - 1)] for index in range(count)] + list(newest)


def _theil_sen(points: Sequence[_Point]) -> tuple[float, float] | None:
    """Return the line through the points, or None where their sizes are too close for one."""
    if not _spread(points):
        return None
    sizes = [rows for rows, _ in points]
    apart = 0.1 * (max(sizes) - min(sizes))
    slopes = [(d - c) / (s - r) for (r, c), (s, d) in combinations(points, 2) if abs(s - r) > apart]
    row_ms = max(0.0, median(slopes))
    return max(0.0, median(cost - row_ms * rows for rows, cost in points)), row_ms


def _inliers(points: Sequence[_Point], fixed_ms: float, row_ms: float) -> list[_Point]:
    off = [_off(point, fixed_ms, row_ms) for point in points]
    # With half of the points on the line exactly, the others are no outliers for lying a little beside it.
    limit = max(3 * _SIGMA * median(off), 0.05)
    return [point for point, each in zip(points, off, strict=True) if each <= limit]


def _least_squares(points: Sequence[_Point]) -> tuple[float, float, float] | None:
    """Return ``a``, ``b`` and the relative standard error of ``b``, or None where rows seem to cost nothing."""
    if len(points) < FEWEST or not _spread(points):
        return None
    weighted = [(1 / cost**2, (rows, cost)) for rows, cost in points]
    whole = sum(weight for weight, _ in weighted)
    mean_rows = sum(weight * rows for weight, (rows, _) in weighted) / whole
    mean_cost = sum(weight * cost for weight, (_, cost) in weighted) / whole
    squares = sum(weight * (rows - mean_rows) ** 2 for weight, (rows, _) in weighted)
    row_ms = sum(weight * (rows - mean_rows) * (cost - mean_cost) for weight, (rows, cost) in weighted) / squares
    fixed_ms = mean_cost - row_ms * mean_rows
    if fixed_ms < 0:
        through_zero = sum(weight * rows * rows for weight, (rows, _) in weighted)
        fixed_ms, row_ms = 0.0, sum(weight * rows * cost for weight, (rows, cost) in weighted) / through_zero
    if row_ms <= 0:
        return None
    noise = sum(weight * (cost - fixed_ms - row_ms * rows) ** 2 for weight, (rows, cost) in weighted)
    return fixed_ms, row_ms, sqrt(noise / (len(points) - 2) / squares) / row_ms


def _spread(points: Sequence[_Point]) -> bool:
    sizes = [rows for rows, _ in points]
    return max(sizes) >= _SPREAD * min(sizes)


def _off(point: _Point, fixed_ms: float, row_ms: float) -> float:
    rows, cost = point
    return abs(cost - fixed_ms - row_ms * rows) / cost


def _error(points: Sequence[_Point], fixed_ms: float, row_ms: float) -> float:
    return _SIGMA * median(_off(point, fixed_ms, row_ms) for point in points)
