"""A simulated job beside a real one: the world that the real epochs show, the same arrivals, and the difference."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from statecore.policy import CostFit, EpochCost, fit_cost
from statecore.simulator import Answer, Trace, World, simulate
from statecore.simulator.job import SimulatedJob

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


def calibrated(epochs: Sequence[EpochCost], parallelism: int, trigger_ms: float) -> World | None:
    """Return the world of a job by the fit that its policy would use; None while it does not show the cost of a row."""
    fit = fit_cost(epochs)
    return _world(fit, parallelism, trigger_ms) if fit is not None and fit.separated else None


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
class Comparison:
    """A round of a real job, and its simulation: the epochs of both, over the same rows."""

    real: Sequence[Epoch]
    simulated: Sequence[Epoch]

    @property
    def drain(self) -> float:
        """Time until all rows were committed, the longer to the shorter."""
        return _longer_to_shorter(self.simulated[-1].ended_s, self.real[-1].ended_s)

    @property
    def durations(self) -> list[float]:
        """Duration of each real epoch and of its simulation, the longer to the shorter.

        A real epoch is compared with the simulated one that took its middle row: one epoch more or less in either run
        then moves no other pair.
        """
        ends = list(accumulate(each.rows for each in self.simulated))
        durations = []
        for real, end in zip(self.real, accumulate(each.rows for each in self.real), strict=True):
            simulated = self.simulated[bisect_right(ends, end - real.rows / 2)]
            durations.append(_longer_to_shorter(simulated.duration_s, real.duration_s))
        return durations

    def __str__(self) -> str:
        sides = (("simulated", self.simulated), ("real", self.real))
        return ", ".join(f"{side} {epochs[-1].ended_s:.1f} s in {len(epochs)} epochs" for side, epochs in sides)


def _longer_to_shorter(one: float, other: float) -> float:
    return max(one, other) / min(one, other)
