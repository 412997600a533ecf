"""The records that the catalog returns: values, never live database objects.

All times are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

JobState = Literal["running", "stopped"]
GenerationState = Literal["launching", "running", "stopped", "failed"]
RequestKind = Literal["stop_with_savepoint", "savepoint", "rescale", "check_job_file"]
RequestState = Literal["pending", "taken", "done", "failed"]
RescaleState = Literal["running", "done", "failed"]
RescaleMethod = Literal["by_reference", "rewrite", "live"]
PolicyState = Literal["on", "observes", "off"]
DecisionState = Literal["open", "triggered", "done", "refused", "failed", "observed"]


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
    """Path and content of a savepoint; the manifest at ``path`` is authoritative.

    Attributes:
        bytes: Size of its state files, which other savepoints may share, or of all files of a query's checkpoint; None
            if unknown.
        took_ms: Time from the request until it was there; None if unknown.

    """

    path: str
    job: str
    lineage: int
    epoch: int
    parallelism: int
    created_ms: int
    reason: str
    bytes: int | None = None
    took_ms: int | None = None


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
    def artifact(self) -> str | None:
        """The job file that an upgrade moves the job to; None for a rescale."""
        return self.asked.get("artifact")

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
