"""How much arrives at a job's sources, how much it reads, and how long what waits will last; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.catalog import EpochRecord, SourceBacklog

_WINDOW_MS = 60_000
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class SourceRate:
    """A source in the last minute, or in the last four epochs if these took longer.

    Attributes:
        read: Rows per second that were read.
        arriving: Rows per second that arrived; None if the source does not say what waits.
        waiting: Rows that wait, estimated for files by the rows of those that were read; None if unknown.

    """

    name: str
    read: float
    arriving: float | None
    waiting: float | None


def source_rates(epochs: Sequence[EpochRecord]) -> list[SourceRate]:
    """Return the rates of each source, given a job's newest epochs in the order of their commits.

    Returns:
        None of them before a driver has committed two epochs.

    """
    newest = epochs[-1:]
    # A driver's counters begin anew.
    own = [each for each in epochs if each.generation == newest[0].generation]
    recent = [each for each in own if each.committed_ms > newest[0].committed_ms - _WINDOW_MS]
    window = own[-max(_FEWEST, len(recent)) :]
    if len(window) < 2 or window[-1].committed_ms <= window[0].committed_ms:
        return []
    return [_rate(name, window) for name in window[-1].source_rows]


def drained_in_ms(rates: Sequence[SourceRate]) -> int | None:
    """Return how long what waits will last at these rates; None if it grows or stays, or if no source says what waits.

    Sources that do not say what waits do not count.
    """
    known = [(each.read - each.arriving, each.waiting) for each in rates if each.arriving is not None]
    waiting = sum(rows for _, rows in known if rows is not None)
    shrinks = sum(by for by, _ in known)
    if not known:
        return None
    if waiting == 0:
        return 0
    return round(1000 * waiting / shrinks) if shrinks > 0 else None


def _rate(name: str, window: Sequence[EpochRecord]) -> SourceRate:
    # Rows of the first epoch were read before the window.
    first, last, span_s = window[0], window[-1], (window[-1].committed_ms - window[0].committed_ms) / 1000
    rows = sum(each.source_rows.get(name, 0) for each in window[1:])
    before, after = _of(name, first), _of(name, last)
    per_file = None
    if before.files_read is not None and after.files_read is not None and after.files_read > before.files_read:
        per_file = rows / (after.files_read - before.files_read)
    waited, waiting = _rows(before, per_file), _rows(after, per_file)
    arrived = None if waited is None or waiting is None else max(0.0, rows + waiting - waited)
    return SourceRate(name, rows / span_s, None if arrived is None else arrived / span_s, waiting)


def _of(name: str, epoch: EpochRecord) -> SourceBacklog:
    return next((each for each in epoch.backlog if each.name == name), SourceBacklog(name))


def _rows(backlog: SourceBacklog, per_file: float | None) -> float | None:
    if backlog.records is not None or not backlog.files:
        return 0.0 if backlog.files == 0 else backlog.records
    return None if per_file is None else backlog.files * per_file
