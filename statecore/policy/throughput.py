"""The throughput of a job at full load, at its parallelism and at others."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from statecore.policy.cost import CostFit, fit_cost
from statecore.policy.figures import EpochCost, Figures

# An unlimited epoch grows with the load; assume it grows until its rows cost this many times its fixed cost.
_ROWS_PER_FIXED = 4.0
# When more rows wait than this many large epochs read, the source or a setting limits the size of an epoch.
_LIMITED = 2.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of a job at full load.

    Attributes:
        parallelism: Parallelism of the measurement.
        fit: Cost of an epoch there.
        epoch_rows: Rows of an epoch at full load.
        scaling: Exponent of the gain: the cost of a row falls with ``parallelism ** scaling``; 1 is linear, 0 no gain.
        compared: The other parallelism behind ``scaling``; None when linear scaling is assumed.

    """

    parallelism: int
    fit: CostFit
    epoch_rows: float
    scaling: float = 1.0
    compared: int | None = None

    def rows_per_second(self, parallelism: int) -> float:
        """Return the throughput at a parallelism under full load (the "true processing rate" of DS2, OSDI '18)."""
        row_ms = self.fit.row_ms * math.pow(self.parallelism / parallelism, self.scaling)
        # The floor avoids a division by zero for costs below the clock's resolution.
        return 1000 * self.epoch_rows / max(self.fit.fixed_ms + row_ms * self.epoch_rows, 1e-6)


def throughput(figures: Figures) -> Throughput | None:
    """Return a job's throughput; None before it has enough epochs with rows at its parallelism."""
    by_parallelism: dict[int, list[EpochCost]] = defaultdict(list)
    for epoch in figures.epochs:
        by_parallelism[epoch.parallelism].append(epoch)
    fit = fit_cost(by_parallelism.pop(figures.parallelism, []))
    if fit is None:
        return None
    # A large backlog that does not make the epochs larger.
    limited = (figures.waiting or 0) > _LIMITED * fit.rows
    epoch_rows = fit.rows
    if fit.separated and not limited:
        epoch_rows = max(fit.rows, _ROWS_PER_FIXED * fit.fixed_ms / fit.row_ms)
    scaling, compared = _scaling(fit, figures.parallelism, by_parallelism, limited)
    return Throughput(figures.parallelism, fit, epoch_rows, scaling, compared)


def _scaling(
    fit: CostFit, parallelism: int, others: dict[int, list[EpochCost]], limited: bool
) -> tuple[float, int | None]:
    """Return the scaling exponent measured against the newest other parallelism, and that parallelism."""
    for other in sorted(others, key=lambda each: -others[each][-1].committed_ms):
        against = fit_cost(others[other])
        if against is None:
            continue
        if fit.separated and against.separated:
            gain = against.row_ms / fit.row_ms
        elif limited and (against.separated or 0.5 <= against.rows / fit.rows <= 2):
            # Costs with a share of the fixed cost compare only at one size: that of the next epochs.
            gain = _cost_ms(against, fit.rows) / max(_cost_ms(fit, fit.rows), 1e-6)
        else:
            continue
        return min(1.0, max(0.0, math.log(max(gain, 1e-6)) / math.log(parallelism / other))), other
    return 1.0, None


def _cost_ms(fit: CostFit, rows: float) -> float:
    return fit.fixed_ms + fit.row_ms * rows
