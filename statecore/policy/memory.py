"""The memory of a job's policy between two evaluations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from statecore.policy.effects import Effect
from statecore.policy.limits import EpochLimit


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """The memory of a job's policy between two evaluations.

    Attributes:
        decided_ms: Time of the last decision to rescale.
        parallelism: Parallelism at the last evaluation; the next four fields refer to it.
        pressure_since_ms: Time since which a larger size has been needed.
        slack_since_ms: Time since which smaller sizes have sufficed.
        known_since_ms: Time since which needs are known.
        needed: (time, size), sizes descending: the largest size needed since the previous entry's time, or since needs
            are known.
        shrunk_ms: Time of the last decision to scale in.
        shrunk_from: The size before it and before the scale-ins directly preceding it.
        shrunk_to: The size that it chose.
        taken_back: Number of reverted scale-ins, less those that proved right.
        restored: The largest size that they were reverted to; 0 for none.
        effects: Effects of earlier scale-outs of this version of the job.
        version: ``Figures.version`` at the last evaluation.
        chosen: Parallelism of the last decision to rescale; None once somebody else has set another one.
        limit: Limit of rows per epoch that this version of the job has met.
        held: Why the last evaluation changed nothing, without diagnosis and figures: only another reason is logged.

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
    """Return the memory without the fields that refer to another parallelism or to a time before an interruption."""
    return replace(
        memory,
        parallelism=parallelism,
        pressure_since_ms=None,
        slack_since_ms=None,
        needed=(),
        known_since_ms=None,
    )
