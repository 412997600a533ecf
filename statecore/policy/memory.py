"""What a job's policy remembers between two decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from statecore.policy.effects import Effect
from statecore.policy.limits import EpochLimit


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


def forget(memory: PolicyMemory, parallelism: int) -> PolicyMemory:
    """Return the memory without what refers to another parallelism, or to a time before an interruption."""
    return replace(
        memory,
        parallelism=parallelism,
        pressure_since_ms=None,
        slack_since_ms=None,
        needed=(),
        known_since_ms=None,
    )
