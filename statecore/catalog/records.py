"""The records that the catalog returns: values, never live database objects.

All times are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from statecore.topics.lag import PartitionLag

_Figure = TypeVar("_Figure", int, float)

JobState = Literal["running", "stopped"]
GenerationState = Literal["launching", "running", "stopped", "failed"]
RequestKind = Literal["stop_with_savepoint", "savepoint", "rescale", "check_job_file"]
RequestState = Literal["pending", "taken", "done", "failed"]
RescaleState = Literal["running", "done", "failed"]
RescaleMethod = Literal["by_reference", "rewrite", "live"]
PolicyState = Literal["on", "observes", "off"]
DecisionState = Literal["open", "triggered", "done", "refused", "failed", "observed"]


_HISTORY_MS = 7 * 86_400_000
_SILENCES = 3
_SHORTEST_SILENCE_MS = 600_000

NO_HEARTBEAT = "no heartbeat for"
"""The beginning of the error of a generation whose driver was lost."""
ENDED_BY_ITSELF = "the query has ended by itself"
"""The error of a stopped generation whose query had nothing more to do; the driver records it."""


@dataclass(frozen=True, slots=True)
class ClaimedSavepoint:
    """A savepoint that a job owns.

    Attributes:
        path: A path in the job's store, or a URL.
        fingerprint: Fingerprint of its manifest: tells it from a later savepoint at the same path.

    """

    path: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and its desired state.

    Attributes:
        artifact: Path or URL that the job file was registered from.
        artifact_sha256: SHA-256 of the job file, whose copy in the store every driver runs; None for a job that a
            program registered without a copy: its drivers run the file at ``artifact``.
        store: Root of the job's checkpoints.
        master_url: Spark master its driver connects to.
        cluster: Name of the cluster whose size belongs to the job, if any.
        conf: Spark configuration of its driver.
        settings: The values that its job file reads as ``job.settings``.
        desired_state: Whether a driver should run.
        parallelism: Parallelism the next generation starts with.
        max_parallelism: Number of key groups; fixed once registered.
        start_from: Savepoint to start from, a path in the store or a URL; None for the newest epoch.
        start_after_generation: Newest generation when ``start_from`` was set; a later one that commits has applied it.
        claims_savepoint: The savepoint to start from, if the job owns it: the job drops it when it no longer needs it.
            A rescale before the start replaces ``start_from``, not this.
        roll_back: Whether ``start_from`` applies although epochs were committed after it.
        allow_non_restored_state: Whether the driver may drop state that the job file no longer declares.
        checkpoint: URL of the checkpoint that its query writes, if the job is a query of Spark's own; its job file is
            then a query file, its parallelism the number of state partitions, and it has no key groups.
        accept_lost_records: Whether the next driver may skip records that topics no longer have; until it commits.

    """

    name: str
    artifact: str
    artifact_sha256: str | None
    store: str
    master_url: str
    cluster: str | None
    conf: dict[str, str]
    settings: dict[str, str]
    desired_state: JobState
    parallelism: int
    max_parallelism: int
    start_from: str | None
    start_after_generation: int
    claims_savepoint: ClaimedSavepoint | None
    roll_back: bool
    allow_non_restored_state: bool
    updated_ms: int
    checkpoint: str | None = None
    accept_lost_records: bool = False

    @property
    def is_query(self) -> bool:
        """Whether the job is a query of Spark's own."""
        return self.checkpoint is not None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A change of a job.

    Attributes:
        on_behalf_of: ``user@host``, or Airflow's user; for a driver or supervisor, the user that it runs as. What the
            program says.
        actor: Login of the database that wrote the line, by the database itself; None on SQLite, which has no logins.
        change: ``{field: [before, after]}`` of the job's record; of ``conf`` and ``settings`` only the names that
            changed; ``{"run": id}`` when a run takes the job's lease.

    """

    id: int
    job: str
    at_ms: int
    actor: str | None
    on_behalf_of: str
    change: dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobFileRecord:
    """A job file that a job may run.

    Attributes:
        artifact: Path or URL that the file came from.
        artifact_sha256: SHA-256 of the file; None if the job may run the file at ``artifact`` as it lies.
        at_ms: Time of the permission.
        actor, on_behalf_of: Who gave it, as in ``AuditRecord``.

    """

    id: int
    job: str
    artifact: str
    artifact_sha256: str | None
    at_ms: int
    actor: str | None
    on_behalf_of: str


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One run of a job's driver.

    Attributes:
        lineage: Lineage of its newest committed epoch.
        epoch: That epoch.
        host: Host of its process; None unless a supervisor started it, as for the next two.
        pid: First process of its session.
        process_started_ms: When that process started, by its host's clock: a later process may get its pid.
        version: Release of statecore that its driver runs; None until the driver's first heartbeat.
        trigger_ms: Shortest time from the start of an epoch to the start of the next; None until its query has started,
            and of a query that runs once.
        running_ms: When its query had started; None until then.
        settled_ms: When it first had done what there was to do: it had committed an epoch, or nothing waited for it, or
            it had run for a minute with sources that do not say what waits. None until then.

    """

    job: str
    generation: int
    state: GenerationState
    parallelism: int
    started_ms: int
    heartbeat_ms: int
    ended_ms: int | None
    error: str | None
    log_path: str
    lineage: int | None
    epoch: int | None
    host: str | None = None
    pid: int | None = None
    process_started_ms: int | None = None
    version: str | None = None
    trigger_ms: int | None = None
    running_ms: int | None = None
    settled_ms: int | None = None

    @property
    def log_name(self) -> str:
        """Name of its driver's log in the supervisor's folder; ``log_path`` is what some program has written."""
        return f"{self.job}-{self.generation}.log"

    @property
    def ended(self) -> bool:
        """Whether the generation is known to have ended."""
        return self.state in ("stopped", "failed")

    @property
    def ended_by_itself(self) -> bool:
        """Whether its query, one of Spark's own, ended by itself; the job is then stopped."""
        return self.state == "stopped" and self.error == ENDED_BY_ITSELF

    @property
    def was_lost(self) -> bool:
        """Whether it failed because its driver sent no heartbeat."""
        return self.state == "failed" and (self.error or "").startswith(NO_HEARTBEAT)


