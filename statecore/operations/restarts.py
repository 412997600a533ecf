"""A job's failures in a row, and when its next driver starts.

A driver that has settled did what there was to do (``GenerationRecord.settled_ms``). If it fails later, a new row of
failures begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from statecore.catalog import GenerationRecord

_FIRST_BACKOFF_MS = 1_000
_LONGEST_BACKOFF_MS = 30_000


def failures_in_a_row(history: Sequence[GenerationRecord]) -> tuple[GenerationRecord, ...]:
    """Return the drivers that failed in a row, newest first, of these generations, newest first.

    A driver that runs ends the row once it has settled.
    """
    row = []
    for each in history:
        if each.state == "failed":
            row.append(each)
        elif each.ended or each is not history[0]:
            break
        if each.settled_ms is not None:
            break
    return tuple(row)


def next_start_ms(history: Sequence[GenerationRecord]) -> int:
    """Return when the next driver may start after these generations, newest first, all ended; 0 without any.

    After a driver that had settled it starts at once. Each further one that had not doubles the pause.
    """
    ended_ms = (history[0].ended_ms or 0) if history else 0
    unsettled = sum(each.settled_ms is None for each in failures_in_a_row(history))
    return ended_ms + (min(_FIRST_BACKOFF_MS << (unsettled - 1), _LONGEST_BACKOFF_MS) if unsettled else 0)
