"""The cost of an epoch, ``a + b · rows``, fitted to the epochs of one parallelism.

``a`` is the fixed cost of any epoch (planning, shuffles, the manifest), ``b`` the cost of one more row. Without
separating the two, a job with back-to-back epochs would always look busy: each epoch reads the rows that arrived during
the last one, so rows and time grow together whatever the job's capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import sqrt
from statistics import median

import numpy as np
import numpy.typing as npt

from statecore.policy.figures import EpochCost

FEWEST = 5
"""Fewest epochs with rows for a fit, unless they are long."""
# This many suffice if they took this long together: epochs of a job that falls behind grow, and a rescale that waits
# for the fifth comes hours late.
_FEWEST_LONG, _LONG_MS = 3, 120_000
_Floats = npt.NDArray[np.float64]
# Number of newest and of older epochs to fit; the cap bounds the pairwise slopes, computed every few seconds.
_NEWEST, _OLDER = 60, 40
# Older epochs to choose from: sorting thousands every few seconds would cost too much.
_SORTED = 400
# Smallest ratio of largest to smallest epoch: epochs of one size do not show the cost of one more row.
_SPREAD = 1.5
# Standard deviation of a normal distribution, in median absolute deviations.
_SIGMA = 1.4826
# A slope with a larger relative standard error is not used.
_TRUSTED = 0.25
# A run of newest epochs off by more than this factor shows that the cost has changed.
_CHANGED = 1.25
_SAME = 4  # one in so many of them may cost as before
# Epochs of similar cost and of the first duration together prove that the cost per row rose, if two of them have more
# rows than usual, in growing numbers: the job falls behind; a cold or stuck epoch has the usual rows. One epoch of the
# second duration proves that the cost fell: no accident makes an epoch fast.
_DEARER_MS, _CHEAPER_MS = 60_000, 600_000
_USUAL_ROWS = 0.9  # quantile
# Relative error assumed for a fit to one or two epochs, whose own error is unknown.
_UNSURE = 0.25


@dataclass(frozen=True, slots=True)
class CostFit:
    """Fitted cost of an epoch at one parallelism.

    Attributes:
        fixed_ms: ``a``; when not separated, the time outside of all phases, or 0.
        row_ms: ``b``; when not separated, the cost of a row including its share of ``a``, less ``fixed_ms``.
        separated: Whether the fit separated ``a`` and ``b``. If not, the real throughput is at least the fitted one.
        row_error: Relative standard error of ``row_ms``; 0 when not separated.
        rows: Rows of a large epoch: the 90th percentile, or the largest of the newest three if larger.
        error: Typical relative error of the fit.
        epochs: Number of epochs fitted, without outliers.
        phased: Whether the phases of its epochs are known.
        read, work, publish: Share (0 to 1) of ``row_ms`` in each phase; the rest is in no phase.
        work_error: Relative standard error of ``row_ms * work``.

    """

    fixed_ms: float
    row_ms: float
    separated: bool
    row_error: float
    rows: float
    error: float
    epochs: int
    phased: bool = False
    read: float = 0.0
    work: float = 1.0
    publish: float = 0.0
    work_error: float = 0.0

    def cost_ms(self, rows: float) -> float:
        """Return the cost of an epoch with a number of rows."""
        return self.fixed_ms + self.row_ms * rows


def fit_cost(epochs: Sequence[EpochCost]) -> CostFit | None:
    """Fit the epochs of one parallelism, in commit order; return None when there are too few.

    Outliers (epochs without state in memory, or with a busy disk) are those far from the Theil-Sen line, which
    tolerates a quarter of them; least squares fits the rest. Errors are relative to the cost, because long epochs vary
    by more than short ones. Epochs without rows are ignored: they skip work, so they do not show ``a``.

    The fit uses the newest epochs. If these are all of one size, older ones help to separate ``a`` and ``b``, unless
    the cost has changed since. If it changed among the newest, only the epochs after the change count.
    """
    known = [each for each in epochs if each.rows > 0]
    if not _suffice(known):
        return None
    newest, older = known[-_NEWEST:], known[:-_NEWEST]
    fit = _fit(newest)
    changed = _changed(newest, fit)
    if changed:
        newest, older = newest[-changed:], []
        fit = _fit(newest)
    fitted = newest
    if not fit.separated and older:
        of_all = [*_of_every_size(older), *newest]
        whole = _fit(of_all)
        if whole.separated and 1 / _CHANGED < median(_ratio(each, whole) for each in newest) < _CHANGED:
            fit, fitted = replace(whole, rows=fit.rows), of_all
    return _with_phases(fitted, fit)


def _suffice(epochs: Sequence[EpochCost]) -> bool:
    if len(epochs) >= FEWEST:
        return True
    return len(epochs) >= _FEWEST_LONG and sum(each.duration_ms for each in epochs) >= _LONG_MS


def _fit(epochs: Sequence[EpochCost]) -> CostFit:
    rows = np.array([float(each.rows) for each in epochs])
    costs = np.array([max(1.0, each.duration_ms) for each in epochs])
    newest = rows[-_NEWEST:]
    large = max(float(np.quantile(newest, 0.9)), float(newest[-3:].max()))
    line = _theil_sen(rows, costs)
    if line is not None:
        kept = _inliers(rows, costs, *line)
        # A few long epochs suffice, but only without outliers among them.
        fitted = _least_squares(rows[kept], costs[kept]) if kept.sum() >= min(FEWEST, len(rows)) else None
        if fitted is not None and fitted[2] < _TRUSTED:
            fixed_ms, row_ms, row_error = fitted
            error = _error(rows[kept], costs[kept], fixed_ms, row_ms)
            return CostFit(fixed_ms, row_ms, True, row_error, large, error, int(kept.sum()))
    row_ms = float(np.median(costs / rows))
    kept = _inliers(rows, costs, 0.0, row_ms)
    error = _error(rows[kept], costs[kept], 0.0, row_ms)
    return CostFit(0.0, row_ms, False, 0.0, large, error, int(kept.sum()))


def _of_every_size(epochs: Sequence[EpochCost]) -> list[EpochCost]:
    ordered = sorted(epochs[:: max(1, len(epochs) // _SORTED)], key=lambda each: each.rows)
    count = min(_OLDER, len(ordered))
    return [ordered[index * (len(ordered) - 1) // max(1, count - 1)] for index in range(count)]


def _ratio(epoch: EpochCost, fit: CostFit) -> float:
    return max(1.0, epoch.duration_ms) / max(1.0, fit.cost_ms(epoch.rows))


def _changed(epochs: Sequence[EpochCost], fit: CostFit) -> int:
    """Return the number of newest epochs whose cost the fit does not explain; 0 if too few to prove a change."""
    ratios = [_ratio(each, fit) for each in reversed(epochs)]
    dearer, cheaper = [ratio > _CHANGED for ratio in ratios], [ratio < 1 / _CHANGED for ratio in ratios]
    for off in (dearer, cheaper):
        count = exceptions = 0
        for index, is_off in enumerate(off, 1):
            exceptions += not is_off
            if _SAME * exceptions > index:
                break
            if is_off:
                count = index
        if count and (_suffice(epochs[-count:]) or _few_show_it(epochs, count, is_dearer=off is dearer)):
            return count
    return 0


def _few_show_it(epochs: Sequence[EpochCost], count: int, *, is_dearer: bool) -> bool:
    """Return whether the newest epochs, too few for a fit, still prove that the cost changed."""
    newest, before = epochs[-count:], epochs[:-count]
    if not is_dearer:
        return sum(each.duration_ms for each in newest) >= _CHEAPER_MS
    if not before:
        return False
    usual = float(np.quantile([each.rows for each in before], _USUAL_ROWS))
    larger = newest if newest[0].rows > usual else newest[1:]
    if len(larger) < 2:
        return False
    rise = all(less < more for less, more in pairwise([usual, *(each.rows for each in larger)]))
    least_ms = min(each.duration_ms / each.rows for each in newest)
    alike = [each for each in newest if each.duration_ms <= _CHANGED * least_ms * each.rows]
    return rise and alike[-len(larger) :] == larger and sum(each.duration_ms for each in alike) >= _DEARER_MS


def _with_phases(epochs: Sequence[EpochCost], fit: CostFit) -> CostFit:
    """Return the fit with the share of each phase in the cost of a row, from epochs with recorded phases."""
    known = [each for each in epochs if None not in (each.read_ms, each.work_ms, each.publish_ms)]
    kept = [each for each in known if 1 / _CHANGED < _ratio(each, fit) < _CHANGED]
    if not _suffice(kept):
        unknown = len(known) < len(epochs) and not _suffice(known)
        explains = fit.separated and _suffice(epochs)
        return fit if explains or unknown else _with_newest_phases(known[-FEWEST:], fit)
    rows = np.array([float(each.rows) for each in kept])
    if fit.separated and not _spread(rows):
        # Epochs of one size do not show the cost of one more row in a phase.
        return _with_newest_phases(known[-FEWEST:], fit)
    phases = np.array([(each.read_ms, each.work_ms, each.publish_ms) for each in kept], dtype=float)
    work_error = fit.row_error or fit.error
    if fit.separated:
        slopes, errors = _slopes(rows, phases, np.array([max(1.0, each.duration_ms) for each in kept]))
        shares = slopes / max(fit.row_ms, float(slopes.sum()))
        work_error = float(errors[1] / max(slopes[1], 1e-9))
    else:
        # Time in no phase is the same for every epoch. Fixed parts of phases are counted as cost of rows here.
        whole, in_phases = float(sum(each.duration_ms for each in kept)), float(phases.sum())
        if not in_phases:
            return fit
        shares = phases.sum(axis=0) / in_phases
        fit = replace(fit, fixed_ms=max(0.0, whole - in_phases) / len(kept), row_ms=in_phases / float(rows.sum()))
    read, work, publish = (float(share) for share in shares)
    return replace(fit, phased=True, read=read, work=work, publish=publish, work_error=work_error)


def _with_newest_phases(epochs: Sequence[EpochCost], fit: CostFit) -> CostFit:
    """Return the fit with the typical phases of the newest epochs: few, or all of one size.

    This happens while the cost changes. Without phases all time would count as work, which a larger size divides.
    """
    phases = np.array([(each.read_ms, each.work_ms, each.publish_ms) for each in epochs], dtype=float)
    # Medians, because one of them may be cold.
    shares = np.median(phases / np.maximum(phases.sum(axis=1, keepdims=True), 1.0), axis=0)
    if not shares.any():
        return fit
    read, work, publish = (float(share) for share in shares / shares.sum())
    return replace(fit, phased=True, read=read, work=work, publish=publish, work_error=fit.error)


def _slopes(rows: _Floats, phases: _Floats, costs: _Floats) -> tuple[_Floats, _Floats]:
    """Return the time of one more row in each phase, at least 0, and its standard error."""
    weights = costs**-2.0
    weights /= weights.sum()
    off = rows - weights @ rows
    squares = float(weights @ off**2)
    around = phases - weights @ phases
    slopes = (weights * off) @ around / squares
    noise = weights @ (around - np.outer(off, slopes)) ** 2
    errors: _Floats = np.sqrt(noise / (len(rows) - 2) / squares)
    return np.maximum(slopes, 0.0), errors


def _theil_sen(rows: _Floats, costs: _Floats) -> tuple[float, float] | None:
    """Return the Theil-Sen line (``a``, ``b``), or None when the epochs' sizes are too close."""
    if not _spread(rows):
        return None
    first, second = _pairs(len(rows))
    wider = rows[second] - rows[first]
    apart = np.abs(wider) > 0.1 * np.ptp(rows)
    row_ms = max(0.0, float(np.median((costs[second] - costs[first])[apart] / wider[apart])))
    return max(0.0, float(np.median(costs - row_ms * rows))), row_ms


