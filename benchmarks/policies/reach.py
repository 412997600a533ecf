"""Shows of a goal that was missed why a policy without foresight does not reach it.

Peers may do well by luck: one that runs at twice the size before a load rises is not late when it does, and pays for it
wherever the load does not rise. Until then both jobs look alike. So minutes late are out of reach when each size that
also meets the goals had nothing happened is late for longer, even if another one is asked for as soon as it can be
known. Core-hours are out of reach when the rows alone cost more: the peer that sets the goal leaves them waiting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from benchmarks.policies.goals import Goal, goals
from benchmarks.policies.random_shapes import SPIKES_S
from benchmarks.policies.shapes import Shape
from benchmarks.policies.simulations import OURS, PEERS
from statecore.simulator import Answer, Outcome, Trace, World, player, simulate
from statecore.simulator.job import SimulatedJob

# So long before a surprise the rate is that of the shape without it.
_BEFORE_S = 600.0


@dataclass(frozen=True, slots=True)
class Surprise:
    """What nobody can know before: when it begins, and from when on a policy can do something about it.

    Attributes:
        by_epoch: Only an epoch that began then and is done shows that something can be done.

    """

    at_s: float
    answered_s: float
    by_epoch: bool = False


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Keeps a size until a surprise can be answered, and asks for another one then."""

    size: int
    then: int
    surprise: Surprise

    def starts_with(self, world: World) -> int:
        """Return the size that is kept."""
        del world
        return self.size

    def look(self, job: SimulatedJob) -> Answer:
        """Return the other size, if a policy may know by now."""
        answered_s = self.surprise.answered_s
        known_s = job.epochs[-1].started_s if self.surprise.by_epoch and job.epochs else job.now_s
        return Answer(self.then if known_s >= answered_s else None)


def explained(shape: Shape, goal: Goal, ours: Outcome) -> Goal:
    """Return a goal; one that was missed, with the reason why it is out of reach, if one is known."""
    why = ""
    if not goal.holds and goal.most is not None:
        if goal.name == "core-hours":
            why = _by_work(shape, goal.most, ours)
        else:
            why = next(filter(None, (_by_surprise(shape, each, goal.most) for each in _surprises(shape))), "")
    return replace(goal, out_of_reach=why)


def _by_work(shape: Shape, most: float, ours: Outcome) -> str:
    rows = shape.trace.arrived(shape.trace.end_s) - ours.samples[-1].waiting
    core_hours = rows * (shape.world.row_us + shape.world.sink_us_per_row) / 3.6e9
    return f"the rows that ours processed take {core_hours:.1f} core-hours alone" if core_hours > most else ""


def _surprises(shape: Shape) -> Iterator[Surprise]:
    """Yield what happens after the start of a shape, if it is told apart from other shapes."""
    stays, outages = shape.expected.stays, shape.world.outages
    if outages:
        # A job that fails is not rescaled: the cause has to go first.
        yield Surprise(outages[0][0], outages[-1][1])
    elif stays is not None and stays[0] > 0:
        yield Surprise(*stays, by_epoch=True)
    rates = dict(zip(shape.trace.times_s, shape.trace.rates, strict=False))
    for at_s in shape.expected.levels:
        if at_s > 0 and rates[at_s] > _before(shape.trace, at_s):
            # Until then it may be a spike, which is no reason for a rescale.
            yield Surprise(at_s, at_s + max(SPIKES_S))


def _by_surprise(shape: Shape, surprise: Surprise, most: float) -> str:
    """Return that no size is enough that is right without the surprise; empty when one is, or none is right."""
    calm = _calm(shape, surprise.at_s)
    peers = {name: simulate(calm.trace, calm.world, player(name, calm.world)) for name in PEERS}
    least = math.inf
    for size in range(shape.world.min_parallelism, shape.world.max_parallelism + 1):
        found = goals(calm, peers | {OURS: simulate(calm.trace, calm.world, player(f"fixed:{size}", calm.world))})
        if not all(goal.holds for goal in found if goal.name == "SLO"):
            continue
        if not all(goal.holds for goal in found):
            # Larger ones are still dearer.
            break
        least = min(least, _late_after(shape, surprise, size))
    if least <= most or math.isinf(least):
        return ""
    return f"{least:.2f} min with the best of the sizes that are right had nothing happened at {surprise.at_s:.0f} s"


def _calm(shape: Shape, until_s: float) -> Shape:
    """Return a shape as if nothing happened at a time and after."""
    trace, world = shape.trace, msgspec.structs.replace(shape.world, outages=(), sink_slow=())
    calm = Trace((0.0, trace.end_s), (_before(trace, until_s),))
    return Shape(shape.name, f"{shape.what}, without a surprise", calm, world)


def _before(trace: Trace, at_s: float) -> float:
    from_s = max(0.0, at_s - _BEFORE_S)
    return (trace.arrived(at_s) - trace.arrived(from_s)) / (at_s - from_s)


def _late_after(shape: Shape, surprise: Surprise, size: int) -> float:
    """Return the fewest minutes late from a surprise on."""
    trace, world = shape.trace, shape.world
    times_s = [at_s for at_s in trace.times_s if at_s < surprise.at_s]
    before = Trace((*times_s, surprise.at_s), trace.rates[: len(times_s)])
    largest = world.max_parallelism
    # An epoch that begins before a sink recovers is slow as a whole, so a faster job may be late for longer.
    answers = range(size, largest + 1) if world.sink_slow else [largest]
    late = min(simulate(trace, world, Hindsight(size, answer, surprise)).slo_minutes for answer in answers)
    return late - simulate(before, world, Hindsight(size, size, surprise)).slo_minutes
