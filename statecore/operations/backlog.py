"""Backlog of a job in rows, estimated for sources that count files; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from statecore.catalog import EpochRecord, SourceBacklog


def rows_per_file(epochs: Sequence[EpochRecord]) -> float | None:
    """Return the rows per file that the newest generation with files has read; None without one.

    Rows of sources that count records are included, so the backlog is then overestimated.
    """
    for _, group in groupby(reversed(epochs), key=lambda epoch: epoch.generation):
        counted = [(each, read) for each in group if (read := _files_read(each.backlog)) is not None]
        # The newest comes first. The files of the oldest epoch itself are unknown, so its rows do not count.
        files = counted[0][1] - counted[-1][1] if counted else 0
        rows = sum(each.rows for each, _ in counted[:-1])
        if files > 0 and rows > 0:
            return rows / files
    return None


def backlog_rows(sources: Iterable[SourceBacklog], per_file: float | None) -> int | None:
    """Return the rows waiting in all sources that report a backlog; None when none does."""
    rows = []
    for source in sources:
        if source.records is not None:
            rows.append(source.records)
        elif source.files == 0:
            rows.append(0)
        elif source.files is not None:
            if per_file is None:
                return None
            rows.append(round(source.files * per_file))
    return sum(rows) if rows else None


def _files_read(sources: Sequence[SourceBacklog]) -> int | None:
    counts = [source.files_read for source in sources if source.files_read is not None]
    return sum(counts) if counts else None
