"""The automatic scaling of Amazon Managed Service for Apache Flink.

Source: its developer guide, "Use automatic scaling in Managed Service for Apache Flink",
https://docs.aws.amazon.com/managed-flink/latest/java/how-scaling-auto.html: CPU (`containerCPUUtilization`) of at least
75 % in 15 consecutive minutes doubles the parallelism, CPU below 10 % in 360 consecutive minutes halves it, rounded up,
never below the application's own. The CPU is that of the busiest container.
"""

from __future__ import annotations

from statecore.simulator.job import SimulatedJob
from statecore.simulator.simulation import Answer
from statecore.simulator.world import World

_POINT_S = 60.0
_HIGH, _HIGH_POINTS = 0.75, 15
_LOW, _LOW_POINTS = 0.10, 360


class Aws:
    """Amazon's policy."""

    def __init__(self) -> None:
        self._next_s = _POINT_S
        self._high = self._low = 0

    def starts_with(self, world: World) -> int:
        """Return the world's parallelism."""
        return world.parallelism

    def look(self, job: SimulatedJob) -> Answer:
        """Count the minutes that were high or low in a row."""
        if job.now_s < self._next_s:
            return Answer()
        self._next_s += _POINT_S
        if job.is_down or job.resize is not None:
            self._high = self._low = 0
            return Answer()
        used_s = sum(each.work_ms for each in job.since(job.now_s - _POINT_S)) / 1000
        cpu = used_s / _POINT_S
        if job.epochs and job.now_s - job.epochs[-1].ended_s > _POINT_S and job.waiting:
            # An epoch has run for more than a minute: assume the CPU of the one before.
            cpu = job.epochs[-1].work_ms / job.epochs[-1].duration_ms
        self._high = self._high + 1 if cpu >= _HIGH else 0
        self._low = self._low + 1 if cpu < _LOW else 0
        size = job.parallelism
        if self._high >= _HIGH_POINTS:
            size, self._high = 2 * job.parallelism, 0
        elif self._low >= _LOW_POINTS:
            size, self._low = max(-(-job.parallelism // 2), job.world.parallelism), 0
        return Answer() if size == job.parallelism else Answer(size, f"CPU {cpu:.0%}")
