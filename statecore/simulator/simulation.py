"""Runs a policy against a simulated job, and counts lateness, cost and rescales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from statecore.simulator.job import LOOK_S, Resize, SimulatedEpoch, SimulatedJob
from statecore.simulator.trace import Trace
from statecore.simulator.world import World

# Shortest step: it lets the clock pass rounding errors.
_TICK_S = 1e-6


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a policy: the target size, None for the current one, the reason, and the diagnosis."""

    parallelism: int | None = None
    reason: str = ""
    diagnosis: str | None = None


class Player(Protocol):
    """A policy in the simulator, evaluated every ``LOOK_S`` seconds."""

    def starts_with(self, world: World) -> int:
        """Return the parallelism at the start."""
        ...

    def look(self, job: SimulatedJob) -> Answer:
        """Return the policy's answer; the simulator ignores it while a rescale is under way."""
        ...


@dataclass(frozen=True, slots=True)
class SimulatedDecision:
    """A rescale that a policy asked for, by the clock of the trace; ``from_`` is its ``from`` in JSON."""

    t_s: float
    from_: int
    to: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sample:
    """The job at one evaluation, by the clock of the trace, for pictures."""

    t_s: float
    parallelism: int
    waiting: float
    lag_s: float


@dataclass(slots=True)
class Outcome:
    """The result of a simulation.

    Attributes:
        slo_minutes: Time in which the oldest waiting row was older than ``slo_s``, in minutes.
        core_hours: Workers times ``subtasks_per_worker`` over time, from the request of a worker until its end.
        largest_lag_s: Largest age of a waiting row.
        diagnoses: (time in seconds by the clock of the trace, name), changes only.

    """

    slo_minutes: float = 0.0
    core_hours: float = 0.0
    largest_lag_s: float = 0.0
    end_parallelism: int = 0
    diagnoses: list[tuple[float, str]] = field(default_factory=list)
    decisions: list[SimulatedDecision] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def rescales(self) -> int:
        """Number of rescales."""
        return len(self.decisions)

    def to_json(self) -> dict[str, object]:
        """Return the answer of ``statecore policy simulate --json``."""
        return {
            "slo_minutes": round(self.slo_minutes, 2),
            "core_hours": round(self.core_hours, 3),
            "rescales": self.rescales,
            "largest_lag_s": round(self.largest_lag_s, 1),
            "end_parallelism": self.end_parallelism,
            "diagnoses": [[t_s, name] for t_s, name in self.diagnoses],
            "decisions": [
                {"t_s": each.t_s, "from": each.from_, "to": each.to, "reason": each.reason} for each in self.decisions
            ],
        }


def simulate(trace: Trace, world: World, player: Player, *, progress: Callable[[float], None] | None = None) -> Outcome:
    """Run a policy over a whole trace; ``progress`` gets the time since its beginning, in seconds."""
    return _Simulation(trace, world.since(trace.began_s), player).run(progress)


