"""Decides on a rescale: one pure function.

The diagnosis names the bottleneck and the size that the job needs; the decision says whether to rescale now. The policy
scales out when a larger size has been needed for ``scale_out_after_s``. It scales in when smaller sizes have sufficed
for ``scale_in_after_s``, to the largest of them. It undoes a scale-out that did not help, and does not repeat it until
the job changes.

After a rescale it waits for the cooldown. Each failure of its own rescales doubles the cooldown. After ``BLOCKS_AFTER``
failures in a row it waits for a person.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from statecore.policy.diagnosis import Ailment, Diagnosis, diagnose
from statecore.policy.effects import Effect, barred, is_due, still_true, useless, with_scale_out, with_undone
from statecore.policy.figures import Figures
from statecore.policy.limits import known_limit
from statecore.policy.memory import PolicyMemory, forget
from statecore.policy.needs import allowed_sizes, fills_memory, limits
from statecore.policy.rules import held_back, in_one_step, scheduled
from statecore.policy.scale_ins import enough_for_long, remember, scale_in_after_s, with_scale_ins, without_scale_in
from statecore.policy.settings import PolicySettings

Action = Literal["out", "in", "stay"]

BLOCKS_AFTER = 3
"""A policy is blocked when this number of its rescales have failed in a row."""
# Shortest cooldown to double after a failure.
_AFTER_FAILURE_S = 60.0
# A scale-in to more than the first share of the size saves too little. One that saves less than the second share of the
# possible saving waits for the rest.
_SMALLER, _MOST = 0.8, 0.75
# The second share after a fall of the load: the earlier need is forgotten within half an hour.
_ALL = 0.9
# A job is diagnosed too large only after this share of scale_in_after_s.
_BRIEF = 0.4
# (need as a multiple of the throughput, share of scale_out_after_s to wait). Beyond twice, a spike of 90 seconds still
# ends before the rescale. Beyond eight times, each epoch takes eight times as long as the last, and a rescale waits for
# the end of one: that soon costs more than a needless scale-out.
_SHORTER = ((8.0, 0.25), (2.0, 0.85))
# A job of unknown throughput shrinks after this many times scale_in_after_s: a silent source may deliver again.
_SILENT = 2
# Ask for workers this long before the running epoch ends, or earlier if earlier scale-outs took longer.
_ASKED_EARLIER_S = 300.0
_FIGURES = re.compile(r"[\d.,]+")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a job.

    Attributes:
        parallelism, workers: The size to run with.
        reason: One sentence with figures: the diagnosis, the action or its absence, and why.
        memory: Pass it to the next call.
        diagnosis: The diagnosis; None while too little is measured.

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
    diagnosis = diagnose(figures, settings)
    if diagnosis is not None:
        effects = still_true(memory.effects, diagnosis, figures.parallelism, figures.at_ms, figures.settled_ms)
        memory = replace(memory, effects=effects)
        diagnosis = _back(memory, barred(effects, diagnosis, figures.parallelism), figures.parallelism)
    nothing = forget(memory, figures.parallelism)
    if figures.hindrance is not None:
        return _stay(figures, nothing, _also(diagnosis, figures.hindrance), diagnosis)
    if figures.failures >= BLOCKS_AFTER:
        why, todo = blocked_words(figures.job, figures.failures, figures.failure)
        return _stay(figures, nothing, _also(diagnosis, f"blocked: {why}; {todo}"), diagnosis)
    held = held_back(figures, settings) or _cooling(figures, _cooldown_s(figures, settings, memory))
    sizes = allowed_sizes(figures, settings)
    lowest, highest = limits(figures, settings)
    if not lowest <= figures.parallelism <= highest:
        allowed = min(max(figures.parallelism, sizes[0]), sizes[-1])
        asked = scheduled(figures, settings)
        if asked is not None and figures.parallelism < min(asked.parallelism, lowest):
            why = asked.reason
        else:
            why = f"parallelism {figures.parallelism} is outside the limits {lowest} to {highest}"
        if diagnosis is not None and diagnosis.todo:
            why = _also(diagnosis, why)
        if held is not None:
            return _stay(figures, nothing, f"{why}; {held}", diagnosis)
        # Limits and schedules do not revert a scale-in: the load did not return.
        made = _go(figures, settings, without_scale_in(nothing), allowed, why, diagnosis)
        # They do not show whether a larger size helps either.
        return replace(made, memory=replace(made.memory, effects=nothing.effects))
    if diagnosis is None:
        return _unmeasured(figures, settings, memory, held)
    memory = remember(figures, settings, memory, diagnosis)
    tried = useless(memory.effects, diagnosis, figures.parallelism)
    if (
        tried is not None
        and tried.before >= lowest
        and not fills_memory(figures, settings, tried.before)
        and is_due(figures.parallelism, tried, figures.at_ms, figures.settled_ms)
    ):
        return _undo(figures, settings, memory, tried, diagnosis, held)
    brief_ms = _BRIEF * 1000 * settings.scale_in_after_s
    if memory.slack_since_ms is not None and figures.at_ms - memory.slack_since_ms < brief_ms:
        diagnosis = replace(diagnosis, name=Ailment.HEALTHY)
    if memory.pressure_since_ms is not None:
        target, since_ms, hold_s = (
            diagnosis.parallelism,
            memory.pressure_since_ms,
            _scale_out_after_s(settings, diagnosis),
        )
    elif diagnosis.name is Ailment.TOO_LARGE and memory.known_since_ms is not None:
        since_ms = memory.known_since_ms
        target, hold_s = enough_for_long(figures, settings, memory, (figures.at_ms - since_ms) / 1000)
    else:
        done = "" if diagnosis.todo else f"; parallelism {figures.parallelism} stays"
        return _stay(figures, memory, diagnosis.text + done, diagnosis)
    held_s = (figures.at_ms - since_ms) / 1000
    if held_s < hold_s:
        return _stay(figures, memory, f"{diagnosis.text}; this has lasted {held_s:.0f} s of {hold_s:.0f} s", diagnosis)
    hindrance = _no_scale_in(figures, diagnosis, target) if diagnosis.name is Ailment.TOO_LARGE else None
    if hindrance is not None:
        return _stay(figures, memory, f"{diagnosis.text}; {hindrance}", diagnosis)
    why = f"{diagnosis.text}; this has lasted {held_s:.0f} s"
    held = held or _epoch_first(figures, diagnosis)
    if held is not None:
        return _stay(figures, memory, f"{why}; {held}", diagnosis)
    return _go(figures, settings, memory, target, why, diagnosis)


def _unmeasured(figures: Figures, settings: PolicySettings, memory: PolicyMemory, held: str | None) -> Decision:
    """Decide on a job with too few measurements: shrink it if the policy chose its size and its input has ended."""
    now, nothing = figures.parallelism, forget(memory, figures.parallelism)
    why = f"too few measurements at parallelism {now} yet"
    fits = (size for size in allowed_sizes(figures, settings) if not fills_memory(figures, settings, size))
    smallest = next(fits, now)
    if now != memory.chosen or figures.waiting != 0 or figures.arriving != 0 or smallest >= now:
        return _stay(figures, nothing, why, None)
    known_ms = memory.slack_since_ms if memory.parallelism == now else None
    since_ms = figures.at_ms if known_ms is None else known_ms
    hold_s = _SILENT * scale_in_after_s(figures, settings, memory)
    held_s = (figures.at_ms - since_ms) / 1000
    why = f"{why}, but nothing arrives and nothing waits; this has lasted {held_s:.0f} s"
    if held_s < hold_s or held is not None:
        why += f"; {held}" if held_s >= hold_s else f" of {hold_s:.0f} s"
        return _stay(figures, replace(nothing, slack_since_ms=since_ms), why, None)
    return _go(figures, settings, replace(nothing, slack_since_ms=since_ms), smallest, why, None)


def _epoch_first(figures: Figures, diagnosis: Diagnosis) -> str | None:
    """Return why not to scale out yet: workers would idle until the running epoch ends; None to scale out now."""
    goes_on_s = diagnosis.epoch_goes_on_s
    if goes_on_s <= max(_ASKED_EARLIER_S, (figures.rescale_ms or 0) / 1000):
        return None
    return f"but the running epoch, which a rescale waits for, goes on for another {goes_on_s:.0f} s at least"


def _no_scale_in(figures: Figures, diagnosis: Diagnosis, target: int) -> str | None:
    """Return why a job that is too large is not scaled in yet; None if it may be."""
    if target >= figures.parallelism:
        return "but not for what arrived lately"
    if target > _SMALLER * figures.parallelism:
        return f"{target} would not be worth a rescale"
    soon, most = (
        (diagnosis.parallelism, _ALL)
        if diagnosis.has_fallen
        else (max(diagnosis.parallelism, diagnosis.kept_long), _MOST)
    )
    if figures.parallelism - target < most * (figures.parallelism - soon):
        return "soon still less will have been enough for long"
    if target < diagnosis.just_now:
        return f"but just now too much arrives for {target}"
    return None


def _also(diagnosis: Diagnosis | None, hindrance: str) -> str:
    """Return the diagnosis, if any, and the reason why the policy does nothing."""
    return hindrance if diagnosis is None else f"{diagnosis.text}; {hindrance}"


def _back(memory: PolicyMemory, diagnosis: Diagnosis, parallelism: int) -> Diagnosis:
    """Return the diagnosis, with the size to go back to if the last scale-in has made the source's limit too low."""
    larger = min(diagnosis.despite_limit, memory.shrunk_from or 0)
    if larger <= parallelism:
        return diagnosis
    return replace(diagnosis, todo=f"{diagnosis.todo}, so the scale-in is taken back", parallelism=larger)


