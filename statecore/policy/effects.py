"""The effects of a policy's scale-outs: one that did not help is undone, and not tried again until the job changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from statecore.policy.diagnosis import BOTTLENECKS, Ailment, Diagnosis

# A scale-out helped if it brought at least this share of what linear scaling would have.
_HELPED = 0.2
# A job has changed when its throughput at one size differs by this factor.
_CHANGED = 1.5


@dataclass(frozen=True, slots=True)
class Effect:
    """A scale-out.

    Attributes:
        before, after: Parallelism.
        rate: Rows a second that the job could do before.
        undone: Whether it was undone, because it did not help.

    """

    before: int
    after: int
    rate: float
    undone: bool = False


def useless(effects: Sequence[Effect], found: Diagnosis, parallelism: int) -> Effect | None:
    """Return the scale-out to the present size if it did not help, and has not been undone."""
    if found.name not in BOTTLENECKS or found.rate is None:
        return None
    for effect in effects:
        if effect.after == parallelism and not effect.undone:
            gain, linear = found.rate / effect.rate - 1, effect.after / effect.before - 1
            return effect if gain < _HELPED * linear else None
    return None


def barred(effects: Sequence[Effect], found: Diagnosis, parallelism: int) -> Diagnosis:
    """Return a job's diagnosis without sizes beyond one from which a scale-out did not help."""
    undone = [effect for effect in effects if effect.undone and effect.before < found.parallelism]
    if found.name is not Ailment.TOO_SMALL or not undone:
        return found
    lowest = min(undone, key=lambda effect: effect.before)
    if lowest.before > parallelism:
        return replace(found, parallelism=lowest.before)
    return replace(
        found,
        name=Ailment.INEFFECTIVE,
        found=f"{found.found}; but parallelism {lowest.after} was tried, and did no more than {lowest.before}",
        todo="look on Spark's page for what the subtasks wait for; a changed job file or policy lifts this",
        parallelism=parallelism,
    )


def with_scale_out(effects: Sequence[Effect], before: int, after: int, rate: float | None) -> tuple[Effect, ...]:
    """Return the effects with a new scale-out; ``rate`` is None when it is not known what the job could do."""
    others = tuple(effect for effect in effects if effect.after != after)
    return others if rate is None else (*others, Effect(before, after, rate))


def with_undone(effects: Sequence[Effect], undone: Effect) -> tuple[Effect, ...]:
    """Return the effects with one marked as undone."""
    return tuple(replace(effect, undone=True) if effect == undone else effect for effect in effects)


def still_true(effects: Sequence[Effect], found: Diagnosis, parallelism: int) -> tuple[Effect, ...]:
    """Return the effects without those of a job whose rows had another cost."""
    rate = found.rate
    return tuple(
        effect
        for effect in effects
        if rate is None or effect.before != parallelism or 1 / _CHANGED < rate / effect.rate < _CHANGED
    )
