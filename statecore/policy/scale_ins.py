"""Scale-ins: how long each has to wait, and the memory of those that were reverted.

A scale-in waits until smaller sizes have sufficed for ``scale_in_after_s``. A scale-in that had to be reverted doubles
that time for sizes below the restored one, so that a job with a recurring load keeps the size that suffices for it. A
scale-in that proves right halves the time again. A load that rises slowly reverts none.
"""

from __future__ import annotations

from dataclasses import replace

from statecore.policy.diagnosis import Ailment, Diagnosis
from statecore.policy.figures import Figures
from statecore.policy.memory import PolicyMemory, forget
from statecore.policy.needs import SOON, allowed_sizes
from statecore.policy.settings import PolicySettings

# A scale-out reverts a scale-in if it follows within this multiple of scale_in_after_s, to more than this share of the
# size before, and the job needs this multiple of its throughput: the load returned at once. If the load rises slowly,
# the larger size is there in time, so the scale-in counts as reverted only if it saved too little.
_TAKES_BACK, _BACK, _AT_ONCE = 6, 0.75, 1.5
# A scale-in must have been possible for this multiple of the downtime of a rescale.
_PRICE = 20
# The policy reduces a size that it did not choose by less than half only after this multiple of scale_in_after_s (six
# hours): a few minutes do not show why somebody chose it.
_HALF, _NOT_OURS = 0.5, 72
# Most times that scale_in_after_s is doubled.
_DOUBLINGS = 5


def remember(figures: Figures, settings: PolicySettings, memory: PolicyMemory, found: Diagnosis) -> PolicyMemory:
    """Return the memory with the times since which another size is needed, and with the needed sizes."""
    now_ms, now = figures.at_ms, figures.parallelism
    if memory.parallelism != now:
        memory = forget(memory, now)
    pressure_ms = slack_ms = None
    if found.parallelism > now:
        pressure_ms = now_ms if memory.pressure_since_ms is None else memory.pressure_since_ms
    elif found.parallelism < now:
        slack_ms = now_ms if memory.slack_since_ms is None else memory.slack_since_ms
    # Below a size that a reverted scale-in restored, earlier arrivals count as well.
    latest = max(found.parallelism, found.kept, min(found.kept_long, _restored(figures, settings, memory)))
    # Drop sizes that a later, larger need covers.
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


def enough_for_long(
    figures: Figures, settings: PolicySettings, memory: PolicyMemory, known_s: float
) -> tuple[int, float]:
    """Return the size that may have sufficed for long enough, and the hold time in seconds that it needs.

    ``known_s`` is the time for which needs have been known.
    """
    target, hold_s = _for_long(figures, settings, memory, known_s)
    if figures.parallelism == memory.chosen or target <= _HALF * figures.parallelism:
        return target, hold_s
    hold_s = _not_ours_s(figures, settings, memory)
    return _needed_lately(figures, memory, hold_s), hold_s


def _for_long(figures: Figures, settings: PolicySettings, memory: PolicyMemory, known_s: float) -> tuple[int, float]:
    """Return size and hold time for a job whose size the policy chose or may halve.

    Only sizes below the one that a reverted scale-in restored wait longer.
    """
    least_s, long_s = _least_scale_in_after_s(figures, settings), scale_in_after_s(figures, settings, memory)
    target, restored = _needed_lately(figures, memory, least_s), _restored(figures, settings, memory)
    if target >= restored:
        return target, least_s
    if known_s < long_s and restored < figures.parallelism:
        return restored, least_s
    return max(target, min(restored, _needed_lately(figures, memory, long_s))), long_s


def _needed_lately(figures: Figures, memory: PolicyMemory, within_s: float) -> int:
    """Return the largest size needed within a time."""
    from_ms = figures.at_ms - 1000 * within_s
    return next(size for at_ms, size in memory.needed if at_ms >= from_ms)


def _restored(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> int:
    """Return the allowed size below which scale-ins wait longer; 0 for none."""
    sizes = allowed_sizes(figures, settings)
    return next((size for size in sizes if size >= memory.restored), sizes[-1]) if memory.restored else 0


def scale_in_after_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    """Return how long a smaller size must have sufficed, in seconds."""
    return _least_scale_in_after_s(figures, settings) * 2.0 ** min(memory.taken_back, _DOUBLINGS)


def _least_scale_in_after_s(figures: Figures, settings: PolicySettings) -> float:
    return max(settings.scale_in_after_s, _PRICE * (figures.downtime_ms or 0) / 1000)


def _not_ours_s(figures: Figures, settings: PolicySettings, memory: PolicyMemory) -> float:
    """Return the hold time of a small scale-in from a size that the policy did not choose."""
    return max(scale_in_after_s(figures, settings, memory), _NOT_OURS * settings.scale_in_after_s)


def with_scale_ins(
    figures: Figures, settings: PolicySettings, memory: PolicyMemory, wanted: int, to: int, found: Diagnosis | None
) -> PolicyMemory:
    """Return the memory of scale-ins after a decision: the last ones, and the number of reverted ones.

    ``wanted`` is the target parallelism; ``to`` is where ``max_step`` stops this rescale.
    """
    now_ms, now, shrunk_ms = figures.at_ms, figures.parallelism, memory.shrunk_ms
    within_ms = _TAKES_BACK * 1000 * scale_in_after_s(figures, settings, memory)
    is_new = shrunk_ms is not None and now_ms - shrunk_ms < within_ms
    # No scale-out since then.
    goes_on = now == memory.shrunk_to
    if shrunk_ms is not None and not is_new and goes_on and now < memory.restored:
        memory = _proved(memory)
    before = memory.shrunk_from if is_new else None
    if wanted < now:
        from_ = before if before is not None and goes_on else now
        return replace(memory, shrunk_ms=now_ms, shrunk_from=from_, shrunk_to=to)
    if before is not None and not _takes_back(figures, settings, memory, wanted, found):
        return without_scale_in(memory) if wanted >= before else memory
    memory = without_scale_in(memory)
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
    """Return whether a scale-out soon after a scale-in reverts it; one for the limit of the source always does."""
    if found is not None and found.name is Ailment.SOURCE_BOUND:
        return True
    if wanted <= _BACK * min(memory.shrunk_from or 0, settings.max_parallelism):
        return False
    soon_ms = SOON * 1000 * _least_scale_in_after_s(figures, settings)
    saved_little = figures.at_ms - (memory.shrunk_ms or 0) <= soon_ms
    # A job may scale out for another reason than throughput.
    return found is None or not found.is_short or saved_little or found.shortage >= _AT_ONCE


def without_scale_in(memory: PolicyMemory) -> PolicyMemory:
    """Return the memory without the last scale-in, so that nothing reverts it."""
    return replace(memory, shrunk_ms=None, shrunk_from=None, shrunk_to=None)
