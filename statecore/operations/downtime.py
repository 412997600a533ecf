"""The expected downtime of a rescale, from earlier rescales."""

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
    """Return the downtime of earlier rescales by this method; None without one.

    Downtime lasts from the start of the stop to the end of the restart; the cluster has grown before. A live rescale
    has neither step, and no downtime.
    """
    taken = []
    for run in runs:
        first, last = run.steps.get(_FIRST), run.steps.get(_LAST)
        if run.state != "done" or run.method != method or first is None or last is None:
            continue
        if first.started_ms is not None and last.ended_ms is not None:
            taken.append(last.ended_ms - first.started_ms)
    return Downtime(int(median(taken)), min(taken), max(taken), len(taken)) if taken else None


def usual_step_ms(runs: Iterable[RescaleRunRecord], step: str) -> int | None:
    """Return how long a step took in earlier rescales that were done, the median; None without one."""
    taken = []
    for run in runs:
        times = run.steps.get(step)
        if run.state == "done" and times is not None and times.started_ms is not None and times.ended_ms is not None:
            taken.append(times.ended_ms - times.started_ms)
    return int(median(taken)) if taken else None


def downtime_words(method: RescaleMethod, downtime: Downtime | None) -> str:
    """Return the downtime to expect of a rescale by this method, in words."""
    if method == "live":
        return "none, the job keeps running"
    if downtime is None:
        return f"unknown, because this job was not rescaled by the method {method} before"
    middle_s, shortest_s, longest_s = (
        ms / 1000 for ms in (downtime.median_ms, downtime.shortest_ms, downtime.longest_ms)
    )
    runs = "1 earlier run" if downtime.runs == 1 else f"{downtime.runs} earlier runs"
    return f"{middle_s:.0f} s ({shortest_s:.0f} to {longest_s:.0f} s in {runs})"
