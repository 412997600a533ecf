"""What a decision is made from: a job's figures, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochCost:
    """What an epoch took.

    Attributes:
        committed_ms: When it was committed.
        parallelism: What it ran with.
        rows: Rows it read.
        duration_ms: How long it took, publishing included.

    """

    committed_ms: int
    parallelism: int
    rows: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Figures:
    """How a job does at a time; None where nothing is known, which is never the same as nothing.

    Attributes:
        job: Name of the job.
        at_ms: When this was so.
        parallelism: What it runs with.
        max_parallelism: The job's number of key groups.
        workers: Size wanted of its cluster; None where there is none whose size is ours to change.
        hindrance: Why nothing may be decided now, such as another's lease; None when something may.
        settled_ms: Since when it has run like this; None before its first epoch.
        epochs: What the newest epochs with rows took, in the order of their commits, at whatever parallelism.
        arriving: Rows a second that come in.
        processed: Rows a second that were committed lately.
        waiting: Rows that wait in the sources; estimated where sources count in files.
        lag_ms: Event-time lag, the longest of all sources.
        busy: Part of the last minute, or of the last three epochs, in which an epoch ran; 0 to 1.
        rescale_ms: What the job's earlier rescales took, the median.

    """

    job: str
    at_ms: int
    parallelism: int
    max_parallelism: int
    workers: int | None = None
    hindrance: str | None = None
    settled_ms: int | None = None
    epochs: tuple[EpochCost, ...] = ()
    arriving: float | None = None
    processed: float | None = None
    waiting: int | None = None
    lag_ms: int | None = None
    busy: float | None = None
    rescale_ms: int | None = None