@dataclass(frozen=True, slots=True)
class Liveness:
    """How long a driver or a supervisor may be silent and still count as alive.

    Attributes:
        running_ms: Longest silence of a driver that has sent a heartbeat.
        launching_ms: Longest time from launch to first heartbeat.
        supervising_ms: Longest silence of the supervisor.

    """

    running_ms: int = 20_000
    launching_ms: int = 90_000
    supervising_ms: int = 30_000

    def is_alive(self, generation: GenerationRecord, now_ms: int) -> bool:
        """Return whether the generation has not ended and sent a heartbeat recently enough."""
        if generation.ended:
            return False
        limit_ms = self.launching_ms if generation.state == "launching" else self.running_ms
        return now_ms - generation.heartbeat_ms < limit_ms


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request to a running driver; it has a ``result`` once done, an ``error`` once failed."""

    id: int
    job: str
    kind: RequestKind
    arguments: dict[str, Any]
    idempotency_key: str
    state: RequestState
    result: dict[str, Any] | None
    error: str | None
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class SavepointRecord:
    """Path and content of a savepoint; the manifest at ``path`` is authoritative."""

    path: str
    job: str
    lineage: int
    epoch: int
    parallelism: int
    created_ms: int
    reason: str


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
        watermark_ms: Its event-time watermark; None without one, and for a job of statecore.

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


@dataclass(frozen=True, slots=True)
class JobBefore:
    """A job as it was when its lease was acquired; a failed change restores it.

    Attributes:
        job: Its whole record.
        workers: Desired size of its cluster; None without one.
        generation: Its newest generation, 0 before the first.

    """

    job: JobRecord
    workers: int | None
    generation: int


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The exclusive right to change a job until ``expires_ms`` (exclusive) unless renewed.

    Attributes:
        before: The job when the lease was acquired.

    """

    job: str
    owner: str
    acquired_ms: int
    heartbeat_ms: int
    expires_ms: int
    before: JobBefore


@dataclass(frozen=True, slots=True)
class TakenBackRecord:
    """A lease that expired and was recovered; recorded until another lease is acquired."""

    job: str
    owner: str
    taken_ms: int


