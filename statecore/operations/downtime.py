"""How long a rescale keeps a job from working, by what earlier ones took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from statecore.catalog import RescaleMethod, RescaleRunRecord

_FIRST, _LAST = "stop_with_savepoint", "restart"


@dataclass(frozen=True, slots=True)
class Downtime:
    """Milliseconds without an epoch, over earlier runs."""

    median_ms: int
    shortest_ms: int
    longest_ms: int
    runs: int


def expected_downtime(runs: Iterable[RescaleRunRecord], method: RescaleMethod) -> Downtime | None:
    """Return how long rescales by this method kept their job from working; None when none has been seen.

    From the beginning of the stop to the end of the restart, waits for workers included. A live rescale never stops
    the job, so nothing is known of one by these steps.
    """
    taken = []
    for run in runs:
        first, last = run.steps.get(_FIRST), run.steps.get(_LAST)
        if run.state != "done" or run.method != method or first is None or last is None:
            continue
        if first.started_ms is not None and last.ended_ms is not None:
            taken.append(last.ended_ms - first.started_ms)
    return Downtime(int(median(taken)), min(taken), max(taken), len(taken)) if taken else None


def downtime_words(method: RescaleMethod, downtime: Downtime | None) -> str:
    """Say how long a rescale by this method is likely to keep its job from working."""
    if method == "live":
        return "none, the job goes on"
    if downtime is None:
        return f"unknown, because this job was not rescaled by the method {method} before"
    middle_s, shortest_s, longest_s = (
        ms / 1000 for ms in (downtime.median_ms, downtime.shortest_ms, downtime.longest_ms)
    )
    runs = "1 earlier run" if downtime.runs == 1 else f"{downtime.runs} earlier runs"
    return f"{middle_s:.0f} s ({shortest_s:.0f} to {longest_s:.0f} s in {runs})"
