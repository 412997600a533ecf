"""Decides on a rescale: one pure function.

The throughput that a job needs is the larger of

- arrivals with headroom for peaks:     ``arriving / target utilisation``
- draining the backlog in time:         ``arriving + waiting / catch-up time``

The target is the smallest size with that throughput. The policy scales out when the need exceeds the present throughput
by the hysteresis, for ``scale_out_after_s``. It scales in when a smaller size suffices by the hysteresis for
``scale_in_after_s`` and the backlog is nearly gone; a cluster halved at half a backlog would never drain the rest.

It rests for the cooldown after the end of a rescale. Each of its own rescales that fails doubles the next rest, and
after ``BLOCKS_AFTER`` in a row the policy waits for a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statecore.policy.figures import Figures
from statecore.policy.settings import PolicySettings
from statecore.policy.throughput import Throughput, throughput

Action = Literal["out", "in", "stay"]

BLOCKS_AFTER = 3
"""A policy is blocked when this number of its rescales have failed in a row."""
# Shortest cooldown to double after a failure.
_AFTER_FAILURE_S = 60.0
# With high fixed costs, a size a fifth smaller may have nearly the throughput of the largest; it is then the limit.
_NEARLY, _FEWER = 0.95, 0.8
# Smallest gain in throughput that is worth the interruption of a rescale.
_GAIN = 1.1
# A job short of capacity is busy nearly all the time; below this share, something else holds it back.
_HELD_BACK = 0.5
# Before scaling in, the backlog must drain this many times faster than the catch-up time asks.
_NEARLY_GONE = 10


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """Memory of a job's policy between two decisions.

    Attributes:
        decided_ms: Time of the last decision to rescale.
        parallelism: Parallelism at the last decision; the fields below refer to it.
        pressure_since_ms: Time since which a larger size has been needed.
        slack_since_ms: Time since which a smaller size has been enough.
        slack_parallelism: Largest size needed since ``slack_since_ms``.

    """

    decided_ms: int | None = None
    parallelism: int | None = None
    pressure_since_ms: int | None = None
    slack_since_ms: int | None = None
    slack_parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a job: the size to run with, the reason in figures, and the memory to pass to the next call."""

    action: Action
    parallelism: int
    workers: int | None
    reason: str
    memory: PolicyMemory


