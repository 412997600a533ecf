"""What waits in one source: records, bytes, files, as far as the source can tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Pending:
    """What a source has and no committed epoch has read; None where it cannot tell.

    Attributes:
        records, bytes, files: What waits.
        files_read: Files that committed epochs have read, counted from some time on: only a difference means something.

    """

    records: int | None = None
    bytes: int | None = None
    files: int | None = None
    files_read: int | None = None


UNKNOWN = Pending()


class SourceMeter(Protocol):
    """Knows what waits in one source; used by two threads."""

    def measure(self) -> None:
        """Look what there is; this may take long."""

    def committed(self, position: str) -> None:
        """Take note of how far committed epochs have read: the offset as Spark writes it."""

    def pending(self) -> Pending:
        """Return what waits, as far as the newest look shows it."""


class RateMeter:
    """The source ``rate``: it owes so many records for every second since it began.

    Args:
        rows_per_second: Its option.
        log: Its folder in Spark's checkpoint directory, where it has noted when it began.

    """

    def __init__(self, rows_per_second: int, log: Path) -> None:
        self._rows_per_second = rows_per_second
        self._log = log
        self._began_ms: int | None = None
        self._read_seconds = 0

    def measure(self) -> None:
        """Find out when it began, once it has."""
        note = self._log / "0"
        if self._began_ms is None and note.exists():
            self._began_ms = int(note.read_text().splitlines()[1])

    def committed(self, position: str) -> None:
        """Its offset is a number of seconds."""
        self._read_seconds = int(position)

    def pending(self) -> Pending:
        """Return the records of the whole seconds since the newest committed one."""
        if self._began_ms is None:
            return UNKNOWN
        seconds = int(time.time() * 1000 - self._began_ms) // 1000
        return Pending(records=max(0, seconds - self._read_seconds) * self._rows_per_second)


class ProgressMeter:
    """A source that reports itself with the progress of the query, as Kafka does; any other cannot tell.

    Args:
        progress: Gives what the source says of the query's newest epoch; None before the first.

    """

    def __init__(self, progress: Callable[[], Mapping[str, Any] | None]) -> None:
        self._progress = progress
        self._newest: Mapping[str, Any] | None = None
        self._position: str | None = None

    def measure(self) -> None:
        """Ask for the newest progress."""
        self._newest = self._progress()

    def committed(self, position: str) -> None:
        """Note the offset, which counts where the progress tells the source's own newest one."""
        self._position = position

    def pending(self) -> Pending:
        """Return what the progress says."""
        return UNKNOWN if self._newest is None else reported(self._newest, self._position)


def reported(progress: Mapping[str, Any], position: str | None) -> Pending:
    """Return what waits according to a source's part of the query's progress.

    Kafka: its newest offsets less the committed ones, over all partitions. Table formats that report
    ``numBytesOutstanding`` and ``numFilesOutstanding``: these.

    Args:
        progress: As Spark's ``StreamingQueryProgress`` has it under ``sources``.
        position: Committed offset as Spark writes it; None before the first.

    """
    metrics = progress.get("metrics") or {}
    if "maxOffsetsBehindLatest" in metrics:
        read = progress["endOffset"] if position is None else json.loads(position)
        return Pending(records=_records_behind(progress["latestOffset"], read))
    return Pending(bytes=_count(metrics.get("numBytesOutstanding")), files=_count(metrics.get("numFilesOutstanding")))


def _records_behind(latest: Mapping[str, Mapping[str, int]], read: Mapping[str, Mapping[str, int]]) -> int:
    """Return by how much one map of topics, partitions and offsets is ahead of another."""
    return sum(
        # A partition that has just been added is read from its beginning, whose offset nobody tells.
        max(0, offset - read[topic][partition])
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
        if partition in read.get(topic, {})
    )


def _count(metric: str | None) -> int | None:
    return None if metric is None else int(metric)
