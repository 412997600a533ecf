"""A job's figures: the policy's input, as values."""

from __future__ import annotations

from dataclasses import dataclass

HOLDS_MS = 86_400_000
"""What a policy has measured of a job holds for at most a day."""
FIRST_DOWNTIME_MS = 20_000
"""Assumed downtime of a job's first rescale with a restart."""


@dataclass(frozen=True, slots=True)
class EpochCost:
    """Rows that an epoch read, its duration, and the phases in it; a phase is None when it was not recorded.

    Attributes:
        duration_ms: The whole epoch, including publishing.
        read_ms: Spark's time before and between the subtasks: reading the sources, shuffling.
        work_ms: The longest subtask of each operator: loading state, waiting for rows, running functions, writing.
        publish_ms: Publishing the outputs.

    """

    committed_ms: int
    parallelism: int
    rows: int
    duration_ms: int
    read_ms: float | None = None
    work_ms: float | None = None
    publish_ms: float | None = None


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key, for people, and its share (0 to 1) of the work of all subtasks of its operator."""

    key: str
    share: float


@dataclass(frozen=True, slots=True)
class HeavyKeyGroup:
    """A key group, and its share (0 to 1) of the work of all subtasks of its operator."""

    key_group: int
    share: float


@dataclass(frozen=True, slots=True)
class SlowSink:
    """A sink, and its share (0 to 1) of the time of publishing; shares of sinks in parallel add up to more than 1."""

    sink: str
    share: float


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
        hindrance: Why the policy may not decide now, such as the lease of a run; None if it may.
        started_ms: When the newest driver started; None when none has.
        settled_ms: Time since which the job has run at this parallelism; None before its first epoch.
        epochs: The newest epochs with rows, in commit order, at any parallelism.
        arriving: Rows that arrive per second.
        rising: Rise of the arrivals, in rows per second per second; 0 if they do not rise steadily.
        arriving_noise: Standard deviation of the rate over two minutes, as a share of it.
        arrived: (time in ms, rows arrived until then), in order, of the last ``HISTORY_MS``; see ``arrivals.history``.
        processed: Rows committed per second lately.
        waiting: Rows in the backlog; estimated for sources that count files.
        left: Rows that waited after the newest epoch, or when the driver started. The running epoch has them, up to
            its limit.
        lag_ms: Longest lag of all sources: event-time lag or, in Kafka, the age of the oldest waiting row.
        busy: Share (0 to 1) of the last minute, or of the last three epochs, in which an epoch ran.
        rescale_ms: Median duration of the job's earlier scale-outs, the start of workers included.
        downtime_ms: Expected downtime of a rescale by the policy's method; None for none.
        ended_ms: End of the newest rescale, by any user or policy, successful or not.
        failures: Rescales of this policy that failed in a row.
        failure: Why the newest of them failed.
        made_in_a_day: Rescales that this policy decided on within 24 hours.
        epoch_limit: Rows that the source or a setting allows an epoch; None if nothing shows a limit.
        trigger_ms: Shortest time from the start of an epoch to the start of the next; None when it is not recorded.
        busiest_share: Share (0 to 1) of the rows that the busiest subtask had lately.
        heavy_keys: The keys with the most work, the heaviest first.
        heavy_key_group: The key group with the most work; None if no key group is known to be heavy.
        source_partitions: Most subtasks that can read at once; None for sources without such a limit.
        slowest_sink: The sink with the longest publishing lately; None when no sink was measured.
        memory_share: The largest share (0 to 1) of its memory that a worker used.
        crashes: Drivers that failed in a row.
        crash: Why the newest of them failed.
        version: Identifies the job file and the policy's settings; changes with either.

    """

    job: str
    at_ms: int
    parallelism: int
    max_parallelism: int
    workers: int | None = None
    max_workers: int | None = None
    hindrance: str | None = None
    started_ms: int | None = None
    settled_ms: int | None = None
    epochs: tuple[EpochCost, ...] = ()
    arriving: float | None = None
    rising: float = 0.0
    arriving_noise: float = 0.0
    arrived: tuple[tuple[int, float], ...] = ()
    processed: float | None = None
    waiting: int | None = None
    left: int | None = None
    lag_ms: int | None = None
    busy: float | None = None
    rescale_ms: int | None = None
    downtime_ms: int | None = None
    ended_ms: int | None = None
    failures: int = 0
    failure: str = ""
    made_in_a_day: int = 0
    epoch_limit: int | None = None
    trigger_ms: int | None = None
    busiest_share: float | None = None
    heavy_keys: tuple[HeavyKey, ...] = ()
    heavy_key_group: HeavyKeyGroup | None = None
    source_partitions: int | None = None
    slowest_sink: SlowSink | None = None
    memory_share: float | None = None
    crashes: int = 0
    crash: str = ""
    version: str = ""