def blocked_words(job: str, failures: int, failure: str) -> tuple[str, str]:
    """Return why a policy is blocked, and what to do."""
    return (
        f"the last {failures} rescales of this policy failed, the newest with: {failure or 'no reason given'}",
        f"remove the cause, then unblock the policy with `statecore policy set {job} --on`",
    )


def _scale_out_after_s(settings: PolicySettings, diagnosis: Diagnosis) -> float:
    """Return the hold time; shorter for a job that needs many times its throughput and will not recover by itself."""
    share = next((share for shortage, share in _SHORTER if diagnosis.shortage > shortage), 1.0)
    return settings.scale_out_after_s * share


def _cooldown_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    """Return the remaining cooldown in seconds."""
    changed_ms = [each for each in (memory.decided_ms, figures.ended_ms) if each is not None]
    before = (each.committed_ms for each in reversed(figures.epochs) if each.parallelism != figures.parallelism)
    before_ms = next(before, math.inf)
    # A job rescaled while idle settles with its first epoch, however much later.
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


def _stay(figures: Figures, memory: PolicyMemory, why: str, diagnosis: Diagnosis | None) -> Decision:
    held = _FIGURES.sub("", why.removeprefix("" if diagnosis is None else diagnosis.text).removeprefix("; "))
    return Decision("stay", figures.parallelism, figures.workers, why, replace(memory, held=held), diagnosis)


