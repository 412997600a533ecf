"""Rules that bind a policy beside its limits: when nothing changes, and what must be ready when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from statecore.policy.figures import Figures
from statecore.policy.settings import PolicySettings
from statecore.policy.windows import Window, parse_at_least, parse_window, parse_zone


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A parallelism that a schedule asks for, and why."""

    parallelism: int
    reason: str


def scheduled(figures: Figures, settings: PolicySettings) -> Scheduled | None:
    """Return the largest parallelism that a schedule asks for once a rescale begun now has ended; None without one."""
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
    if not frozen:
        return None
    end_ms, window = max(frozen, key=lambda each: each[0])
    return f"frozen until {_until(window, figures.at_ms, end_ms)} by `{window.text}`"


def _until(window: Window, at_ms: int, end_ms: int) -> str:
    """Return the end of a window by its own clock, with the date unless it is today."""
    now, end = (datetime.fromtimestamp(each / 1000, window.zone) for each in (at_ms, end_ms))
    return f"{end:{'%H:%M' if now.date() == end.date() else '%Y-%m-%d %H:%M'}} {window.zone.key}"