@cache
def _pairs(count: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the indices of all pairs of ``count`` items."""
    return np.triu_indices(count, 1)


def _inliers(rows: _Floats, costs: _Floats, fixed_ms: float, row_ms: float) -> npt.NDArray[np.bool_]:
    off = _off(rows, costs, fixed_ms, row_ms)
    # The floor keeps points near the line when half of the points lie exactly on it.
    kept: npt.NDArray[np.bool_] = off <= max(3 * _SIGMA * float(np.median(off)), 0.05)
    return kept


def _least_squares(rows: _Floats, costs: _Floats) -> tuple[float, float, float] | None:
    """Return ``a``, ``b`` and the relative standard error of ``b``; None when the slope is not positive."""
    if not _spread(rows):
        return None
    weights = costs**-2.0
    whole = weights.sum()
    mean_rows, mean_cost = float(weights @ rows / whole), float(weights @ costs / whole)
    squares = float(weights @ (rows - mean_rows) ** 2)
    row_ms = float(weights @ ((rows - mean_rows) * (costs - mean_cost))) / squares
    fixed_ms = mean_cost - row_ms * mean_rows
    if fixed_ms < 0:
        fixed_ms, row_ms = 0.0, float(weights @ (rows * costs) / (weights @ rows**2))
    if row_ms <= 0:
        return None
    noise = float(weights @ (costs - fixed_ms - row_ms * rows) ** 2)
    return fixed_ms, row_ms, sqrt(noise / (len(rows) - 2) / squares) / row_ms


def _spread(rows: _Floats) -> bool:
    # A line fits any two points.
    return len(rows) > 2 and bool(rows.max() >= _SPREAD * rows.min())


def _off(rows: _Floats, costs: _Floats, fixed_ms: float, row_ms: float) -> _Floats:
    off: _Floats = np.abs(costs - fixed_ms - row_ms * rows) / costs
    return off


def _error(rows: _Floats, costs: _Floats, fixed_ms: float, row_ms: float) -> float:
    error = _SIGMA * float(np.median(_off(rows, costs, fixed_ms, row_ms)))
    return error if len(rows) >= _FEWEST_LONG else max(error, _UNSURE)
