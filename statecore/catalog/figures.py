"""Figures of jobs that the catalog returns, epochs and backlogs: values, never live database objects.

All times are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from statecore.model.metrics import MetricFigure
from statecore.topics.lag import PartitionLag

_Figure = TypeVar("_Figure", int, float)

# A week has a weekend: by then the longest silence is known, and a few of its length are still usual.
_HISTORY_MS = 7 * 86_400_000
_SILENCES = 3
_SHORTEST_SILENCE_MS = 600_000


@dataclass(frozen=True, slots=True)
class SourceBacklog:
    """The backlog of a source; None for unknown, which is not the same as no backlog.

    Attributes:
        event_time_lag_ms: Time from the newest event time read to the measurement. It also grows without a backlog: a
            silent source lags like one that is not read.
        files_read: Counter of files read, with an arbitrary start: the difference between two epochs of a generation
            is the number of files read in between.
        partitions: Number of its partitions, over all topics.
        oldest_age_ms: Age of the oldest record that waits, by its timestamp in its topic; 0 when none waits.
        skew: Records waiting in the fullest partition, as a multiple of the average; None when nothing waits.
        problem: Why the source cannot be looked at; None if it can.

    """

    name: str
    records: int | None = None
    bytes: int | None = None
    files: int | None = None
    event_time_lag_ms: int | None = None
    files_read: int | None = None
    partitions: int | None = None
    oldest_age_ms: int | None = None
    skew: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class BacklogRecord:
    """The backlog of a job's sources at a time.

    Attributes:
        waiting_since_ms: Since when each measurement has found that something waits; None if nothing is known to wait.
        by_driver: Whether the driver measured it; while none runs, the supervisor does.

    """

    job: str
    measured_ms: int
    generation: int
    sources: tuple[SourceBacklog, ...]
    waiting_since_ms: int | None = None
    by_driver: bool = True


@dataclass(frozen=True, slots=True)
class SourceTopics:
    """The backlog of each partition of a Kafka source, and its brokers; without the clients' other settings.

    Attributes:
        name: Name of the source.
        servers: ``host:port`` of brokers, with commas between.
        committed: Whether the source reads only records of committed transactions.
        assigned: Whether it reads only these partitions, and no partitions added later.

    """

    name: str
    servers: str
    committed: bool
    partitions: tuple[PartitionLag, ...]
    assigned: bool = False


@dataclass(frozen=True, slots=True)
class TopicsRecord:
    """The backlog in the topics of a job's sources, behind the committed offsets.

    Attributes:
        generation: The driver that committed them.

    """

    job: str
    generation: int
    measured_ms: int
    sources: tuple[SourceTopics, ...]


NodeKind = Literal["source", "operator", "sink"]


@dataclass(frozen=True, slots=True)
class DataflowNode:
    """A source, operator or sink of a job.

    Attributes:
        name: Name of the source or sink, uid of the operator; unique among nodes of its kind.
        does: What it is, in words, such as the class of its function.
        inputs: Kind and name of the nodes that its records come from.

    """

    kind: NodeKind
    name: str
    does: str
    inputs: tuple[tuple[NodeKind, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DataflowRecord:
    """The dataflow of a job, as its newest driver has built it.

    Attributes:
        generation: That driver.
        nodes: In the order of the job file: sources, operators, sinks.
        ui_url: Address of Spark's pages about the driver's application; None if Spark serves none.

    """

    job: str
    generation: int
    nodes: tuple[DataflowNode, ...]
    ui_url: str | None = None


@dataclass(frozen=True, slots=True)
class StateFigures:
    """The state of one stateful operator of a query of Spark's own, as Spark reports it.

    Attributes:
        operator: Its number and Spark's name of it, ``0 stateStoreSave``.
        rows: Rows.
        memory_bytes: Memory of its state stores.
        disk_bytes: Size of their files on the workers' disks; None for a state store without such files.

    """

    operator: str
    rows: int
    memory_bytes: int
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SourceTime:
    """Event time of a source after an epoch.

    Attributes:
        watermark_ms: Its watermark: its newest event time, less its lateness and a millisecond; None before its first
            record with event time.
        idle: Whether the job's watermark goes on without it.
        moved_ms: When its watermark last moved, as the commit of an epoch; None if not since the driver started.

    """

    watermark_ms: int | None
    idle: bool = False
    moved_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """Metrics of one committed epoch.

    Attributes:
        rows_total: Rows read since the job's start, including this epoch.
        committed_ms: When its manifest was written.
        duration_ms: Duration, publishing included.
        phases: Milliseconds by name of phase.
        cache_hits: Subtasks that found their state in memory.
        subtasks: Subtasks that ran, over all operators.
        backlog: Backlog known after the epoch, per source; empty before the first measurement.
        memory_share: The largest share of its memory that a worker used, 0 to 1; None when it was not measured.
        host_share: The largest share of its memory that all programs on a worker's host used; None when it was not
            measured, and where containers limit all workers.
        late_rows: Rows at or behind the watermark that applied to the epoch, per source with event time.
        rows_out: Rows that it published, over all sinks.
        state_rows: Rows of keyed state after it, over all operators.
        state_bytes: Size of all state files of its manifest, each counted once.
        publish_ms: Milliseconds of publishing by sink, for sinks with outputs; empty in epochs of an earlier release.
        state: State of each stateful operator of a query of Spark's own.
        watermark_ms: Its event-time watermark; None without one.
        source_times: Event time of each source that has event time; empty for a query of Spark's own.
        metrics: The metrics that the job's functions keep, after the epoch, by uid.
        source_rows: Rows that it read, by source.
        sink_rows: Rows that it published, by sink, for sinks with outputs; empty for a query of Spark's own.

    """

    job: str
    lineage: int
    epoch: int
    generation: int
    parallelism: int
    rows: int
    rows_total: int
    started_ms: int
    committed_ms: int
    duration_ms: int
    phases: dict[str, float] = field(default_factory=dict)
    cache_hits: int = 0
    subtasks: int = 0
    backlog: tuple[SourceBacklog, ...] = ()
    memory_share: float | None = None
    host_share: float | None = None
    late_rows: dict[str, int] = field(default_factory=dict)
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    publish_ms: dict[str, float] = field(default_factory=dict)
    state: tuple[StateFigures, ...] = ()
    watermark_ms: int | None = None
    source_times: dict[str, SourceTime] = field(default_factory=dict)
    metrics: dict[str, tuple[MetricFigure, ...]] = field(default_factory=dict)
    source_rows: dict[str, int] = field(default_factory=dict)
    sink_rows: dict[str, int] = field(default_factory=dict)

    @property
    def held_by(self) -> str | None:
        """The source that holds the watermark back: the one furthest behind of several that are not idle."""
        active = {name: each.watermark_ms for name, each in self.source_times.items() if not each.idle}
        if len(active) < 2:
            return None
        # One without a record yet is behind all others.
        return min(active, key=lambda name: (active[name] is not None, active[name] or 0))


@dataclass(frozen=True, slots=True)
class HeavyKeyFigure:
    """A key, as text of at most 100 characters, and its share (0 to 1) of the work of all subtasks of its operator.

    Attributes:
        key_group: Its key group; None in epochs that an earlier release recorded.

    """

    key: str
    share: float
    key_group: int | None = None


@dataclass(frozen=True, slots=True)
class HeavyKeyGroupFigure:
    """A key group, and its share (0 to 1) of the work of all subtasks of its operator."""

    key_group: int
    share: float


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """Metrics of one operator's subtasks in an epoch; tuples of numbers have one item per subtask, in order.

    Attributes:
        uid: The operator.
        rows: Records of both inputs.
        load_ms: Time to load state into memory.
        process_ms: Time to run the function; where ``read_ms`` is empty, also to wait for input rows.
        write_ms: Time to write state and outputs.
        cached_key_groups: Number of key groups whose state was already in memory.
        key_groups: Number of key groups that the subtask owns, 0 without a key.
        read_ms: Time to wait for input rows; empty in epochs that an earlier release recorded.
        heavy_keys: The keys with the most work, at most 8, the heaviest first; none without a key.
        heavy_key_groups: The same for key groups.

    """

    uid: str
    rows: tuple[int, ...]
    load_ms: tuple[int, ...]
    process_ms: tuple[int, ...]
    write_ms: tuple[int, ...]
    cached_key_groups: tuple[int, ...]
    key_groups: tuple[int, ...]
    read_ms: tuple[int, ...] = ()
    heavy_keys: tuple[HeavyKeyFigure, ...] = ()
    heavy_key_groups: tuple[HeavyKeyGroupFigure, ...] = ()


@dataclass(frozen=True, slots=True)
class SubtasksRecord:
    """Metrics of all subtasks in an epoch."""

    job: str
    lineage: int
    epoch: int
    committed_ms: int
    operators: tuple[OperatorFigures, ...]


@dataclass(frozen=True, slots=True)
class KeyGroupsRecord:
    """Distribution of an operator's keyed state after an epoch; every tuple has one item per key group, in order.

    Attributes:
        uid: The operator.
        rows: Rows of all its keyed states.
        bytes: An estimate: rows times the average size of that state's rows in the operator's files.

    """

    job: str
    lineage: int
    epoch: int
    uid: str
    committed_ms: int
    rows: tuple[int, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArrivalsRecord:
    """When a job's epochs had rows.

    Attributes:
        generation: The driver of the newest such epoch.
        first_ms, newest_ms: Commit of the first and of the newest such epoch.
        longest_ms: Longest time from the commit of one to the start of the next, of one driver; one that was longer
            than usual is an incident, and does not count.

    """

    job: str
    generation: int
    first_ms: int
    newest_ms: int
    longest_ms: int

    @property
    def usual_silence_ms(self) -> int | None:
        """How long nothing may arrive; None in the first week, which has a weekend like every other."""
        if self.newest_ms - self.first_ms < _HISTORY_MS:
            return None
        return max(_SILENCES * self.longest_ms, _SHORTEST_SILENCE_MS)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A job's current figures.

    Attributes:
        rows_per_second: Rows committed per second, over the last minute or three epochs, whichever is longer; None
            before the first epoch.
        epoch: The newest epoch.
        backlog: The newest measurement, taken with an epoch or between two.
        arrivals: When its epochs had rows; None before the first.

    """

    job: str
    rows_per_second: float | None
    epoch: EpochRecord | None
    backlog: BacklogRecord | None
    arrivals: ArrivalsRecord | None = None


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """A job's figures over a span of time, for a chart; None where they are unknown.

    Attributes:
        at_ms: Start of the span.
        rows_per_second: Rows of committed epochs, weighted by the share of their duration within the span; None if no
            driver is known to have run.
        epoch_ms: Mean duration of the epochs that were committed in the span.
        parallelism: Parallelism of the last of these epochs.
        backlog: The last measurement in the span, over all sources.
        phases: Mean milliseconds of these epochs by name of phase.

    """

    at_ms: int
    rows_per_second: float | None
    epoch_ms: float | None
    parallelism: int | None
    backlog: SourceBacklog | None
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollUpRecord:
    """A job's figures over one span of time, for charts.

    Attributes:
        level_ms: Length of the span.
        at_ms: Its start, a multiple of its length.
        epochs: Epochs that were committed in it.
        rows: Rows of epochs, each weighted by the share of its duration within the span.
        duration_ms: Duration of all these epochs together.
        phases: Milliseconds of all of them together, by name of phase.
        parallelism: Parallelism of the last one; None without one.
        backlog: The last measurement in the span, over all sources; None without one.
        ran: Whether a driver ran in it.

    """

    job: str
    level_ms: int
    at_ms: int
    ran: bool = False
    epochs: int = 0
    rows: float = 0.0
    duration_ms: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    parallelism: int | None = None
    backlog: SourceBacklog | None = None

    def plus(self, later: RollUpRecord) -> RollUpRecord:
        """Return the figures with those of the same span that came later."""
        names = dict.fromkeys([*self.phases, *later.phases])
        return RollUpRecord(
            self.job,
            self.level_ms,
            self.at_ms,
            ran=self.ran or later.ran,
            epochs=self.epochs + later.epochs,
            rows=self.rows + later.rows,
            duration_ms=self.duration_ms + later.duration_ms,
            phases={name: self.phases.get(name, 0.0) + later.phases.get(name, 0.0) for name in names},
            parallelism=self.parallelism if later.parallelism is None else later.parallelism,
            backlog=self.backlog if later.backlog is None else later.backlog,
        )


def over_all(sources: Sequence[SourceBacklog]) -> SourceBacklog:
    """Return the total backlog of all sources; the maximum of lag, age and skew; None for what no source reports."""
    return SourceBacklog(
        name="",
        records=_sum(source.records for source in sources),
        bytes=_sum(source.bytes for source in sources),
        files=_sum(source.files for source in sources),
        event_time_lag_ms=_most(source.event_time_lag_ms for source in sources),
        oldest_age_ms=_most(source.oldest_age_ms for source in sources),
        skew=_most(source.skew for source in sources),
    )


def some_wait(sources: Sequence[SourceBacklog]) -> bool | None:
    """Return whether anything waits in a source; None if no source says so, and not all say that nothing does."""
    counts = [(each.records, each.files, each.bytes) for each in sources]
    if any(count for of_source in counts for count in of_source):
        return True
    known = [any(count is not None for count in of_source) for of_source in counts]
    return False if known and all(known) else None


def _most(figures: Iterable[_Figure | None]) -> _Figure | None:
    return max((figure for figure in figures if figure is not None), default=None)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
