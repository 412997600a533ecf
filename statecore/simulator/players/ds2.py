"""DS2: the parallelism at which true processing rates meet the rate of the source.

Source: Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw and Roscoe, "Three steps is all you need: fast, accurate,
automatic scaling decisions for distributed streaming dataflows", 13th USENIX Symposium on Operating Systems Design and
Implementation (OSDI 2018), pages 783 to 798, https://www.usenix.org/system/files/osdi18-kalavri.pdf; interval, warm-up,
activation and target ratio as in its experiments on Flink with Nexmark. It has no headroom and does not look at the
backlog.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median_high

from statecore.simulator.job import SimulatedJob
from statecore.simulator.simulation import Answer
from statecore.simulator.world import World

# policy_interval, warm_up_time and activation_time in its settings, https://github.com/strymon-system/ds2
_INTERVAL_S = 30.0
_WARM_UP_S = 30.0
_ACTIVATION = 5


class DS2:
    """The policy of DS2."""

    def __init__(self) -> None:
        self._next_s = _INTERVAL_S
        self._wanted: deque[int] = deque(maxlen=_ACTIVATION)

    def starts_with(self, world: World) -> int:
        """Return the world's parallelism."""
        return world.parallelism

    def look(self, job: SimulatedJob) -> Answer:
        """Decide at the end of each interval, by the median of the newest."""
        if job.now_s < self._next_s:
            return Answer()
        self._next_s += _INTERVAL_S
        down_s = job.failed_s[-1] if job.failed_s else 0.0
        if job.is_down or job.resize is not None or job.now_s < max(job.settled_s, down_s) + _WARM_UP_S + _INTERVAL_S:
            self._wanted.clear()
            return Answer()
        epochs = job.since(job.now_s - _INTERVAL_S)
        busy_s = sum(each.duration_ms for each in epochs) / 1000
        if not busy_s:
            return Answer()
        of_a_subtask = sum(each.rows for each in epochs) / busy_s / job.parallelism
        arrivals = (job.trace.arrived(job.now_s) - job.trace.arrived(job.now_s - _INTERVAL_S)) / _INTERVAL_S
        self._wanted.append(max(1, math.ceil(arrivals / of_a_subtask)))
        if len(self._wanted) < _ACTIVATION or median_high(self._wanted) == job.parallelism:
            return Answer()
        size = median_high(self._wanted)
        return Answer(size, f"{arrivals:,.0f} rows/s at {of_a_subtask:,.0f} rows/s of a subtask")
