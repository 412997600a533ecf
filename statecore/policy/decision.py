"""Decides on a rescale: one pure function.

The diagnosis says what ails the job, and which size it needs; the decision, whether now is the time. The policy scales
out when a larger size has been needed for ``scale_out_after_s``. It scales in when smaller sizes have been enough for
``scale_in_after_s``, to the largest of them. A scale-in that had to be taken back doubles that time for sizes below the
one that it was taken back to, so that a load that comes and goes keeps the size that does both; a load that rises
slowly takes none back. A scale-out that did not help is undone, and not tried again until the job changes.

It rests for the cooldown after the end of a rescale. Each of its own rescales that fails doubles the next rest, and
after ``BLOCKS_AFTER`` in a row the policy waits for a person.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from statecore.policy.diagnosis import Ailment, Diagnosis, diagnose
from statecore.policy.effects import Effect, barred, is_due, still_true, useless, with_scale_out, with_undone
from statecore.policy.figures import Figures
from statecore.policy.limits import EpochLimit, known_limit
from statecore.policy.needs import SOON, allowed_sizes, fills_memory, within_limits
from statecore.policy.rules import held_back, in_one_step, scheduled
from statecore.policy.settings import PolicySettings

Action = Literal["out", "in", "stay"]

BLOCKS_AFTER = 3
"""A policy is blocked when this number of its rescales have failed in a row."""
# Shortest cooldown to double after a failure.
_AFTER_FAILURE_S = 60.0
# A scale-out within this many times scale_in_after_s after a scale-in, to more than this share of the size before it,
# takes it back, if the load returns at once: the job needs so many times its throughput. A load that rises slowly takes
# none back, for a larger size is there in time, unless too little was saved.
_TAKES_BACK, _BACK, _AT_ONCE = 6, 0.75, 1.5
# A scale-in to more than this share of the size saves too little; and one that saves less than this share of what can
# be saved now waits for the rest.
_SMALLER, _MOST = 0.8, 0.75
# The same where the load has fallen: what it needed before is forgotten within half an hour.
_ALL = 0.9
# A load that is lower for less than this share of scale_in_after_s ails nobody.
_BRIEF = 0.4
# (times its throughput that a job needs, share of scale_out_after_s that it waits then). Beyond twice, a spike of a
# minute and a half is still over before that. Beyond eight times, every epoch takes eight times as long as the one
# before, and a rescale waits for its end: soon that costs more than a scale-out that was not needed.
_SHORTER = ((8.0, 0.25), (2.0, 0.85))
# A scale-in must have been possible for so many times the downtime of a rescale: it then costs a twentieth of that.
_PRICE = 20
# A size that the policy did not choose is reduced by less than half only after so many times scale_in_after_s, six
# hours: a few minutes do not show why somebody chose it.
_HALF, _NOT_OURS = 0.5, 72
# A silent source may deliver again: so many times scale_in_after_s pass before a job of unknown throughput shrinks.
_SILENT = 2
# Most times that scale_in_after_s is doubled.
_DOUBLINGS = 5
_FIGURES = re.compile(r"[\d.,]+")


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """Memory of a job's policy between two decisions.

    Attributes:
        decided_ms: Time of the last decision to rescale.
        parallelism: Parallelism at the last look; the next four fields refer to it.
        pressure_since_ms: Time since which a larger size has been needed.
        slack_since_ms: Time since which smaller sizes have been enough.
        known_since_ms: Time since which needs are known.
        needed: (time, size), the sizes descending: the largest size needed since the time before, or since needs are
            known.
        shrunk_ms: Time of the last decision to scale in.
        shrunk_from: The size before it, and before those right before it.
        shrunk_to: The size that it was for.
        taken_back: Scale-ins that had to be taken back, less those that proved right.
        restored: The largest size that they were taken back to; 0 when there is none.
        effects: What earlier scale-outs brought, of this version of the job.
        version: ``Figures.version`` at the last look.
        chosen: Parallelism of the last decision to rescale; None once somebody else has set another one.
        limit: Of an epoch, as this version of the job has met it.
        held: Why nothing was done at the last look that changed nothing, beside the diagnosis and without figures, so
            that only another kind of reason is news.

    """

    decided_ms: int | None = None
    parallelism: int | None = None
    pressure_since_ms: int | None = None
    slack_since_ms: int | None = None
    needed: tuple[tuple[int, int], ...] = ()
    known_since_ms: int | None = None
    shrunk_ms: int | None = None
    shrunk_from: int | None = None
    shrunk_to: int | None = None
    taken_back: int = 0
    restored: int = 0
    effects: tuple[Effect, ...] = ()
    version: str = ""
    chosen: int | None = None
    limit: EpochLimit | None = None
    held: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a job.

    Attributes:
        parallelism, workers: The size to run with.
        reason: One sentence: what was found, what is done or not, and why, with figures.
        memory: To pass to the next call.
        diagnosis: What ails the job; None while too little is measured.

    """

    action: Action
    parallelism: int
    workers: int | None
    reason: str
    memory: PolicyMemory
    diagnosis: Diagnosis | None = None


