"""Rules of a policy beyond its limits: freezes, scheduled sizes, the largest step, rescales a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from statecore.policy.alignment import aligned
from statecore.policy.figures import Figures
from statecore.policy.settings import PolicySettings
from statecore.policy.windows import Window, parse_at_least, parse_window, parse_zone


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A parallelism that a schedule asks for, and why."""

    parallelism: int
    reason: str


def scheduled(figures: Figures, settings: PolicySettings) -> Scheduled | None:
    """Return the largest parallelism scheduled now or for the end of a rescale begun now; None without one."""
    zone = parse_zone(settings.time_zone)
    asked = []
    for each in (parse_at_least(text, zone) for text in settings.at_least):
        end_ms = each.window.end_ms(figures.at_ms, ahead_ms=figures.rescale_ms or 0)
        if end_ms is not None:
            asked.append((each.parallelism, end_ms, each.window))
    if not asked:
        return None
    parallelism, end_ms, window = max(asked, key=lambda each: each[:2])
    until = _until(window, figures.at_ms, end_ms)
    return Scheduled(parallelism, f"scheduled: at least {parallelism} until {until} by `{window.text}`")


def held_back(figures: Figures, settings: PolicySettings) -> str | None:
    """Return why a rule forbids a rescale now; None when none does."""
    zone = parse_zone(settings.time_zone)
    frozen = []
    for window in (parse_window(text, zone) for text in settings.freeze):
        end_ms = window.end_ms(figures.at_ms)
        if end_ms is not None:
            frozen.append((end_ms, window))
    if frozen:
        end_ms, window = max(frozen, key=lambda each: each[0])
        return f"frozen until {_until(window, figures.at_ms, end_ms)} by `{window.text}`"
    most = settings.max_rescales_a_day
    if most is not None and figures.made_in_a_day >= most:
        return f"the limit of {most} rescales a day is reached"
    return None


def in_one_step(figures: Figures, settings: PolicySettings, target: int) -> tuple[int, str]:
    """Return the size that one rescale reaches on the way to a target, and a note if that is not the target."""
    if settings.max_step is None:
        return target, ""
    now, per_worker = figures.parallelism, 1 if figures.workers is None else settings.subtasks_per_worker
    step = max(settings.max_step // per_worker, 1) * per_worker
    # A step towards the limits may end outside of them.
    sizes: Sequence[int] = range(per_worker, figures.max_parallelism + 1, per_worker)
    if settings.align:
        sizes = aligned(sizes, figures.max_parallelism, figures.source_partitions)
    way = [size for size in sizes if now < size < target or target < size < now]
    way = sorted([*way, target], key=lambda size: abs(size - now))
    reached = next((size for size in reversed(way) if abs(size - now) <= step), way[0])
    if reached == target:
        return target, ""
    would = "needed" if target > now else "enough"
    return reached, f"; {target} would be {would}, a step is at most {max(step, abs(reached - now))}"


def _until(window: Window, at_ms: int, end_ms: int) -> str:
    """Return the end of a window by its own clock, with the date unless it is today."""
    now, end = (datetime.fromtimestamp(each / 1000, window.zone) for each in (at_ms, end_ms))
    return f"{end:{'%H:%M' if now.date() == end.date() else '%Y-%m-%d %H:%M'}} {window.zone.key}"