class _Simulation:
    """The clock jumps from event to event: ends of epochs, evaluations, stages of a rescale, outages."""

    def __init__(self, trace: Trace, world: World, player: Player) -> None:
        self._trace, self._world, self._player = trace, world, player
        self._job = SimulatedJob(trace, world, player.starts_with(world))
        self._outcome = Outcome()
        self._running: SimulatedEpoch | None = None
        self._next_start_s = 0.0
        self._next_look_s = LOOK_S
        self._counted_s = 0.0

    def run(self, progress: Callable[[float], None] | None) -> Outcome:
        job, end_s = self._job, self._trace.end_s
        while True:
            self._happen()
            next_s = min((at_s for at_s in self._events() if at_s > job.now_s), default=math.inf)
            if next_s >= end_s:
                break
            self._pass(next_s)
            if progress is not None:
                progress(next_s)
        self._pass(end_s)
        self._count_lag()
        self._outcome.end_parallelism = job.parallelism
        return self._outcome

    def _events(self) -> Iterator[float]:
        job, resize = self._job, self._job.resize
        yield self._next_look_s
        for from_s, to_s in self._world.outages:
            yield from_s
            yield to_s
        if resize is not None:
            yield resize.ready_s if resize.until_s is None else resize.until_s
        if self._running is not None:
            yield self._running.ended_s
        else:
            yield max(self._next_start_s, job.oldest_s + _TICK_S)

    def _pass(self, to_s: float) -> None:
        job = self._job
        self._outcome.core_hours += job.workers * self._world.subtasks_per_worker * (to_s - job.now_s) / 3600
        job.now_s = to_s

    def _happen(self) -> None:
        """Handle all due events, each after those that it depends on."""
        job = self._job
        if job.is_down:
            if not job.failed_s or self._world.outage(job.failed_s[-1]) != self._world.outage(job.now_s):
                job.failed_s.append(job.now_s)
            # The running epoch is lost; its rows are read again.
            self._running = None
        if self._running is not None and job.now_s >= self._running.ended_s:
            self._commit(self._running)
            self._running = None
        self._resize()
        if self._running is None and not self._stands_still() and job.now_s >= self._next_start_s:
            self._running = job.next_epoch()
            if self._running is not None:
                self._next_start_s = job.now_s + self._world.trigger_ms / 1000
        if job.now_s >= self._next_look_s:
            self._next_look_s += LOOK_S
            self._look()

    def _stands_still(self) -> bool:
        return self._job.is_down or (self._job.resize is not None and self._job.resize.until_s is not None)

    def _commit(self, epoch: SimulatedEpoch) -> None:
        self._count_lag()
        self._job.committed += epoch.rows
        self._job.epochs.append(replace(epoch, waiting=round(self._job.waiting)))
        self._counted_s = self._job.now_s

    def _count_lag(self) -> None:
        """Count the lag since the last commit, during which the oldest waiting row was the same."""
        job = self._job
        self._outcome.largest_lag_s = max(self._outcome.largest_lag_s, job.lag_s)
        too_old_s = job.oldest_s + self._world.slo_s
        self._outcome.slo_minutes += max(0.0, job.now_s - max(self._counted_s, too_old_s)) / 60

    def _resize(self) -> None:
        job, resize = self._job, self._job.resize
        if resize is None:
            return
        if resize.until_s is None and self._running is None and job.now_s >= resize.ready_s:
            resize.until_s = job.now_s + self._world.rescale_s
        if resize.until_s is not None and job.now_s >= resize.until_s:
            if resize.parallelism > job.parallelism:
                job.grown_s.append(job.now_s - resize.decided_s)
            job.parallelism = resize.parallelism
            job.workers = self._world.workers_for(resize.parallelism)
            job.settled_s = job.changed_s = job.now_s
            job.resize = None

    def _look(self) -> None:
        job, outcome = self._job, self._outcome
        shown_s = self._trace.began_s + job.now_s
        if not job.is_down:
            job.arrived.append((job.now_s, self._trace.arrived(job.now_s)))
        outcome.samples.append(Sample(shown_s, job.parallelism, job.waiting, job.lag_s))
        answer = self._player.look(job)
        if answer.diagnosis is not None and (not outcome.diagnoses or outcome.diagnoses[-1][1] != answer.diagnosis):
            outcome.diagnoses.append((shown_s, answer.diagnosis))
        if answer.parallelism is None or job.resize is not None or job.is_down:
            return
        highest = min(self._world.max_parallelism, self._world.key_groups)
        target = min(max(answer.parallelism, self._world.min_parallelism), highest)
        if target == job.parallelism:
            return
        outcome.decisions.append(SimulatedDecision(shown_s, job.parallelism, target, answer.reason))
        workers = self._world.workers_for(target)
        ready_s = job.now_s
        if workers > job.workers:
            ready_s += self._world.worker_start_s
            job.workers = workers
        job.resize = Resize(target, job.now_s, ready_s)