def decide(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> Decision:
    """Decide whether to rescale a job; the same arguments always give the same decision."""
    if memory.version != figures.version:
        memory = replace(memory, version=figures.version, effects=(), limit=None)
    memory = replace(memory, limit=known_limit(memory.limit, figures))
    if memory.limit is not None:
        figures = replace(figures, epoch_limit=memory.limit.rows)
    if figures.parallelism not in (memory.parallelism, memory.chosen):
        # Somebody else has chosen this size.
        memory = replace(memory, chosen=None)
    found = diagnose(figures, settings)
    if found is not None:
        effects = still_true(memory.effects, found, figures.parallelism, figures.at_ms, figures.settled_ms)
        memory = replace(memory, effects=effects)
        found = _back(memory, barred(effects, found, figures.parallelism), figures.parallelism)
    nothing = _forget(memory, figures.parallelism)
    if figures.hindrance is not None:
        return _stay(figures, nothing, figures.hindrance, found)
    if figures.failures >= BLOCKS_AFTER:
        why, todo = blocked_words(figures.job, figures.failures, figures.failure)
        return _stay(figures, nothing, f"blocked: {why}; {todo}", found)
    held = held_back(figures, settings) or _cooling(figures, _cooldown_s(figures, settings, memory))
    sizes = allowed_sizes(figures, settings)
    limits = within_limits(figures, settings)
    if not limits[0] <= figures.parallelism <= limits[-1]:
        allowed = min(max(figures.parallelism, sizes[0]), sizes[-1])
        asked = scheduled(figures, settings)
        if asked is not None and figures.parallelism < min(asked.parallelism, limits[0]):
            why = asked.reason
        else:
            why = f"parallelism {figures.parallelism} is outside the limits {limits[0]} to {limits[-1]}"
        if held is not None:
            return _stay(figures, nothing, f"{why}; {held}", found)
        # Limits and schedules take back no scale-in: the load did not return.
        made = _go(figures, settings, _without_scale_in(nothing), allowed, why, found)
        # Nor do they show whether a larger size helps.
        return replace(made, memory=replace(made.memory, effects=nothing.effects))
    if found is None:
        return _unmeasured(figures, settings, memory, held)
    memory = _remember(figures, settings, memory, found)
    tried = useless(memory.effects, found, figures.parallelism)
    if (
        tried is not None
        and tried.before >= limits[0]
        and not fills_memory(figures, settings, tried.before)
        and is_due(figures.parallelism, tried, figures.at_ms, figures.settled_ms)
    ):
        return _undo(figures, settings, memory, tried, found, held)
    brief_ms = _BRIEF * 1000 * settings.scale_in_after_s
    if memory.slack_since_ms is not None and figures.at_ms - memory.slack_since_ms < brief_ms:
        found = replace(found, name=Ailment.HEALTHY)
    if memory.pressure_since_ms is not None:
        target, since_ms, hold_s = found.parallelism, memory.pressure_since_ms, _scale_out_after_s(settings, found)
    elif found.name is Ailment.TOO_LARGE and memory.known_since_ms is not None:
        since_ms = memory.known_since_ms
        target, hold_s = _for_long(figures, settings, memory, (figures.at_ms - since_ms) / 1000)
        if figures.parallelism != memory.chosen and target > _HALF * figures.parallelism:
            hold_s = _not_ours_s(figures, settings, memory)
            target = _needed_lately(figures, memory, hold_s)
    else:
        return _stay(figures, memory, found.text, found)
    held_s = (figures.at_ms - since_ms) / 1000
    if held_s < hold_s:
        return _stay(figures, memory, f"{found.text}; this has lasted {held_s:.0f} s of {hold_s:.0f} s", found)
    hindrance = _no_scale_in(figures, found, target) if found.name is Ailment.TOO_LARGE else None
    if hindrance is not None:
        return _stay(figures, memory, f"{found.text}; {hindrance}", found)
    why = f"{found.text}; this has lasted {held_s:.0f} s"
    if held is not None:
        return _stay(figures, memory, f"{why}; {held}", found)
    return _go(figures, settings, memory, target, why, found)


def _unmeasured(figures: Figures, settings: PolicySettings, memory: PolicyMemory, held: str | None) -> Decision:
    """Decide on a job with too few measurements; if the policy chose its size, for what is gone now, it shrinks."""
    now, nothing = figures.parallelism, _forget(memory, figures.parallelism)
    why = f"too few measurements at parallelism {now} yet"
    fits = (size for size in allowed_sizes(figures, settings) if not fills_memory(figures, settings, size))
    smallest = next(fits, now)
    if now != memory.chosen or figures.waiting != 0 or figures.arriving != 0 or smallest >= now:
        return _stay(figures, nothing, why, None)
    known_ms = memory.slack_since_ms if memory.parallelism == now else None
    since_ms = figures.at_ms if known_ms is None else known_ms
    hold_s = _SILENT * _scale_in_after_s(figures, settings, memory)
    held_s = (figures.at_ms - since_ms) / 1000
    why = f"{why}, but nothing arrives and nothing waits; this has lasted {held_s:.0f} s"
    if held_s < hold_s or held is not None:
        why += f"; {held}" if held_s >= hold_s else f" of {hold_s:.0f} s"
        return _stay(figures, replace(nothing, slack_since_ms=since_ms), why, None)
    return _go(figures, settings, replace(nothing, slack_since_ms=since_ms), smallest, why, None)


def _no_scale_in(figures: Figures, found: Diagnosis, target: int) -> str | None:
    """Return why a job that has been too large for long stays as it is; None when it need not."""
    if target >= figures.parallelism:
        return "but not for what arrived lately"
    if target > _SMALLER * figures.parallelism:
        return f"{target} would not be worth a rescale"
    soon, most = (found.parallelism, _ALL) if found.has_fallen else (max(found.parallelism, found.kept_long), _MOST)
    if figures.parallelism - target < most * (figures.parallelism - soon):
        return "soon still less will have been enough for long"
    if target < found.just_now:
        return f"but just now more arrives than {target} can do"
    return None


def _back(memory: PolicyMemory, found: Diagnosis, parallelism: int) -> Diagnosis:
    """Return a job's diagnosis with the size to go back to if only since a scale-in the source's limit is too low."""
    larger = min(found.despite_limit, memory.shrunk_from or 0)
    if larger <= parallelism:
        return found
    return replace(found, todo=f"{found.todo}, so the scale-in is taken back", parallelism=larger)


def blocked_words(job: str, failures: int, failure: str) -> tuple[str, str]:
    """Return why a policy decides nothing more, and what to do."""
    return (
        f"the last {failures} rescales of this policy failed, the newest with: {failure or 'no reason given'}",
        f"remove the cause, then unblock the policy with `statecore policy set {job} --on`",
    )


def _remember(figures: Figures, settings: PolicySettings, memory: PolicyMemory, found: Diagnosis) -> PolicyMemory:
    """Update the time since which a larger size is needed, and the sizes that were needed."""
    now_ms, now = figures.at_ms, figures.parallelism
    if memory.parallelism != now:
        memory = _forget(memory, now)
    pressure_ms = slack_ms = None
    if found.parallelism > now:
        pressure_ms = now_ms if memory.pressure_since_ms is None else memory.pressure_since_ms
    elif found.parallelism < now:
        slack_ms = now_ms if memory.slack_since_ms is None else memory.slack_since_ms
    # Up to a size that a scale-in was taken back to, what arrived longer ago counts.
    latest = max(found.parallelism, found.kept, min(found.kept_long, _restored(figures, settings, memory)))
    # Of sizes needed one after the other, only those matter that no later one exceeds.
    needed = [each for each in memory.needed if each[1] > latest]
    needed.append((now_ms, latest))
    from_ms = now_ms - 1000 * _not_ours_s(figures, settings, memory)
    while len(needed) > 1 and needed[0][0] < from_ms:
        del needed[0]
    return replace(
        memory,
        pressure_since_ms=pressure_ms,
        slack_since_ms=slack_ms,
        needed=tuple(needed),
        known_since_ms=now_ms if memory.known_since_ms is None else memory.known_since_ms,
    )


def _needed_lately(figures: Figures, memory: PolicyMemory, within_s: float) -> int:
    """Return the largest size that was needed lately."""
    from_ms = figures.at_ms - 1000 * within_s
    return next(size for at_ms, size in memory.needed if at_ms >= from_ms)


def _for_long(figures: Figures, settings: PolicySettings, memory: PolicyMemory, known_s: float) -> tuple[int, float]:
    """Return the size that has been enough for as long as it has to be, and for how long that is, in seconds.

    A size that a scale-in had to be taken back to says nothing about larger ones, so only smaller ones wait longer.
    """
    least_s, long_s = _least_scale_in_after_s(figures, settings), _scale_in_after_s(figures, settings, memory)
    target, restored = _needed_lately(figures, memory, least_s), _restored(figures, settings, memory)
    if target >= restored:
        return target, least_s
    if known_s < long_s and restored < figures.parallelism:
        return restored, least_s
    return max(target, min(restored, _needed_lately(figures, memory, long_s))), long_s


def _restored(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> int:
    """Return the size below which scale-ins wait longer; settings may have changed, so it is one that they allow."""
    sizes = allowed_sizes(figures, settings)
    return next((size for size in sizes if size >= memory.restored), sizes[-1]) if memory.restored else 0


def _forget(memory: PolicyMemory, parallelism: int) -> PolicyMemory:
    """Return the memory without what refers to another parallelism, or to a time before an interruption."""
    return replace(
        memory,
        parallelism=parallelism,
        pressure_since_ms=None,
        slack_since_ms=None,
        needed=(),
        known_since_ms=None,
    )


def _scale_out_after_s(settings: PolicySettings, found: Diagnosis) -> float:
    """Return the hold time; a job that needs many times its throughput does not get well by itself."""
    share = next((share for shortage, share in _SHORTER if found.shortage > shortage), 1.0)
    return settings.scale_out_after_s * share


def _scale_in_after_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    return _least_scale_in_after_s(figures, settings) * 2.0 ** min(memory.taken_back, _DOUBLINGS)


def _least_scale_in_after_s(figures: Figures, settings: PolicySettings) -> float:
    return max(settings.scale_in_after_s, _PRICE * (figures.downtime_ms or 0) / 1000)


def _not_ours_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    """Return the hold time of a small scale-in from a size that the policy did not choose."""
    return max(_scale_in_after_s(figures, settings, memory), _NOT_OURS * settings.scale_in_after_s)


def _cooldown_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    """Return the rest of the cooldown in seconds."""
    changed_ms = [each for each in (memory.decided_ms, figures.ended_ms) if each is not None]
    before = (each.committed_ms for each in reversed(figures.epochs) if each.parallelism != figures.parallelism)
    before_ms = next(before, math.inf)
    # A job that is rescaled while it is idle settles with its first epoch, however long after that.
    if figures.settled_ms is not None and max(changed_ms, default=-math.inf) < before_ms:
        changed_ms.append(figures.settled_ms)
    if not changed_ms:
        return 0.0
    cooldown_s = settings.cooldown_s
    if figures.failures:
        cooldown_s = max(cooldown_s, _AFTER_FAILURE_S) * 2**figures.failures
    return max(0.0, cooldown_s - (figures.at_ms - max(changed_ms)) / 1000)


def _cooling(figures: Figures, cooldown_s: float) -> str | None:
    if not cooldown_s:
        return None
    after = f" after failures in a row: {figures.failures}" if figures.failures else ""
    return f"cooling down for another {cooldown_s:.0f} s{after}"


def _stay(figures: Figures, memory: PolicyMemory, why: str, found: Diagnosis | None) -> Decision:
    held = _FIGURES.sub("", why.removeprefix("" if found is None else found.text))
    return Decision("stay", figures.parallelism, figures.workers, why, replace(memory, held=held), found)


def _go(
    figures: Figures,
    settings: PolicySettings,
    memory: PolicyMemory,
    parallelism: int,
    why: str,
    found: Diagnosis | None,
) -> Decision:
    wanted = parallelism
    parallelism, note = in_one_step(figures, settings, wanted)
    why += note
    if figures.downtime_ms:
        why += f"; the rescale stops the job for about {figures.downtime_ms / 1000:.0f} s"
    action: Action = "out" if parallelism > figures.parallelism else "in"
    workers = None
    if figures.workers is not None:
        # A job may run with more subtasks on a worker than the settings say, or with fewer.
        toward = max if action == "out" else min
        workers = toward(figures.workers, settings.workers_for(parallelism))
    if settings.observe:
        # Nothing changes, so the need goes on, and nothing will have to be taken back.
        return Decision(action, parallelism, workers, why, replace(memory, decided_ms=figures.at_ms), found)
    memory = _with_scale_ins(figures, settings, memory, wanted, parallelism, found)
    effects = memory.effects
    if found is not None and found.name is Ailment.TOO_SMALL:
        effects = with_scale_out(effects, found, figures.parallelism, parallelism, figures.at_ms)
    after = replace(
        _forget(memory, figures.parallelism),
        decided_ms=figures.at_ms,
        effects=effects,
        chosen=parallelism,
    )
    return Decision(action, parallelism, workers, why, after, found)


def _with_scale_ins(
    figures: Figures, settings: PolicySettings, memory: PolicyMemory, wanted: int, to: int, found: Diagnosis | None
) -> PolicyMemory:
    """Return the memory of scale-ins after a decision: the last ones, and how many had to be taken back.

    The job wants a size, and one step gets it to another one on the way.
    """
    now_ms, now, shrunk_ms = figures.at_ms, figures.parallelism, memory.shrunk_ms
    within_ms = _TAKES_BACK * 1000 * _scale_in_after_s(figures, settings, memory)
    is_new = shrunk_ms is not None and now_ms - shrunk_ms < within_ms
    # Since then nothing has risen.
    goes_on = now == memory.shrunk_to
    if shrunk_ms is not None and not is_new and goes_on and now < memory.restored:
        memory = _proved(memory)
    before = memory.shrunk_from if is_new else None
    if wanted < now:
        from_ = before if before is not None and goes_on else now
        return replace(memory, shrunk_ms=now_ms, shrunk_from=from_, shrunk_to=to)
    if before is not None and not _takes_back(figures, settings, memory, wanted, found):
        return _without_scale_in(memory) if wanted >= before else memory
    memory = _without_scale_in(memory)
    if not is_new:
        return memory
    return replace(memory, taken_back=memory.taken_back + 1, restored=max(memory.restored, wanted))


def _proved(memory: PolicyMemory) -> PolicyMemory:
    """Return the memory after a scale-in that proved right."""
    taken_back = max(0, memory.taken_back - 1)
    return replace(memory, taken_back=taken_back, restored=memory.restored if taken_back else 0)


def _takes_back(
    figures: Figures, settings: PolicySettings, memory: PolicyMemory, wanted: int, found: Diagnosis | None
) -> bool:
    """Return whether a scale-out soon after a scale-in takes that back; one for the limit of the source always does."""
    if found is not None and found.name is Ailment.SOURCE_BOUND:
        return True
    if wanted <= _BACK * min(memory.shrunk_from or 0, settings.max_parallelism):
        return False
    soon_ms = SOON * 1000 * _least_scale_in_after_s(figures, settings)
    saved_little = figures.at_ms - (memory.shrunk_ms or 0) <= soon_ms
    # What is missing is not always throughput.
    return found is None or not found.is_short or saved_little or found.shortage >= _AT_ONCE


def _without_scale_in(memory: PolicyMemory) -> PolicyMemory:
    return replace(memory, shrunk_ms=None, shrunk_from=None, shrunk_to=None)


def _undo(
    figures: Figures, settings: PolicySettings, memory: PolicyMemory, tried: Effect, found: Diagnosis, held: str | None
) -> Decision:
    """Return to the size before a scale-out that did not help; it counts as no scale-in that may be taken back."""
    cost_ms = f"a row costs {found.row_ms:.3g} ms, as against {tried.row_ms:.3g} ms"
    why = f"{found.text}; parallelism {tried.after} does not help, {cost_ms} at {tried.before}"
    if held is not None:
        return _stay(figures, memory, f"{why}; {held}", found)
    made = _go(figures, settings, memory, tried.before, f"{why}; this is undone", found)
    if settings.observe:
        return made
    effects = with_undone(made.memory.effects, tried, figures.at_ms)
    kept = replace(
        made.memory,
        shrunk_ms=memory.shrunk_ms,
        shrunk_from=memory.shrunk_from,
        shrunk_to=memory.shrunk_to,
        taken_back=memory.taken_back,
        restored=memory.restored,
        effects=effects,
    )
    return replace(made, memory=kept)
