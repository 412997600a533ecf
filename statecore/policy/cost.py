"""The cost of an epoch, ``a + b · rows``, fitted to the epochs of one parallelism.

``a`` is the fixed cost of any epoch (planning, shuffles, the manifest), ``b`` the cost of one more row. Without
separating the two, a job with back-to-back epochs would always look busy: each epoch reads the rows that arrived during
the last one, so rows and time grow together whatever the job's capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median, quantiles

import numpy as np

from statecore.policy.figures import EpochCost

FEWEST = 5
"""Fewest epochs with rows for a fit."""
_Point = tuple[float, float]  # rows and milliseconds
# Number of newest and of older epochs to fit; the cap bounds the pairwise slopes, computed every few seconds.
_NEWEST, _OLDER = 60, 40
# Smallest ratio of largest to smallest epoch: epochs of one size do not show the cost of one more row.
_SPREAD = 1.5
# Standard deviation of a normal distribution, in median absolute deviations.
_SIGMA = 1.4826
# A slope with a larger relative standard error is not used.
_TRUSTED = 0.25


@dataclass(frozen=True, slots=True)
class CostFit:
    """Fitted cost of an epoch at one parallelism.

    Attributes:
        fixed_ms: ``a``; 0 when not separated.
        row_ms: ``b``; when not separated, the cost of a row including its share of ``a``.
        separated: Whether the fit separated ``a`` and ``b``. If not, the real throughput is at least the fitted one.
        row_error: Relative standard error of ``row_ms``; 0 when not separated.
        rows: Rows of a large epoch: the 90th percentile, or the largest of the newest three if larger.
        error: Typical relative error of the fit.
        epochs: Number of epochs fitted, without outliers.

    """

    fixed_ms: float
    row_ms: float
    separated: bool
    row_error: float
    rows: float
    error: float
    epochs: int


def fit_cost(epochs: Sequence[EpochCost]) -> CostFit | None:
    """Fit the epochs of one parallelism, in commit order; return None when there are too few.

    Outliers (epochs without state in memory, or with a busy disk) are those far from the Theil-Sen line, which
    tolerates a quarter of them; least squares fits the rest. Errors are relative to the cost, because long epochs vary
    by more than short ones. Epochs without rows are ignored: they skip work, so they do not show ``a``.
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
    """Return the newest epochs and older ones of every size, because the newest may all be of one size."""
    older, newest = sorted(points[:-_NEWEST]), points[-_NEWEST:]
    count = min(_OLDER, len(older))
    return [older[index * (len(older) - 1) // max(1, count - 1)] for index in range(count)] + list(newest)


def _theil_sen(points: Sequence[_Point]) -> tuple[float, float] | None:
    """Return the Theil-Sen line (``a``, ``b``), or None when the epochs' sizes are too close."""
    if not _spread(points):
        return None
    rows, costs = np.array(points).T
    first, second = np.triu_indices(len(points), 1)
    wider = rows[second] - rows[first]
    apart = np.abs(wider) > 0.1 * np.ptp(rows)
    row_ms = max(0.0, float(np.median((costs[second] - costs[first])[apart] / wider[apart])))
    return max(0.0, float(np.median(costs - row_ms * rows))), row_ms


def _inliers(points: Sequence[_Point], fixed_ms: float, row_ms: float) -> list[_Point]:
    off = [_off(point, fixed_ms, row_ms) for point in points]
    # The floor keeps points near the line when half of the points lie exactly on it.
    limit = max(3 * _SIGMA * median(off), 0.05)
    return [point for point, each in zip(points, off, strict=True) if each <= limit]


def _least_squares(points: Sequence[_Point]) -> tuple[float, float, float] | None:
    """Return ``a``, ``b`` and the relative standard error of ``b``; None when the slope is not positive."""
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
