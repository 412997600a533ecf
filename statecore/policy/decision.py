"""The decision: one pure function.

How many rows a second the job needs to process is the larger of

- what arrives, with room for peaks:         ``arriving / target utilisation``
- what drains the backlog in time:           ``arriving + waiting / catch-up time``

and the smallest size does that can. To grow, the need must lie beyond what there is by the hysteresis, and have done so
for a time. To shrink, a smaller size must do by the hysteresis, have been enough for a longer time, and the backlog be
nearly gone: otherwise half of a backlog would be drained by half of the cluster, and the rest for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statecore.policy.figures import Figures
from statecore.policy.settings import PolicySettings
from statecore.policy.throughput import Throughput, throughput

Action = Literal["out", "in", "stay"]

# Where fixed costs prevail, a fifth fewer subtasks may do nearly what the largest size does; they are then the limit.
_NEARLY, _FEWER = 0.95, 0.8
# A rescale has to be worth its interruption.
_GAIN = 1.1
# A job that needs more runs an epoch nearly all the time; half is left for a minute that began without rows.
_HELD_BACK = 0.5
# To shrink, what waits must be drained so many times sooner than the catch-up time asks.
_NEARLY_GONE = 10


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """What a policy remembers of a job from one look to the next.

    Attributes:
        decided_ms: When it last decided on a rescale.
        parallelism: What the job ran with at the last look; the rest is about that.
        pressure_since_ms: Since when more has been needed.
        slack_since_ms: Since when less has been enough.
        slack_parallelism: The largest that was needed since then.

    """

    decided_ms: int | None = None
    parallelism: int | None = None
    pressure_since_ms: int | None = None
    slack_since_ms: int | None = None
    slack_parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about a job.

    Attributes:
        action: Scale out, scale in, or stay.
        parallelism: What it should run with.
        workers: What its cluster should have; None for a job without one.
        reason: Why, with figures.
        memory: What to remember.

    """

    action: Action
    parallelism: int
    workers: int | None
    reason: str
    memory: PolicyMemory