def _go(
    figures: Figures,
    settings: PolicySettings,
    memory: PolicyMemory,
    parallelism: int,
    why: str,
    diagnosis: Diagnosis | None,
) -> Decision:
    wanted = parallelism
    parallelism, note = in_one_step(figures, settings, wanted)
    why += note
    if figures.downtime_ms:
        why += f"; the rescale stops the job for about {figures.downtime_ms / 1000:.0f} s"
    action: Action = "out" if parallelism > figures.parallelism else "in"
    workers = None
    if figures.workers is not None:
        # The current number of subtasks per worker may differ from the settings.
        toward = max if action == "out" else min
        workers = toward(figures.workers, settings.workers_for(parallelism))
    if settings.observe:
        # Nothing changes, so the memory of needs and scale-ins stays.
        return Decision(action, parallelism, workers, why, replace(memory, decided_ms=figures.at_ms), diagnosis)
    memory = with_scale_ins(figures, settings, memory, wanted, parallelism, diagnosis)
    effects = memory.effects
    if diagnosis is not None and diagnosis.name is Ailment.TOO_SMALL:
        effects = with_scale_out(effects, diagnosis, figures.parallelism, parallelism, figures.at_ms)
    after = replace(
        forget(memory, figures.parallelism),
        decided_ms=figures.at_ms,
        effects=effects,
        chosen=parallelism,
    )
    return Decision(action, parallelism, workers, why, after, diagnosis)


def _undo(
    figures: Figures,
    settings: PolicySettings,
    memory: PolicyMemory,
    tried: Effect,
    diagnosis: Diagnosis,
    held: str | None,
) -> Decision:
    """Return to the size before a scale-out that did not help; this is no scale-in that may be reverted."""
    cost_ms = f"a row costs {diagnosis.row_ms:.3g} ms, as against {tried.row_ms:.3g} ms"
    why = f"{diagnosis.text}; parallelism {tried.after} does not help, {cost_ms} at {tried.before}"
    if held is not None:
        return _stay(figures, memory, f"{why}; {held}", diagnosis)
    made = _go(figures, settings, memory, tried.before, f"{why}; this is undone", diagnosis)
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
