"""Settings of the policy, per job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from statecore.errors import ConfigurationError
from statecore.policy.windows import parse_at_least, parse_window, parse_zone

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class PolicySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits and targets of a job's policy.

    Attributes:
        max_parallelism: Largest parallelism; the job's number of key groups limits it further.
        min_parallelism: Smallest parallelism.
        subtasks_per_worker: Subtasks of one worker, usually its cores; a job with a cluster scales by whole workers.
        target_utilisation: Share of the job's throughput that arrivals should use; the rest is headroom for peaks.
        catch_up_s: Time in which a backlog should drain; with ``max_lag_s``, a scale-out aims at two thirds of it.
        max_lag_s: Event-time lag beyond which a job with a backlog scales out, and never in; None for no limit.
        hysteresis: Margin, as a fraction, by which a need must exceed the present throughput; a poor
            measurement widens it.
        scale_out_after_s: Time for which a larger size must have been needed; 0.85 of it if the job needs more than
            twice its throughput, a quarter if more than eight times.
        scale_in_after_s: Time for which a smaller size must have sufficed. If the load continues to rise, the size must
            suffice for twice that time more, and for two minutes at least.
        cooldown_s: Pause after the end of a rescale of the job; doubled by each rescale of the policy that failed.
        method: Rescale method; ``rewrite`` for queries of Spark's own, which have no other.
        observe: Whether decisions are only recorded and announced, not carried out.
        freeze: Windows in which the policy changes nothing, such as ``0 8 * * 1-5 for 10h``.
        at_least: Parallelisms that are needed in windows, such as ``0 9 * * 1 for 2h: 8``.
        align: Whether to choose only sizes that spread evenly (``alignment.aligned``).
        max_step: Largest change of the parallelism in one rescale: whole workers, at least one.
        max_rescales_a_day: Most decisions within 24 hours.
        time_zone: Time zone of the windows: a name of the IANA database.

    """

    max_parallelism: _Count
    min_parallelism: _Count = 1
    subtasks_per_worker: _Count = 1
    target_utilisation: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.85
    catch_up_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    max_lag_s: _Seconds | None = None
    hysteresis: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    scale_out_after_s: _Seconds = 60.0
    scale_in_after_s: _Seconds = 300.0
    cooldown_s: _Seconds = 300.0
    method: Literal["live", "by_reference", "rewrite"] = "live"
    observe: bool = False
    freeze: tuple[str, ...] = ()
    at_least: tuple[str, ...] = ()
    time_zone: str = "UTC"
    align: bool = False
    max_step: _Count | None = None
    max_rescales_a_day: _Count | None = None

    def sizes(self, key_groups: int, *, by_worker: bool) -> list[int]:
        """Return the allowed parallelisms, ascending, at least one; those of whole workers for ``by_worker``."""
        step = self.subtasks_per_worker if by_worker else 1
        highest = min(self.max_parallelism, key_groups)
        lowest = min(self.min_parallelism, highest)
        return list(range(-(-lowest // step) * step, highest + 1, step)) or [highest]

    def workers_for(self, parallelism: int) -> int:
        """Return the number of workers for a parallelism."""
        return -(-parallelism // self.subtasks_per_worker)


def policy_settings(values: Mapping[str, Any]) -> PolicySettings:
    """Return settings from stored or typed values.

    Raises:
        ConfigurationError: A value is missing, unknown, of the wrong type or out of bounds.

    """
    try:
        settings = msgspec.convert(dict(values), PolicySettings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"found invalid policy settings: {error}; expected {', '.join(PolicySettings.__struct_fields__)}; "
            "set them with `statecore policy set`"
        ) from error
    if settings.min_parallelism > settings.max_parallelism:
        raise ConfigurationError(
            f"found min parallelism {settings.min_parallelism} above max parallelism {settings.max_parallelism}; "
            "expected at most that; lower the minimum or raise the maximum"
        )
    _check_windows(settings)
    return settings


def _check_windows(settings: PolicySettings) -> None:
    zone = parse_zone(settings.time_zone)
    for text in settings.freeze:
        parse_window(text, zone)
    for text in settings.at_least:
        asked = parse_at_least(text, zone).parallelism
        if asked > settings.max_parallelism:
            raise ConfigurationError(
                f"found the schedule {text!r} above max parallelism {settings.max_parallelism}; expected at most that; "
                "lower the schedule or raise the maximum"
            )
