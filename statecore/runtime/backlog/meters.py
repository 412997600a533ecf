"""Meters: each reports the pending input of one source in records, bytes or files, as far as the source allows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from statecore.blame import exception_line
from statecore.errors import StatecoreError
from statecore.redaction import redacted

_PROBLEM = 500
"""Characters of a problem."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Input of a source that no committed epoch has read; None where the source does not report it.

    Attributes:
        records, bytes, files: Pending input in each unit.
        files_read: Files that committed epochs have read, counted from an arbitrary start: only differences matter.
        partitions: Partitions of the source, over all topics.
        oldest_age_ms: Age of the oldest record that is pending; 0 when none is.
        skew: Pending input of the fullest partition divided by the average.
        problem: Why the source cannot be looked at; None if it can.

    """

    records: int | None = None
    bytes: int | None = None
    files: int | None = None
    files_read: int | None = None
    partitions: int | None = None
    oldest_age_ms: int | None = None
    skew: float | None = None
    problem: str | None = None


UNKNOWN = Pending()


def unreadable(error: BaseException) -> str:
    """Return why a source cannot be looked at, without secrets: pages and messages show it."""
    text = str(error) if isinstance(error, StatecoreError) else exception_line(error)
    return redacted(text)[:_PROBLEM]


class SourceMeter(Protocol):
    """Meters one source. The monitor's thread calls ``measure``; the driver's thread ``committed`` and ``pending``."""

    def measure(self) -> None:
        """Query the source; this may take long."""

    def committed(self, position: str) -> None:
        """Note the newest committed offset, as Spark writes it."""

    def pending(self) -> Pending:
        """Return the pending input as of the last ``measure`` and ``committed``."""


class RateMeter:
    """Meters a ``rate`` source: a fixed number of records per second from the start time in its log."""

    def __init__(self, rows_per_second: int, log: Path) -> None:
        self._rows_per_second = rows_per_second
        self._log = log
        self._started_ms: int | None = None
        self._read_seconds = 0

    def measure(self) -> None:
        """Read the start time, once the source has written it."""
        entry = self._log / "0"
        if self._started_ms is None and entry.exists():
            self._started_ms = int(entry.read_text().splitlines()[1])

    def committed(self, position: str) -> None:
        """Note the offset: seconds since the start."""
        self._read_seconds = int(position)

    def pending(self) -> Pending:
        """Return the records of the whole seconds after the committed offset."""
        if self._started_ms is None:
            return UNKNOWN
        seconds = int(time.time() * 1000 - self._started_ms) // 1000
        return Pending(records=max(0, seconds - self._read_seconds) * self._rows_per_second)


class ProgressMeter:
    """Meters a source that reports its backlog in the query's progress, as Kafka does; other sources stay unknown."""

    def __init__(self, progress: Callable[[], Mapping[str, Any] | None]) -> None:
        self._progress = progress
        self._newest: Mapping[str, Any] | None = None
        self._position: str | None = None

    def measure(self) -> None:
        """Get the newest progress."""
        self._newest = self._progress()

    def committed(self, position: str) -> None:
        """Note the committed offset, for sources that report their newest one."""
        self._position = position

    def pending(self) -> Pending:
        """Return the pending input that the progress reports."""
        return UNKNOWN if self._newest is None else _reported(self._newest, self._position)


def _reported(progress: Mapping[str, Any], position: str | None) -> Pending:
    """Return the pending input according to a source's part of the query's progress.

    Kafka: newest offsets minus committed offsets, over all partitions, and their number. Table formats:
    ``numBytesOutstanding`` and ``numFilesOutstanding``.
    """
    metrics = progress.get("metrics") or {}
    if "maxOffsetsBehindLatest" in metrics:
        read = progress["endOffset"] if position is None else json.loads(position)
        latest = progress["latestOffset"]
        return Pending(records=_records_behind(latest, read), partitions=sum(map(len, latest.values())))
    return Pending(bytes=_count(metrics.get("numBytesOutstanding")), files=_count(metrics.get("numFilesOutstanding")))


def _records_behind(latest: Mapping[str, Mapping[str, int]], read: Mapping[str, Mapping[str, int]]) -> int:
    """Return the number of records between two maps of topic, partition and offset."""
    return sum(
        # A new partition is omitted: it is read from its beginning, whose offset is not reported.
        max(0, offset - read[topic][partition])
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
        if partition in read.get(topic, {})
    )


def _count(metric: str | None) -> int | None:
    return None if metric is None else int(metric)
