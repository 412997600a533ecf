"""How much arrives at a job's sources, how much it reads, and how long what waits will last; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.catalog import EpochRecord, SourceBacklog
from statecore.catalog.overviews import RATE_EPOCHS, RATE_MS

LATE_EPOCHS = 3
"""The next epoch is not expected any more after this many times the duration of the newest one."""


@dataclass(frozen=True, slots=True)
class SourceRate:
    """Rows per second of a source.

    Attributes:
        read: Those that were read.
        arriving: Those that arrived; None if the source does not say what waits. Of files, those that wait are
            estimated by the rows of those that were read.

    """

    name: str
    read: float
    arriving: float | None


@dataclass(frozen=True, slots=True)
class Drain:
    """What becomes of the rows that wait.

    Attributes:
        growth: Rows per second that they grow by, over all sources that say what waits; None if none does.
        drained_in_ms: How long they will last; None unless they shrink.

    """

    growth: float | None
    drained_in_ms: int | None


def recent_epochs(epochs: Sequence[EpochRecord], now_ms: int) -> Sequence[EpochRecord]:
    """Return the epochs that rates are of, and the one before them; none of a driver that has paused.

    Args:
        epochs: A job's newest epochs, in the order of their commits.
        now_ms: The time.

    """
    if not epochs:
        return ()
    newest = epochs[-1]
    if now_ms - newest.committed_ms > max(RATE_MS, LATE_EPOCHS * newest.duration_ms):
        return ()
    # A driver's counters begin anew.
    own = [each for each in epochs if each.generation == newest.generation]
    recent = [each for each in own if each.committed_ms > newest.committed_ms - RATE_MS]
    return own[-max(RATE_EPOCHS + 1, len(recent)) :]


def source_rates(recent: Sequence[EpochRecord]) -> list[SourceRate]:
    """Return the rates of each source over some epochs; none of fewer than two."""
    if len(recent) < 2 or recent[-1].committed_ms <= recent[0].committed_ms:
        return []
    return [_rate(name, recent) for name in recent[-1].source_rows]


def drain(rates: Sequence[SourceRate], waiting: int | None) -> Drain:
    """Return what becomes of the rows that wait; sources that do not say what waits do not count."""
    known = [each.arriving - each.read for each in rates if each.arriving is not None]
    if not known:
        return Drain(None, None)
    growth = sum(known)
    if waiting == 0:
        return Drain(growth, 0)
    return Drain(growth, round(1000 * waiting / -growth) if waiting is not None and growth < 0 else None)


def _rate(name: str, recent: Sequence[EpochRecord]) -> SourceRate:
    first, last = recent[0], recent[-1]
    span_s = (last.committed_ms - first.committed_ms) / 1000
    # Rows of the first epoch were read before.
    rows = sum(each.source_rows.get(name, 0) for each in recent[1:])
    before, after = _of(name, first), _of(name, last)
    per_file = None
    if before.files_read is not None and after.files_read is not None and after.files_read > before.files_read:
        per_file = rows / (after.files_read - before.files_read)
    waited, waits = _rows(before, per_file), _rows(after, per_file)
    arrived = None if waited is None or waits is None else max(0.0, rows + waits - waited)
    return SourceRate(name, rows / span_s, None if arrived is None else arrived / span_s)


def _of(name: str, epoch: EpochRecord) -> SourceBacklog:
    return next((each for each in epoch.backlog if each.name == name), SourceBacklog(name))


def _rows(backlog: SourceBacklog, per_file: float | None) -> float | None:
    if backlog.records is not None or not backlog.files:
        return 0.0 if backlog.files == 0 else backlog.records
    return None if per_file is None else backlog.files * per_file