def decide(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> Decision:
    """Decide what to do about a job; the same arguments always give the same decision."""
    nothing = PolicyMemory(decided_ms=memory.decided_ms, parallelism=figures.parallelism)
    if figures.hindrance is not None:
        return _stay(figures, nothing, figures.hindrance)
    rests_s = _rest_s(figures, settings, memory)
    sizes = settings.sizes(figures.max_parallelism, by_worker=figures.workers is not None)
    if not sizes[0] <= figures.parallelism <= sizes[-1]:
        allowed = min(max(figures.parallelism, sizes[0]), sizes[-1])
        why = f"parallelism {figures.parallelism} is outside of the limits {sizes[0]} to {sizes[-1]}"
        return _stay(figures, nothing, _later(why, rests_s)) if rests_s else _go(figures, settings, allowed, why)
    measured = throughput(figures)
    if measured is None or figures.arriving is None:
        return _stay(figures, nothing, f"too little has been measured at parallelism {figures.parallelism}")
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
    why = f"{needs.words(target)}; so for {held_s:.0f} s"
    if target > figures.parallelism and not needs.helps(target):
        return _stay(figures, memory, f"{why}, but a larger cluster would not help")
    if held_s < hold_s:
        return _stay(figures, memory, f"{why} of {hold_s:.0f} s")
    return _stay(figures, memory, _later(why, rests_s)) if rests_s else _go(figures, settings, target, why)


@dataclass(frozen=True, slots=True)
class _Needs:
    """How much a job needs, by the figures of one moment."""

    figures: Figures
    settings: PolicySettings
    measured: Throughput
    sizes: list[int]

    def to_grow(self) -> int:
        """Return the size that is needed; the present one when it does, or nearly."""
        now, settings = self.figures.parallelism, self.settings
        larger = next((size for size in self.sizes if size > now), now)
        late = larger if self._is_late() else now
        if not self.measured.fit.separated and self._waiting() <= 2 * self.measured.fit.rows:
            # Where the cost of a row holds its share of the fixed cost, epochs that follow each other seem to do just
            # what arrives. Only a backlog shows that they do not.
            return late
        pause_s = min((self.figures.rescale_ms or 0) / 1000, settings.catch_up_s / 2)
        left_s = settings.catch_up_s - pause_s
        drain = self._arriving() + (self._waiting() + self._arriving() * pause_s) / left_s
        needed = max(self._arriving() / settings.target_utilisation, drain)
        # What is measured badly must lie beyond by more.
        beyond = 1 + settings.hysteresis + 2 * self.measured.fit.row_error
        if needed <= self.measured.rows_per_second(now) * beyond:
            return late
        return max(self._smallest(needed), larger)

    def to_shrink(self) -> int:
        """Return the size that is enough, also when a little more is needed."""
        now, settings = self.figures.parallelism, self.settings
        steady = self._arriving() / (settings.target_utilisation * (1 - settings.hysteresis))
        drain = self._arriving() + self._waiting() / (settings.catch_up_s / _NEARLY_GONE)
        if self._is_late() or drain > max(steady, self.measured.rows_per_second(self.sizes[0])):
            return now
        return min(self._smallest(max(steady, drain)), now)

    def helps(self, parallelism: int) -> bool:
        """Return whether a size does enough more to be worth a rescale."""
        present = self.measured.rows_per_second(self.figures.parallelism)
        # Where epochs pause while rows wait, the trigger or the source holds the job back, and not the cluster.
        held_back = self.figures.busy is not None and self.figures.busy < _HELD_BACK
        return not held_back and self.measured.rows_per_second(parallelism) >= _GAIN * present

    def words(self, parallelism: int) -> str:
        """Say what was found, and what a size makes of it."""
        figures, measured = self.figures, self.measured
        found = [f"{self._arriving():,.0f} rows/s arrive", f"{self._waiting():,.0f} rows wait"]
        if figures.lag_ms is not None:
            found.append(f"event-time lag {figures.lag_ms / 1000:,.0f} s")
        if figures.busy is not None:
            found.append(f"epochs run {figures.busy:.0%} of the time")
        least = "" if measured.fit.separated else "at least "
        can = f"{least}{measured.rows_per_second(figures.parallelism):,.0f} rows/s at parallelism {figures.parallelism}"
        if parallelism != figures.parallelism:
            scaling = "taken for linear" if measured.compared is None else f"{measured.scaling:.0%} of linear"
            can += f", {measured.rows_per_second(parallelism):,.0f} at {parallelism} (scaling {scaling})"
        elif parallelism == self.sizes[-1]:
            can += ", the largest allowed"
        return f"{', '.join(found)}; the job can do {can}"

    def _arriving(self) -> float:
        return self.figures.arriving or 0.0

    def _waiting(self) -> float:
        """Return the rows that wait; where no source tells, those of the lag that is beyond its limit."""
        figures = self.figures
        if figures.waiting is not None:
            return float(figures.waiting)
        return (figures.processed or 0.0) * self._late_s()

    def _late_s(self) -> float:
        lag_ms, limit_s = self.figures.lag_ms, self.settings.max_lag_s
        return 0.0 if lag_ms is None or limit_s is None else max(0.0, lag_ms / 1000 - limit_s)

    def _is_late(self) -> bool:
        # A source that fell silent is late, too; a larger cluster mends that only where more waits than an epoch takes.
        return self._late_s() > 0 and self._waiting() > self.measured.fit.rows

    def _smallest(self, needed: float) -> int:
        rate, largest = self.measured.rows_per_second, self.sizes[-1]
        nearly = next(size for size in self.sizes if rate(size) >= _NEARLY * rate(largest))
        if nearly <= _FEWER * largest:
            largest = nearly
        return next((size for size in self.sizes if size < largest and rate(size) >= needed), largest)


def _remember(figures: Figures, memory: PolicyMemory, grown: int, shrunk: int) -> PolicyMemory:
    """Return since when more has been needed, or less enough."""
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


def _rest_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    """Return how long it is until something may be decided again."""
    changed_ms = [each for each in (memory.decided_ms, figures.settled_ms) if each is not None]
    if not changed_ms:
        return 0.0
    return max(0.0, settings.cooldown_s - (figures.at_ms - max(changed_ms)) / 1000)


def _later(why: str, rests_s: float) -> str:
    return f"{why}; cooling down for another {rests_s:.0f} s"


def _stay(figures: Figures, memory: PolicyMemory, why: str) -> Decision:
    return Decision("stay", figures.parallelism, figures.workers, why, memory)


def _go(figures: Figures, settings: PolicySettings, parallelism: int, why: str) -> Decision:
    workers = None if figures.workers is None else settings.workers_for(parallelism)
    action: Action = "out" if parallelism > figures.parallelism else "in"
    return Decision(action, parallelism, workers, why, PolicyMemory(figures.at_ms, figures.parallelism))
