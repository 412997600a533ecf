"""The effects of a policy's scale-outs: one that did not help is undone, and not tried again until the job changes.

A scale-out is judged once, soon after it: later, other changes affect the job. The measure is the cost of a row, which
does not depend on the size of epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from statecore.policy.diagnosis import BOTTLENECKS, Ailment, Diagnosis
from statecore.policy.figures import HOLDS_MS

# A scale-out helped if its gain is at least this share of the gain of linear scaling.
_HELPED = 0.2
# A smaller step shows too little.
_LEAST_STEP = 1.25
# The gain may be larger than measured by so many standard errors.
_DOUBT = 2.0
# A scale-out is judged between these times: the first epochs at a size are not typical.
_PROVEN_MS, _FORGOTTEN_MS = 120_000, 1_800_000
# A job has changed when the cost of a row at one size differs by this factor.
_CHANGED = 1.5


@dataclass(frozen=True, slots=True)
class Effect:
    """A scale-out.

    Attributes:
        before, after: Parallelism.
        row_ms: Cost of a row before.
        decided_ms: When it was decided.
        undone_ms: When it was undone, because it did not help; None if it was not.

    """

    before: int
    after: int
    row_ms: float
    decided_ms: int
    undone_ms: int | None = None


def useless(effects: Sequence[Effect], found: Diagnosis, parallelism: int) -> Effect | None:
    """Return the scale-out to the present size if it did not help."""
    effect = next((each for each in effects if each.after == parallelism and each.undone_ms is None), None)
    stuck = found.is_short and found.name in BOTTLENECKS - {Ailment.AT_LIMIT}
    if effect is None or not stuck or found.row_ms is None:
        return None
    gain, linear = effect.row_ms / found.row_ms - 1, effect.after / effect.before - 1
    return effect if gain + _DOUBT * found.row_error < _HELPED * linear else None


def barred(effects: Sequence[Effect], found: Diagnosis, parallelism: int) -> Diagnosis:
    """Return the diagnosis, without sizes beyond one from which a scale-out did not help."""
    undone = [each for each in effects if each.undone_ms is not None and parallelism <= each.before < found.parallelism]
    if found.name is not Ailment.TOO_SMALL or not undone:
        return found
    lowest = min(undone, key=lambda effect: effect.before)
    if lowest.before > parallelism:
        return replace(found, parallelism=lowest.before)
    return replace(
        found,
        name=Ailment.INEFFECTIVE,
        found=f"{found.found}; but parallelism {lowest.after} was tried, and rows cost no less than at {lowest.before}",
        todo="look on Spark's page for what the subtasks wait for; a changed job file or policy lifts this, or a day",
        parallelism=parallelism,
    )


def with_scale_out(
    effects: Sequence[Effect], found: Diagnosis, before: int, after: int, at_ms: int
) -> tuple[Effect, ...]:
    """Return the effects with a new scale-out, if it can be judged."""
    others = tuple(effect for effect in effects if effect.after != after)
    if found.row_ms is None or after < _LEAST_STEP * before:
        return others
    return (*others, Effect(before, after, found.row_ms, at_ms))


def with_undone(effects: Sequence[Effect], undone: Effect, at_ms: int) -> tuple[Effect, ...]:
    """Return the effects with one marked as undone."""
    return tuple(replace(effect, undone_ms=at_ms) if effect == undone else effect for effect in effects)


def still_true(
    effects: Sequence[Effect], found: Diagnosis, parallelism: int, at_ms: int, settled_ms: int | None
) -> tuple[Effect, ...]:
    """Return the effects that still hold: those not judged yet, and those undone lately."""

    def is_true(effect: Effect) -> bool:
        if effect.undone_ms is None:
            if at_ms - effect.decided_ms > _FORGOTTEN_MS:
                return False
            judged = is_due(parallelism, effect, at_ms, settled_ms) and found.row_ms is not None
            return not judged or useless([effect], found, parallelism) is not None
        changed = effect.before == parallelism and not _is_alike(effect, found)
        return at_ms - effect.undone_ms <= HOLDS_MS and not changed

    return tuple(filter(is_true, effects))


def is_due(parallelism: int, effect: Effect, at_ms: int, settled_ms: int | None) -> bool:
    """Return whether it is time to judge a scale-out."""
    return parallelism == effect.after and settled_ms is not None and at_ms - settled_ms >= _PROVEN_MS


def _is_alike(effect: Effect, found: Diagnosis) -> bool:
    return found.row_ms is None or 1 / _CHANGED < found.row_ms / effect.row_ms < _CHANGED