def decide(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> Decision:
    """Decide whether to rescale a job; the same arguments always give the same decision."""
    nothing = PolicyMemory(decided_ms=memory.decided_ms, parallelism=figures.parallelism)
    if figures.hindrance is not None:
        return _stay(figures, nothing, figures.hindrance)
    if figures.failures >= BLOCKS_AFTER:
        found, todo = blocked_words(figures.job, figures.failures, figures.failure)
        return _stay(figures, nothing, f"blocked: {found}; {todo}")
    cooldown_s = _cooldown_s(figures, settings, memory)
    sizes = _sizes(figures, settings)
    if not sizes[0] <= figures.parallelism <= sizes[-1]:
        allowed = min(max(figures.parallelism, sizes[0]), sizes[-1])
        why = f"parallelism {figures.parallelism} is outside the limits {sizes[0]} to {sizes[-1]}"
        if cooldown_s:
            return _stay(figures, nothing, _later(figures, why, cooldown_s))
        return _go(figures, settings, allowed, why)
    measured = throughput(figures)
    if measured is None or figures.arriving is None:
        return _stay(figures, nothing, f"too few measurements at parallelism {figures.parallelism} yet")
    needs = _Needs(figures, settings, measured, sizes)
    memory = _remember(figures, memory, needs.to_grow(), needs.to_shrink())
    if memory.pressure_since_ms is not None:
        target, since_ms, hold_s = needs.to_grow(), memory.pressure_since_ms, settings.scale_out_after_s
    elif memory.slack_since_ms is not None:
        target = memory.slack_parallelism or figures.parallelism
        since_ms, hold_s = memory.slack_since_ms, settings.scale_in_after_s
    else:
        return _stay(figures, memory, needs.words(figures.parallelism))
    held_s = (figures.at_ms - since_ms) / 1000
    why = f"{needs.words(target)}; this has lasted {held_s:.0f} s"
    if target > figures.parallelism and not needs.helps(target):
        return _stay(figures, memory, f"{why}, but a larger cluster would not help")
    if held_s < hold_s:
        return _stay(figures, memory, f"{why} of {hold_s:.0f} s")
    if cooldown_s:
        return _stay(figures, memory, _later(figures, why, cooldown_s))
    return _go(figures, settings, target, why)


def blocked_words(job: str, failures: int, failure: str) -> tuple[str, str]:
    """Return why a policy decides nothing more, and what to do."""
    return (
        f"the last {failures} rescales of this policy failed, the newest with: {failure or 'no reason given'}",
        f"remove the cause, then unblock the policy with `statecore policy set {job} --on`",
    )


def _sizes(figures: Figures, settings: PolicySettings) -> list[int]:
    """Return the allowed sizes, without larger ones than now that the cluster cannot have."""
    sizes = settings.sizes(figures.max_parallelism, by_worker=figures.workers is not None)
    if figures.workers is None or figures.max_workers is None:
        return sizes
    most = max(figures.parallelism, figures.max_workers * settings.subtasks_per_worker)
    return [size for size in sizes if size <= most] or sizes[:1]


@dataclass(frozen=True, slots=True)
class _Needs:
    """The capacity that a job needs, by its figures at one time."""

    figures: Figures
    settings: PolicySettings
    measured: Throughput
    sizes: list[int]

    def to_grow(self) -> int:
        """Return the needed size; the present one when it suffices, or nearly does."""
        now, settings = self.figures.parallelism, self.settings
        larger = next((size for size in self.sizes if size > now), now)
        late = larger if self._is_late() else now
        if not self.measured.fit.separated and self._waiting() <= 2 * self.measured.fit.rows:
            # With fixed and row cost not separated, back-to-back epochs seem to process just what arrives. Only a
            # backlog shows that they do not.
            return late
        pause_s = min((self.figures.rescale_ms or 0) / 1000, settings.catch_up_s / 2)
        left_s = settings.catch_up_s - pause_s
        drain = self._arriving() + (self._waiting() + self._arriving() * pause_s) / left_s
        needed = max(self._arriving() / settings.target_utilisation, drain)
        # A poor measurement widens the hysteresis.
        margin = 1 + settings.hysteresis + 2 * self.measured.fit.row_error
        if needed <= self.measured.rows_per_second(now) * margin:
            return late
        return max(self._smallest(needed), larger)

    def to_shrink(self) -> int:
        """Return the smallest size that suffices with the hysteresis; the present one when none does."""
        now, settings = self.figures.parallelism, self.settings
        steady = self._arriving() / (settings.target_utilisation * (1 - settings.hysteresis))
        drain = self._arriving() + self._waiting() / (settings.catch_up_s / _NEARLY_GONE)
        if self._is_late() or drain > max(steady, self.measured.rows_per_second(self.sizes[0])):
            return now
        return min(self._smallest(max(steady, drain)), now)

    def helps(self, parallelism: int) -> bool:
        """Return whether a size gains enough throughput to be worth a rescale."""
        present = self.measured.rows_per_second(self.figures.parallelism)
        # If epochs pause while rows wait, the trigger or the source limits the job, not the cluster.
        held_back = self.figures.busy is not None and self.figures.busy < _HELD_BACK
        return not held_back and self.measured.rows_per_second(parallelism) >= _GAIN * present

    def words(self, parallelism: int) -> str:
        """Describe the figures, and the throughput now and at a size."""
        figures, measured = self.figures, self.measured
        found = [f"{self._arriving():,.0f} rows/s arrive", f"{self._waiting():,.0f} rows wait"]
        if figures.lag_ms is not None:
            found.append(f"event-time lag {figures.lag_ms / 1000:,.0f} s")
        if figures.busy is not None:
            found.append(f"epochs run {figures.busy:.0%} of the time")
        least = "" if measured.fit.separated else "at least "
        can = f"{least}{measured.rows_per_second(figures.parallelism):,.0f} rows/s at parallelism {figures.parallelism}"
        if parallelism != figures.parallelism:
            scaling = "assumed linear" if measured.compared is None else f"{measured.scaling:.0%} of linear"
            can += f", {measured.rows_per_second(parallelism):,.0f} at {parallelism} (scaling {scaling})"
        elif parallelism == self.sizes[-1]:
            can += ", the largest allowed"
        return f"{', '.join(found)}; the job can do {can}"

    def _arriving(self) -> float:
        return self.figures.arriving or 0.0

    def _waiting(self) -> float:
        """Return the rows that wait; if no source reports them, estimate them from the lag beyond its limit."""
        figures = self.figures
        if figures.waiting is not None:
            return float(figures.waiting)
        return (figures.processed or 0.0) * self._late_s()

    def _late_s(self) -> float:
        lag_ms, limit_s = self.figures.lag_ms, self.settings.max_lag_s
        return 0.0 if lag_ms is None or limit_s is None else max(0.0, lag_ms / 1000 - limit_s)

    def _is_late(self) -> bool:
        # A silent source has lag as well; a larger cluster helps only when more rows wait than one epoch reads.
        return self._late_s() > 0 and self._waiting() > self.measured.fit.rows

    def _smallest(self, needed: float) -> int:
        rate, largest = self.measured.rows_per_second, self.sizes[-1]
        nearly = next(size for size in self.sizes if rate(size) >= _NEARLY * rate(largest))
        if nearly <= _FEWER * largest:
            largest = nearly
        return next((size for size in self.sizes if size < largest and rate(size) >= needed), largest)


def _remember(figures: Figures, memory: PolicyMemory, grown: int, shrunk: int) -> PolicyMemory:
    """Update the times since which a larger size is needed or a smaller one is enough."""
    now_ms, now = figures.at_ms, figures.parallelism
    if memory.parallelism != now:
        memory = PolicyMemory(decided_ms=memory.decided_ms)
    if grown > now:
        since_ms = now_ms if memory.pressure_since_ms is None else memory.pressure_since_ms
        return PolicyMemory(memory.decided_ms, now, pressure_since_ms=since_ms)
    if shrunk < now:
        since_ms = now_ms if memory.slack_since_ms is None else memory.slack_since_ms
        peak = max(shrunk, memory.slack_parallelism or shrunk)
        return PolicyMemory(memory.decided_ms, now, slack_since_ms=since_ms, slack_parallelism=peak)
    return PolicyMemory(memory.decided_ms, now)


def _cooldown_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    """Return the rest of the cooldown in seconds."""
    known_ms = (memory.decided_ms, figures.settled_ms, figures.ended_ms)
    changed_ms = [each for each in known_ms if each is not None]
    if not changed_ms:
        return 0.0
    cooldown_s = settings.cooldown_s
    if figures.failures:
        cooldown_s = max(cooldown_s, _AFTER_FAILURE_S) * 2**figures.failures
    return max(0.0, cooldown_s - (figures.at_ms - max(changed_ms)) / 1000)


def _later(figures: Figures, why: str, cooldown_s: float) -> str:
    after = f" after failures in a row: {figures.failures}" if figures.failures else ""
    return f"{why}; cooling down for another {cooldown_s:.0f} s{after}"


def _stay(figures: Figures, memory: PolicyMemory, why: str) -> Decision:
    return Decision("stay", figures.parallelism, figures.workers, why, memory)


def _go(figures: Figures, settings: PolicySettings, parallelism: int, why: str) -> Decision:
    action: Action = "out" if parallelism > figures.parallelism else "in"
    workers = None
    if figures.workers is not None:
        # A job may run with more subtasks on a worker than the settings say, or with fewer.
        toward = max if action == "out" else min
        workers = toward(figures.workers, settings.workers_for(parallelism))
    return Decision(action, parallelism, workers, why, PolicyMemory(figures.at_ms, figures.parallelism))
