"""The throughput of a job at full load, at its parallelism and at others."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from statecore.policy.alignment import busiest
from statecore.policy.cost import CostFit, fit_cost
from statecore.policy.figures import HOLDS_MS, EpochCost, Figures

# An unlimited epoch grows with the load; assume it grows until its rows cost this many times its fixed cost.
_ROWS_PER_FIXED = 9.0
# Stands for any number of subtasks.
_BEYOND_ANY = 1_000_000
# Smallest expected change of the cost of a row, as a logarithm, that a comparison can show.
_LITTLE = 0.1
# A measured gain is assumed larger by so many standard errors: missing a useful rescale does more harm than one useless
# rescale.
_DOUBT = 2.0
# Unseparated costs include a share of the fixed cost; compare them only between epochs of about the same size.
_ABOUT = 2.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of a job at full load.

    More subtasks divide the work, unless one key or one subtask has most of it. They divide reading, up to one subtask
    per partition. They do not divide publishing and the fixed cost.

    Attributes:
        parallelism: Parallelism of the measurement.
        fit: Cost of an epoch there.
        epoch_rows: Rows of an epoch at full load.
        limited: Whether the source or a setting limits the rows of an epoch.
        period_ms: Shortest time from the start of one such epoch to the next; 0 for none.
        scaling: Exponent of the gain: the time of the work is the share of the busiest subtask to this power; 1 is
            linear, 0 no gain. Below the smallest measured size it is assumed linear.
        compared: The other parallelism behind ``scaling``; None when linear scaling is assumed.
        skew: Share of the busiest subtask, as a multiple of an even share.
        heaviest: Share (0 to 1) of the heaviest key in the work.
        partitions: Most subtasks that can read at once; None for no limit.
        key_groups: Number of key groups, to count whole ones per subtask; None to assume that work divides evenly.

    """

    parallelism: int
    fit: CostFit
    epoch_rows: float
    limited: bool = False
    period_ms: float = 0.0
    scaling: float = 1.0
    compared: int | None = None
    skew: float = 1.0
    heaviest: float = 0.0
    partitions: int | None = None
    key_groups: int | None = None

    def rows_per_second(self, parallelism: int) -> float:
        """Return the throughput at a parallelism under full load (the "true processing rate" of DS2, OSDI '18)."""
        rows = self.epoch_rows
        # The floor avoids a division by zero for costs below the clock's resolution.
        return 1000 * rows / max(self.fit.fixed_ms + self.row_ms(parallelism) * rows, self.period_ms, 1e-6)

    def most_rows_per_second(self) -> float:
        """Return the upper limit of the throughput at any parallelism."""
        return self.rows_per_second(_BEYOND_ANY)

    def row_ms(self, parallelism: int) -> float:
        """Return the cost of a row at a parallelism."""
        fit, here = self.fit, self.parallelism
        # Poor scaling to more subtasks does not show that fewer than measured lose as little.
        known = max(parallelism, self._fewest())
        work = (
            math.pow(self.share(known) / self.share(here), self.scaling) * self.share(parallelism) / self.share(known)
        )
        read = self._readers(here) / self._readers(parallelism)
        rest = 1 - fit.read - fit.work
        return fit.row_ms * (rest + fit.read * read + fit.work * work)

    def is_measured(self, parallelism: int) -> bool:
        """Return whether ``scaling`` was measured for this size; below the measured sizes it is assumed linear."""
        return self.compared is not None and parallelism >= self._fewest()

    def share(self, parallelism: int) -> float:
        """Return the share of the rows that the busiest subtask has at a parallelism."""
        return min(1.0, max(self.skew * _even(parallelism, self.key_groups), self.heaviest))

    def _fewest(self) -> int:
        return min(self.parallelism, self.compared or self.parallelism)

    def _readers(self, parallelism: int) -> int:
        return min(parallelism, self.partitions or parallelism)


