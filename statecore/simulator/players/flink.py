"""The autoscaler of Flink's Kubernetes operator, by its documented defaults.

Source: Apache Flink Kubernetes Operator 1.15, "Autoscaler" and "Autoscaler Configuration",
https://nightlies.apache.org/flink/flink-kubernetes-operator-docs-release-1.15/docs/custom-resource/autoscaler/ and
https://nightlies.apache.org/flink/flink-kubernetes-operator-docs-release-1.15/docs/operations/configuration/,
and its rule

    capacity = backlog / catch-up time + arrivals × restart time / catch-up time + arrivals / target utilisation

Averages are over the metrics window, which begins after the stabilisation interval. The job is one vertex; its true
processing rate is what it processes while an epoch runs. Ineffective scale-ups block the next, an option that is off
unless asked for: it only helps. Sizes divide the key groups, `EVENLY_SPREAD`, the default until 1.16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from statecore.simulator.job import SimulatedJob
from statecore.simulator.simulation import Answer
from statecore.simulator.world import World

# The default of each option that is named, all but the first with the prefix job.autoscaler.
_EVERY_S = 60.0  # kubernetes.operator.reconcile.interval
_STABILIZATION_S = 300.0  # stabilization.interval
_WINDOW_S = 900.0  # metrics.window
# utilization.target; utilization.max and utilization.min are so far above and below it.
_TARGET, _BOUNDARY = 0.7, 0.3
_CATCH_UP_S = 1800.0  # catch-up.duration
_RESTART_S = 300.0  # restart.time
_SCALE_DOWN_INTERVAL_S = 3600.0  # scale-down.interval
_MAX_SCALE_DOWN = 0.6  # scale-down.max-factor
_BACKLOG_LAG_S = 300.0  # backlog-processing.lag-threshold
_EFFECTIVENESS = 0.1  # scaling.effectiveness.threshold


@dataclass(slots=True)
class _ScaleUp:
    """The newest scale-up and its expected rate."""

    parallelism: int
    rate: float
    expected: float


class Flink:
    """Flink's autoscaler."""

    def __init__(self) -> None:
        self._next_s = _EVERY_S
        self._delayed: tuple[float, int] | None = None
        self._scaled_up: _ScaleUp | None = None

    def starts_with(self, world: World) -> int:
        """Return the world's parallelism."""
        return world.parallelism

    def look(self, job: SimulatedJob) -> Answer:
        """Decide once a minute, when the window is full."""
        if job.now_s < self._next_s:
            return Answer()
        self._next_s += _EVERY_S
        if job.is_down or job.resize is not None:
            return Answer()
        began_s = max(job.settled_s, job.failed_s[-1] if job.failed_s else 0.0) + _STABILIZATION_S
        if job.now_s < began_s + _WINDOW_S:
            return Answer()
        epochs = job.since(job.now_s - _WINDOW_S)
        rows, busy_s = sum(each.rows for each in epochs), sum(each.duration_ms for each in epochs) / 1000
        if not busy_s:
            return Answer()
        arrivals = (job.trace.arrived(job.now_s) - job.trace.arrived(job.now_s - _WINDOW_S)) / _WINDOW_S
        return self._decide(job, rows / busy_s, arrivals, rows / _WINDOW_S)

    def _decide(self, job: SimulatedJob, rate: float, arrivals: float, processed: float) -> Answer:
        backlog = processed > 0 and job.waiting / processed > _BACKLOG_LAG_S
        upper, lower = (1.0, 0.0) if backlog else (_TARGET + _BOUNDARY, _TARGET - _BOUNDARY)
        grow = rate < self._capacity(job, arrivals, upper, restart=False)
        shrink = rate > self._capacity(job, arrivals, lower, restart=True)
        if not grow and not shrink:
            return Answer()
        wanted = self._capacity(job, arrivals, _TARGET, restart=True)
        factor = max(wanted / rate, 1 - _MAX_SCALE_DOWN)
        size = _aligned(math.ceil(factor * job.parallelism), job.world)
        if size == job.parallelism:
            self._delayed = None
            return Answer()
        if size > job.parallelism:
            return self._grow(job, size, rate, factor * rate)
        return self._shrink(job, size)

    def _capacity(self, job: SimulatedJob, arrivals: float, utilisation: float, *, restart: bool) -> float:
        if utilisation <= 0:
            return math.inf
        again = arrivals * _RESTART_S / _CATCH_UP_S if restart else 0.0
        return job.waiting / _CATCH_UP_S + again + arrivals / utilisation

    def _grow(self, job: SimulatedJob, size: int, rate: float, expected: float) -> Answer:
        self._delayed = None
        last = self._scaled_up
        if last is not None and last.parallelism == job.parallelism and last.expected > last.rate:
            gained = (rate - last.rate) / (last.expected - last.rate)
            if gained < _EFFECTIVENESS:
                return Answer()
        self._scaled_up = _ScaleUp(size, rate, expected)
        return Answer(size, f"true processing rate {rate:,.0f} rows/s is below the threshold")

    def _shrink(self, job: SimulatedJob, size: int) -> Answer:
        since_s, most = self._delayed or (job.now_s, size)
        self._delayed = (since_s, max(most, size))
        if job.now_s < since_s + _SCALE_DOWN_INTERVAL_S:
            return Answer()
        size, self._delayed = self._delayed[1], None
        self._scaled_up = None
        return Answer(size, "true processing rate is above the threshold")


def _aligned(size: int, world: World) -> int:
    """Return a size that spreads the key groups (or partitions) evenly, as the operator adjusts it."""
    highest = min(world.max_parallelism, world.key_groups)
    size = min(max(size, world.min_parallelism), highest)
    groups = world.source_partitions or world.key_groups
    for each in range(size, min(groups, highest) + 1):
        if groups % each == 0:
            return each
    for each in range(size, 0, -1):
        if groups // each > groups // size:
            fewest = each if groups % each == 0 else each + 1
            return max(fewest, world.min_parallelism)
    return size
