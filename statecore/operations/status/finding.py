"""What is found about a job, and what to do; some findings are alerts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Alert(StrEnum):
    """Findings that are sent to people; each has an entry of its name in ``docs/alerts.md``."""

    SUPERVISOR_DEAD = "supervisor_dead"
    CRASH_LOOP = "crash_loop"
    DRIVER_LOST = "driver_lost"
    DRIVER_MISSING = "driver_missing"
    SUPERVISOR_WAITS = "supervisor_waits"
    STREAM_STALLED = "stream_stalled"
    SOURCE_SILENT = "source_silent"
    LEASE_TAKEN_BACK = "lease_taken_back"
    RESCALE_FAILED = "rescale_failed"
    WORKERS_MISSING = "workers_missing"
    MEMORY_FULL = "memory_full"
    POLICY_IDLE = "policy_idle"
    POLICY_BLOCKED = "policy_blocked"
    JOB_BOTTLENECK = "job_bottleneck"
    RELEASES_DIFFER = "releases_differ"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a job, with figures, and what to do about it.

    Attributes:
        alert: The alert that it fires; None if it is only shown.
        only_keeps: Whether it fires no alert, and only keeps one that was sent from being resolved.

    """

    found: str
    todo: str = ""
    alert: Alert | None = None
    only_keeps: bool = False

    @property
    def text(self) -> str:
        """Both in one line."""
        return f"{self.found}: {self.todo}" if self.todo else self.found


def span(ms: int) -> str:
    """Return a length of time in its two largest units."""
    seconds = max(0, ms) // 1000
    units = [("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    first = next((index for index, (_, count) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2] if count) or "0 s"
