"""When a job's next driver starts: failures without a new epoch lengthen the back-off."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from statecore.catalog import GenerationRecord

_FIRST_BACKOFF_MS = 1_000
_LONGEST_BACKOFF_MS = 30_000
_SETTLED_MS = 60_000
"""A driver that has run this long ends a row of failures, even without a commit."""
HISTORY = 10
"""Generations to look back: more failures than it takes to reach the longest back-off."""


def next_start_ms(history: Sequence[GenerationRecord]) -> int:
    """Return when the next driver may start after these generations, newest first, all ended; 0 for at once."""
    failures = 0
    for index, generation in enumerate(history):
        if generation.state != "failed" or progressed(generation, history[index + 1 :]):
            break
        failures += 1
    if failures == 0:
        return 0
    ended_ms = history[0].ended_ms or 0
    return ended_ms + min(_FIRST_BACKOFF_MS << (failures - 1), _LONGEST_BACKOFF_MS)


def progressed(generation: GenerationRecord, older: Sequence[GenerationRecord]) -> bool:
    """Return whether a generation committed an epoch of its own."""
    if generation.epoch is None:
        return False
    known = next(((each.lineage, each.epoch) for each in older if each.epoch is not None), None)
    return (generation.lineage, generation.epoch) != known


def failures_in_a_row(history: Sequence[GenerationRecord], now_ms: int) -> tuple[GenerationRecord, ...]:
    """Return the drivers that failed in a row, newest first; one that has just started does not end the row."""
    if not history:
        return ()
    newest, older = history[0], history[1:]
    settles = newest.state == "running" and (progressed(newest, older) or now_ms - newest.started_ms > _SETTLED_MS)
    row = history if newest.ended or settles else older
    return tuple(takewhile(lambda each: each.state == "failed", row))