def throughput(figures: Figures, *, align: bool = False) -> Throughput | None:
    """Return a job's throughput; None before it has enough epochs with rows at its parallelism.

    Args:
        figures: Figures of the job.
        align: Whether to count whole key groups of the busiest subtask.

    """
    others = _by_parallelism(figures)
    fit = fit_cost(others.pop(figures.parallelism, []))
    return None if fit is None else _compared(_assumed(figures, figures.parallelism, fit, align=align), others)


def foreseen(figures: Figures, *, align: bool = False) -> Throughput | None:
    """Return the throughput from the newest measurements at another parallelism; None when none has enough epochs.

    For a job with too few epochs at its own parallelism: if it falls behind, each epoch takes longer than the last.
    """
    others = _by_parallelism(figures)
    others.pop(figures.parallelism, None)
    for other in sorted(others, key=lambda each: -others[each][-1].committed_ms):
        measured = others.pop(other)
        fit = fit_cost(measured)
        if fit is not None and figures.at_ms - measured[-1].committed_ms <= HOLDS_MS:
            return _compared(_assumed(figures, other, fit, align=align), others)
    return None


def _by_parallelism(figures: Figures) -> dict[int, list[EpochCost]]:
    epochs: dict[int, list[EpochCost]] = defaultdict(list)
    for parallelism, run in groupby(figures.epochs, key=attrgetter("parallelism")):
        epochs[parallelism].extend(run)
    return epochs


def _assumed(figures: Figures, parallelism: int, fit: CostFit, *, align: bool) -> Throughput:
    """Return the throughput from the fitted cost at a parallelism, with linear scaling."""
    limit = figures.epoch_limit
    epoch_rows = max(fit.rows, _ROWS_PER_FIXED * fit.fixed_ms / fit.row_ms)
    if limit is not None:
        epoch_rows = min(epoch_rows, float(limit))
    key_groups = figures.max_parallelism if align else None
    even = _even(figures.parallelism, key_groups)
    heaviest = figures.heavy_keys[0].share if figures.heavy_keys else 0.0
    limited = limit is not None and epoch_rows >= limit
    return Throughput(
        parallelism=parallelism,
        fit=fit,
        epoch_rows=epoch_rows,
        limited=limited,
        # Without a limit, an epoch that waited for its trigger has more rows instead.
        period_ms=float(figures.trigger_ms or 0) if limited else 0.0,
        skew=max(1.0, (figures.busiest_share or even) / even),
        heaviest=heaviest,
        partitions=figures.source_partitions,
        key_groups=key_groups,
    )


def _even(parallelism: int, key_groups: int | None) -> float:
    """Return the share of the busiest subtask if all key groups are equal."""
    return 1 / parallelism if key_groups is None else busiest(key_groups, parallelism) / key_groups


def _compared(assumed: Throughput, others: dict[int, list[EpochCost]]) -> Throughput:
    """Return the throughput with the scaling measured against the newest other parallelism."""
    fit = assumed.fit
    for other in sorted(others, key=lambda each: -others[each][-1].committed_ms):
        against = fit_cost(others[other])
        if against is None or not fit.work or not against.work:
            continue
        alike = 1 / _ABOUT <= against.rows / fit.rows <= _ABOUT
        if (fit.separated and against.separated) or (fit.phased and against.phased and alike):
            gain = against.row_ms * against.work / (fit.row_ms * fit.work)
        elif assumed.limited and (against.separated or alike):
            gain = against.cost_ms(fit.rows) * against.work / max(fit.cost_ms(fit.rows) * fit.work, 1e-6)
        else:
            continue
        doubt = _DOUBT * math.hypot(fit.work_error, against.work_error)
        expected = math.log(assumed.share(other) / assumed.share(assumed.parallelism))
        if abs(expected) < _LITTLE:
            # No gain was expected there, so the comparison shows nothing.
            continue
        measured = math.log(max(gain, 1e-6)) + math.copysign(doubt, expected)
        scaling = min(1.0, max(0.0, measured / expected))
        return replace(assumed, scaling=scaling, compared=other)
    return assumed