@dataclass(frozen=True, slots=True)
class ToldAlertRecord:
    """The last state of an alert that a channel has sent.

    Attributes:
        channel: The channel; it sends each change once.
        subject: Name of the job; empty for an alert about all jobs.
        firing: Whether the last message said that it fires; False for resolved, and before the first message.
        told_ms: Time of the last message; None before the first.
        changed_ms: Since when the alert is otherwise than told; None while it is as told.
        claimed_until_ms: Until then only the process that claimed the next change may send it.

    """

    channel: str
    subject: str
    alert: str
    firing: bool
    told_ms: int | None
    claimed_until_ms: int
    changed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times at which a step of a rescale run first started and first ended."""

    started_ms: int | None = None
    ended_ms: int | None = None


ROLLBACK = "rollback"
"""The step of a run that restores the job."""


@dataclass(frozen=True, slots=True)
class RescaleRunRecord:
    """One rescale of one job.

    Attributes:
        run_id: Id of the run; starting it twice returns the same record.
        from_workers: Workers before; None when the rescale does not change the size of the cluster.
        to_workers: Desired workers; None as above.
        method: The rescale method.
        reason: The reason, in the user's words.
        state: Running, or how the run ended.
        savepoint: Path of the manifest the job was stopped with.
        rescaled: Path of the manifest at the new parallelism.
        steps: Times by name of step.
        aborted_by: The user who aborted it; None if nobody has.
        ended_ms: When it was done, or rolled back; None while it runs.
        asked: The parameters of the request. Another request with the same id is refused.

    """

    run_id: str
    job: str
    from_parallelism: int
    to_parallelism: int
    from_workers: int | None
    to_workers: int | None
    method: RescaleMethod
    reason: str
    state: RescaleState
    savepoint: str | None
    rescaled: str | None
    steps: dict[str, StepTimes]
    error: str | None
    created_ms: int
    updated_ms: int
    aborted_by: str | None = None
    ended_ms: int | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    @property
    def is_given_up(self) -> bool:
        """Whether its rollback has begun: from then on it can only fail."""
        return ROLLBACK in self.steps

    @property
    def stops_job(self) -> bool:
        """Whether the rescale stops the job; only a live one does not."""
        return self.method != "live"

    @property
    def removes_workers(self) -> bool:
        """Whether the job needs fewer workers once it is done."""
        return self.to_workers is not None and self.to_workers < (self.from_workers or 0)


@dataclass(frozen=True, slots=True)
class SupervisorRecord:
    """The active supervisor of this catalog; any other one waits until it is gone.

    Attributes:
        id: Unique id of the supervisor.
        host: Host of its process.
        pid: Its process.
        process_started_ms: When that process started, by its host's clock.
        version: Release of statecore that it runs.
        hung: The jobs and clusters whose calls hang, in words, each with the time since which it waits.
        started_ms: When it became active.
        heartbeat_ms: Start of its newest pass.

    """

    id: str
    host: str
    pid: int
    process_started_ms: int
    version: str
    hung: dict[str, int]
    started_ms: int
    heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster, its desired size and the size last seen by the supervisor.

    Attributes:
        min_workers: Smallest size that the cluster allows; None without such a limit, or while it is unknown.
        max_workers: Largest size; None as above.
        host: Host of workers that are processes; only a supervisor there can resize the cluster.

    """

    name: str
    kind: str
    settings: dict[str, Any]
    desired_workers: int
    ready_workers: int
    message: str | None
    updated_ms: int
    min_workers: int | None = None
    max_workers: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """A job's policy: its settings and its memory.

    Attributes:
        enabled: Whether it may decide.
        settings: Its limits and targets.
        memory: Its memory from one evaluation to the next.
        version: Number of changes.
        finding: The result of its last evaluation, in words.
        looked_ms: Time of the last evaluation.
        updated_ms: Time of the last change of ``settings`` or ``enabled``.
        diagnosis: The diagnosis of the last evaluation that made one; None before the first.
        diagnosed_ms: Time since which it has held; bottlenecks that alternate count as one.

    """

    job: str
    enabled: bool
    settings: dict[str, Any]
    memory: dict[str, Any]
    version: int
    finding: str | None
    looked_ms: int | None
    updated_ms: int
    diagnosis: str | None = None
    diagnosed_ms: int | None = None

    @property
    def state(self) -> PolicyState:
        """``off``: no decisions; ``observes``: they are recorded only; ``on``: they are carried out."""
        if not self.enabled:
            return "off"
        return "observes" if self.settings.get("observe", False) else "on"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A policy's decision to rescale a job.

    Attributes:
        id: Number of the decision, over all jobs.
        decided_ms: Time of the decision.
        from_workers: Workers before; None when the rescale does not change the size of the cluster.
        to_workers: Desired workers; None as above.
        method: The rescale method.
        reason: The reason, with figures.
        figures: The figures behind it, machine-readable.
        state: ``open``, ``triggered`` while a rescale run carries it out, then how it ended; ``observed`` for a policy
            that only observes.
        run_id: That run.
        outcome: Why it was refused or failed.
        announced_ms: When it was last announced to Airflow.

    """

    id: int
    job: str
    decided_ms: int
    from_parallelism: int
    to_parallelism: int
    from_workers: int | None
    to_workers: int | None
    method: RescaleMethod
    reason: str
    figures: dict[str, Any]
    state: DecisionState
    run_id: str | None
    outcome: str | None
    announced_ms: int
    updated_ms: int
