"""statecore's policy, on figures as the runtime records them."""

from __future__ import annotations

import math
from statistics import median

from statecore.policy.arrivals import HISTORY_MS, arriving, history
from statecore.policy.busy import busy_share, epoch_limit
from statecore.policy.decision import decide
from statecore.policy.figures import FIRST_DOWNTIME_MS, EpochCost, Figures, HeavyKey
from statecore.policy.memory import PolicyMemory
from statecore.policy.settings import PolicySettings
from statecore.simulator.job import SimulatedEpoch, SimulatedJob
from statecore.simulator.simulation import Answer
from statecore.simulator.world import World

_EPOCHS = 2_000
_LIMITED = 60
# A driver that has run for this long, or has committed an epoch, ends a series of failures; this many of the newest
# count. In an outage each driver fails after this time.
_SETTLED_S, _HISTORY, _FAILS_AFTER_S = 60.0, 10, 5.0


class Statecore:
    """``decide``, evaluated every few seconds as in production."""

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings
        self._memory = PolicyMemory()
        self._costs: list[EpochCost] = []
        self._arrived: list[tuple[int, float]] = []

    def starts_with(self, world: World) -> int:
        """Return the world's parallelism."""
        return world.parallelism

    def look(self, job: SimulatedJob) -> Answer:
        """Decide."""
        made = decide(self.figures(job), self._settings, self._memory)
        self._memory = made.memory
        name = None if made.diagnosis is None else made.diagnosis.name.value
        return Answer(None if made.action == "stay" else made.parallelism, made.reason, name)

    def figures(self, job: SimulatedJob) -> Figures:
        """Return the figures that the runtime would have recorded."""
        world, now_ms = job.world, round(job.now_s * 1000)
        self._costs += [_cost(each, world) for each in job.epochs[len(self._costs) :]]
        self._arrived += [(round(at_s * 1000), rows) for at_s, rows in job.arrived[len(self._arrived) :]]
        arrived = self._arrived[-HISTORY_MS // 5_000 :]
        waiting = round(job.waiting)
        arrivals = arriving(arrived, self._costs[-_EPOCHS:], waiting, now_ms)
        began_s = max((to_s for _, to_s in world.outages if to_s <= job.now_s), default=0.0)
        ran = [each for each in job.epochs[-200:] if each.started_s >= began_s]
        crashes = _crashes(job)
        return Figures(
            job="simulated",
            at_ms=now_ms,
            parallelism=job.parallelism,
            max_parallelism=world.key_groups,
            workers=job.workers if world.subtasks_per_worker > 1 else None,
            hindrance=_hindrance(job),
            started_ms=round(max(began_s, job.changed_s or 0.0) * 1000),
            settled_ms=round(job.settled_s * 1000),
            epochs=tuple(self._costs[-_EPOCHS:]),
            arriving=arrivals.rate,
            rising=arrivals.rising,
            arriving_noise=arrivals.noise,
            arrived=history(arrived, now_ms),
            waiting=waiting,
            left=ran[-1].waiting if ran else round(job.trace.arrived(began_s)) - job.committed,
            lag_ms=round(job.lag_s * 1000),
            epoch_limit=epoch_limit([(each.rows, each.waiting) for each in ran[-_LIMITED:]]),
            trigger_ms=round(world.trigger_ms),
            busy=busy_share(
                [(round(each.started_s * 1000), round(each.duration_ms)) for each in ran],
                now_ms,
                waiting=waiting > 0,
            ),
            rescale_ms=round(median(job.grown_s) * 1000) if job.grown_s else None,
            downtime_ms=_downtime_ms(job),
            ended_ms=None if job.changed_s is None else round(job.changed_s * 1000),
            busiest_share=world.share(job.parallelism),
            heavy_keys=(HeavyKey("hot", world.hot_key_share),) if world.hot_key_share else (),
            source_partitions=world.source_partitions,
            crashes=crashes,
            crash="an outage" if crashes else "",
        )


def settings_for(world: World) -> PolicySettings:
    """Return the settings of a policy with the limits of a world, and otherwise the defaults."""
    return PolicySettings(
        min_parallelism=world.min_parallelism,
        max_parallelism=world.max_parallelism,
        subtasks_per_worker=world.subtasks_per_worker,
        max_lag_s=world.slo_s,
    )


def _cost(epoch: SimulatedEpoch, world: World) -> EpochCost:
    # The time of rows counts as reading if partitions limit it, and as work if a key limits it more.
    partitions = world.source_partitions
    reads = partitions is not None and world.hot_key_share * min(epoch.parallelism, partitions) <= 1
    work_ms, read_ms = (0.0, epoch.work_ms) if reads else (epoch.work_ms, 0.0)
    return EpochCost(
        round(epoch.ended_s * 1000),
        epoch.parallelism,
        epoch.rows,
        round(epoch.duration_ms),
        read_ms,
        work_ms,
        epoch.publish_ms,
    )


def _downtime_ms(job: SimulatedJob) -> int | None:
    """Return the downtime to expect of a method that stops the job; None in a world whose rescales stop nothing."""
    if not job.world.rescale_s:
        return None
    return FIRST_DOWNTIME_MS if job.changed_s is None else round(job.world.rescale_s * 1000)


def _crashes(job: SimulatedJob) -> int:
    """Return the number of drivers that failed in a row; 0 once one has settled after an outage."""
    committed_s = job.epochs[-1].ended_s if job.epochs else -math.inf
    row = [each for each in job.world.outages if each[0] <= job.now_s and committed_s <= each[1]]
    if not row or job.now_s - max(row)[1] > _SETTLED_S:
        return 0
    failed = sum(1 + int((min(job.now_s, to_s) - from_s) / _FAILS_AFTER_S) for from_s, to_s in row)
    return min(failed, _HISTORY)


def _hindrance(job: SimulatedJob) -> str | None:
    if job.is_down:
        return "the job has no live driver"
    if job.resize is not None:
        return "a rescale is under way"
    return None
