"""What a job could process, at its parallelism and at others."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from statecore.policy.cost import CostFit, fit_cost
from statecore.policy.figures import EpochCost, Figures

# Where nothing limits an epoch it grows with the load, until this many parts of it are rows and one is fixed cost.
_ROWS_PER_FIXED = 4.0
# More rows waiting than so many large epochs take: the source, or a setting of it, limits how much one reads.
_LIMITED = 2.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a job could process.

    Attributes:
        parallelism: What was measured at.
        fit: What an epoch costs there.
        epoch_rows: Size of the epochs of a job that has enough to do.
        scaling: ``b`` falls with the parallelism to the power of this: 1 is linear, 0 no gain.
        compared: The other parallelism that ``scaling`` was measured against; None where 1 is assumed.

    """

    parallelism: int
    fit: CostFit
    epoch_rows: float
    scaling: float = 1.0
    compared: int | None = None

    def rows_per_second(self, parallelism: int) -> float:
        """Return the true processing rate at a parallelism: what it does when it always has enough to do."""
        row_ms = self.fit.row_ms * math.pow(self.parallelism / parallelism, self.scaling)
        # What costs nothing that a clock could see can do anything.
        return 1000 * self.epoch_rows / max(self.fit.fixed_ms + row_ms * self.epoch_rows, 1e-6)


def throughput(figures: Figures) -> Throughput | None:
    """Return what a job could process, or None before it has had enough epochs with rows at its parallelism."""
    by_parallelism: dict[int, list[EpochCost]] = defaultdict(list)
    for epoch in figures.epochs:
        by_parallelism[epoch.parallelism].append(epoch)
    fit = fit_cost(by_parallelism.pop(figures.parallelism, []))
    if fit is None:
        return None
    # More waits than a large epoch takes, and still they are no larger.
    limited = (figures.waiting or 0) > _LIMITED * fit.rows
    epoch_rows = fit.rows
    if fit.separated and not limited:
        epoch_rows = max(fit.rows, _ROWS_PER_FIXED * fit.fixed_ms / fit.row_ms)
    scaling, compared = _scaling(fit, figures.parallelism, by_parallelism, limited)
    return Throughput(figures.parallelism, fit, epoch_rows, scaling, compared)


def _scaling(
    fit: CostFit, parallelism: int, others: dict[int, list[EpochCost]], limited: bool
) -> tuple[float, int | None]:
    """Return how a row's cost falls with parallelism, as measured against the newest other one, and that one."""
    for other in sorted(others, key=lambda each: -others[each][-1].committed_ms):
        against = fit_cost(others[other])
        if against is None:
            continue
        if fit.separated and against.separated:
            gain = against.row_ms / fit.row_ms
        elif limited and (against.separated or 0.5 <= against.rows / fit.rows <= 2):
            # Costs that hold their share of the fixed cost can be compared at one size only, that of epochs to come.
            gain = _cost_ms(against, fit.rows) / max(_cost_ms(fit, fit.rows), 1e-6)
        else:
            continue
        return min(1.0, max(0.0, math.log(max(gain, 1e-6)) / math.log(parallelism / other))), other
    return 1.0, None


def _cost_ms(fit: CostFit, rows: float) -> float:
    return fit.fixed_ms + fit.row_ms * rows
