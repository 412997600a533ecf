"""A simulated job beside a real one: the world that the real epochs show, the same arrivals, and the difference."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from statecore.policy import CostFit, EpochCost, fit_cost
from statecore.policy.simulator import Answer, Trace, World, simulate
from statecore.policy.simulator.job import SimulatedJob

# Rows of a file arrive at once. A power of two, so that times are exact and no row is lost to rounding.
_AT_ONCE_S = 2.0**-21
# What waits after the last arrival is processed within this time.
_REST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch, real or simulated; its end counts from the first arrival."""

    rows: int
    duration_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows that arrived at once, at a time from the first arrival."""

    at_s: float
    rows: int


def calibrated(epochs: Sequence[EpochCost], parallelism: int, trigger_ms: float) -> World:
    """Return the world of a job by the fit that its policy would use.

    Raises:
        ValueError: The epochs do not show what a row costs.

    """
    fit = fit_cost(epochs)
    if fit is None or not fit.separated:
        raise ValueError(
            f"found {len(epochs)} epochs that do not tell the cost of a row from that of an epoch; expected more, of "
            "several sizes; feed the job longer, at other rates"
        )
    return _world(fit, parallelism, trigger_ms)


def _world(fit: CostFit, parallelism: int, trigger_ms: float) -> World:
    divided = fit.read + fit.work
    return World(
        parallelism=parallelism,
        fixed_ms=fit.fixed_ms,
        row_us=1000 * fit.row_ms * divided * parallelism,
        sink_us_per_row=1000 * fit.row_ms * (1 - divided),
        trigger_ms=trigger_ms,
        noise=0.0,
    )


def simulated_epochs(arrivals: Sequence[Arrival], world: World) -> list[Epoch]:
    """Return the epochs of a simulated job that is never rescaled, until all rows are committed."""
    player = _Watching()
    simulate(_trace(arrivals), world, player)
    return [Epoch(each.rows, each.duration_ms / 1000, each.ended_s) for each in player.job.epochs]


class _Watching:
    """Changes nothing, and keeps the job for its epochs."""

    job: SimulatedJob

    def starts_with(self, world: World) -> int:
        """Return the world's parallelism."""
        return world.parallelism

    def look(self, job: SimulatedJob) -> Answer:
        """Keep the job."""
        self.job = job
        return Answer()


def _trace(arrivals: Sequence[Arrival]) -> Trace:
    times_s: list[float] = []
    rates: list[float] = []
    for arrival in arrivals:
        at_s = round(arrival.at_s / _AT_ONCE_S) * _AT_ONCE_S
        times_s += [at_s, at_s + _AT_ONCE_S]
        rates += [arrival.rows / _AT_ONCE_S, 0.0]
    return Trace([*times_s, times_s[-1] + _REST_S], rates)


@dataclass(frozen=True, slots=True)
class Difference:
    """How a simulated run differs from the real one.

    Attributes:
        drain: Time until all rows were committed, the longer to the shorter.
        epoch: Duration of an epoch, the longer to the shorter, median over the real epochs.

    """

    drain: float
    epoch: float


def difference(real: Sequence[Epoch], simulated: Sequence[Epoch]) -> Difference:
    """Compare two runs over the same rows.

    A real epoch is compared with the simulated epoch that took its middle row: one epoch more or less in either run
    then moves no other pair.
    """
    ends = list(accumulate(each.rows for each in simulated))
    middles = (end - each.rows / 2 for each, end in zip(real, accumulate(each.rows for each in real), strict=True))
    pairs = [(each, simulated[bisect_right(ends, middle)]) for each, middle in zip(real, middles, strict=True)]
    return Difference(
        drain=_longer_to_shorter(real[-1].ended_s, simulated[-1].ended_s),
        epoch=median(_longer_to_shorter(one.duration_s, other.duration_s) for one, other in pairs),
    )


def _longer_to_shorter(one: float, other: float) -> float:
    return max(one, other) / min(one, other)
