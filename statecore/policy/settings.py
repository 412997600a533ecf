"""What a person wants of the policy, per job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from statecore.errors import ConfigurationError

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class PolicySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits and aims of a job's policy.

    Attributes:
        max_parallelism: Never more subtasks than this, and never more than the job has key groups.
        min_parallelism: Never fewer subtasks than this.
        subtasks_per_worker: A job with a cluster moves by whole workers of so many subtasks, usually a worker's cores.
        target_utilisation: Part of what the job could process that should arrive; the rest is room for peaks.
        catch_up_s: Within how long a backlog should be drained.
        max_lag_s: Event-time lag beyond which a job that has rows waiting is given more; None for no limit.
        hysteresis: How far, as a part, a need must lie beyond what there is.
        scale_out_after_s: How long more must have been needed.
        scale_in_after_s: How long less must have been enough.
        cooldown_s: How long nothing is decided after a decision, or after somebody else has rescaled the job.
        method: How a rescale is done.

    """

    max_parallelism: _Count
    min_parallelism: _Count = 1
    subtasks_per_worker: _Count = 1
    target_utilisation: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.7
    catch_up_s: Annotated[float, msgspec.Meta(gt=0)] = 900.0
    max_lag_s: _Seconds | None = None
    hysteresis: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    scale_out_after_s: _Seconds = 30.0
    scale_in_after_s: _Seconds = 600.0
    cooldown_s: _Seconds = 300.0
    method: Literal["live", "by_reference"] = "live"

    def sizes(self, key_groups: int, *, by_worker: bool) -> list[int]:
        """Return the parallelisms that may be chosen, ascending; there is at least one.

        Args:
            key_groups: The job's max parallelism.
            by_worker: Whether the job moves by whole workers.

        """
        step = self.subtasks_per_worker if by_worker else 1
        highest = min(self.max_parallelism, key_groups)
        lowest = min(self.min_parallelism, highest)
        return list(range(-(-lowest // step) * step, highest + 1, step)) or [highest]

    def workers_for(self, parallelism: int) -> int:
        """Return how many workers a parallelism takes."""
        return -(-parallelism // self.subtasks_per_worker)


def policy_settings(values: Mapping[str, Any]) -> PolicySettings:
    """Return settings from what was stored or typed.

    Raises:
        ConfigurationError: A value is missing, unknown, of the wrong type or out of bounds.

    """
    try:
        settings = msgspec.convert(dict(values), PolicySettings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"found policy settings that do not fit: {error}; expected {', '.join(PolicySettings.__struct_fields__)}; "
            "set them with `statecore policy set`"
        ) from error
    if settings.min_parallelism > settings.max_parallelism:
        raise ConfigurationError(
            f"found min parallelism {settings.min_parallelism} above max parallelism {settings.max_parallelism}; "
            "expected it to be at most that; set one of them anew"
        )
    return settings
