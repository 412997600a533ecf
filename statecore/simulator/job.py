"""The simulated job: its state at a time, which a policy may read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from statecore.simulator.trace import Trace
from statecore.simulator.world import World

# Traces are continuous: a row has arrived once all of it has, less a rounding error.
_PART = 1e-6
# Back-to-back epochs of no duration would stop the clock.
_SHORTEST_MS = 1.0
LOOK_S = 5.0
"""Seconds between two evaluations of a policy, as in Airflow's triggerer; drivers measure backlogs as often."""


@dataclass(frozen=True, slots=True)
class SimulatedEpoch:
    """An epoch: its times, parallelism, durations of phases, and the rows that waited after it."""

    started_s: float
    ended_s: float
    parallelism: int
    rows: int
    work_ms: float
    publish_ms: float
    waiting: int = 0

    @property
    def duration_ms(self) -> float:
        """Its duration."""
        return (self.ended_s - self.started_s) * 1000


@dataclass(slots=True)
class Resize:
    """A rescale under way: its target, its decision, when its workers are ready, and the end of its downtime."""

    parallelism: int
    decided_s: float
    ready_s: float
    until_s: float | None = None


@dataclass(slots=True)
class SimulatedJob:
    """A job in its world.

    Attributes:
        now_s: The time.
        parallelism: Present parallelism.
        workers: Workers that were requested and not given back.
        committed: Rows of committed epochs.
        epochs: Committed epochs, in order.
        arrived: Measurements, (time in seconds, rows arrived until then), while the job runs.
        resize: The rescale under way.
        settled_s: When the job began to run at its parallelism.
        changed_s: End of the newest rescale; None before the first.
        grown_s: Durations of the scale-outs, from the decision to the end.
        failed_s: Times at which the job went down.

    """

    trace: Trace
    world: World
    parallelism: int
    workers: int = 0
    now_s: float = 0.0
    committed: int = 0
    epochs: list[SimulatedEpoch] = field(default_factory=list)
    arrived: list[tuple[float, float]] = field(default_factory=list)
    resize: Resize | None = None
    settled_s: float = 0.0
    changed_s: float | None = None
    grown_s: list[float] = field(default_factory=list)
    failed_s: list[float] = field(default_factory=list)
    _random: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.workers = self.world.workers_for(self.parallelism)
        self._random = np.random.default_rng(self.world.seed)

    @property
    def is_down(self) -> bool:
        """Whether the job is down now."""
        return self.world.outage(self.now_s) is not None

    @property
    def waiting(self) -> float:
        """Rows that have arrived and are not committed yet."""
        return self.trace.arrived(self.now_s) - self.committed

    @property
    def oldest_s(self) -> float:
        """Arrival time of the oldest uncommitted row; infinity if none will arrive."""
        return self.trace.when(self.committed + 1 - _PART)

    @property
    def lag_s(self) -> float:
        """Age of the oldest waiting row; 0 when none waits."""
        return max(0.0, self.now_s - self.oldest_s)

    def next_epoch(self) -> SimulatedEpoch | None:
        """Return the epoch that would begin now; None when no row waits."""
        world, rows = self.world, int(self.waiting + _PART)
        if world.epoch_limit_rows is not None:
            rows = min(rows, world.epoch_limit_rows)
        if rows <= 0:
            return None
        off = 1 + world.noise * float(self._random.uniform(-1, 1))
        work_ms = rows * world.row_us * world.share(self.parallelism) / 1000 * off
        publish_ms = rows * world.sink_us_per_row * world.sink_factor(self.now_s) / 1000 * off
        took_ms = max(_SHORTEST_MS, world.fixed_ms * off + work_ms + publish_ms)
        return SimulatedEpoch(self.now_s, self.now_s + took_ms / 1000, self.parallelism, rows, work_ms, publish_ms)

    def since(self, from_s: float) -> list[SimulatedEpoch]:
        """Return the epochs that ended after a time."""
        epochs = []
        for epoch in reversed(self.epochs):
            if epoch.ended_s <= from_s:
                break
            epochs.append(epoch)
        return epochs[::-1]
