"""A job's figures: the policy's input, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochCost:
    """Rows that an epoch read, and its duration, including publishing."""

    committed_ms: int
    parallelism: int
    rows: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a job at one time; None means unknown, never zero.

    Attributes:
        job: Name of the job.
        at_ms: Time of the figures.
        parallelism: The job's parallelism.
        max_parallelism: The job's number of key groups.
        workers: Desired size of its cluster; None for a job without a resizable cluster.
        max_workers: Most workers that the cluster allows; None without such a limit.
        hindrance: Why the policy may not decide now, such as the lease of a run; None when it may.
        settled_ms: Time since which the job has run at this parallelism; None before its first epoch.
        epochs: The newest epochs with rows, in commit order, at any parallelism.
        arriving: Rows that arrive per second.
        processed: Rows committed per second lately.
        waiting: Rows in the backlog; estimated for sources that count files.
        lag_ms: Event-time lag, the longest of all sources.
        busy: Share (0 to 1) of the last minute, or of the last three epochs, in which an epoch ran.
        rescale_ms: Median duration of the job's earlier rescales.
        ended_ms: End of the newest rescale, whoever asked for it and whatever became of it.
        failures: Rescales of this policy that failed in a row.
        failure: Why the newest of them failed.

    """

    job: str
    at_ms: int
    parallelism: int
    max_parallelism: int
    workers: int | None = None
    max_workers: int | None = None
    hindrance: str | None = None
    settled_ms: int | None = None
    epochs: tuple[EpochCost, ...] = ()
    arriving: float | None = None
    processed: float | None = None
    waiting: int | None = None
    lag_ms: int | None = None
    busy: float | None = None
    rescale_ms: int | None = None
    ended_ms: int | None = None
    failures: int = 0
    failure: str = ""
