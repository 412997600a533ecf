"""What the catalog gives back: values, never live database objects.

All times are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

JobState = Literal["running", "stopped"]
GenerationState = Literal["launching", "running", "stopped", "failed"]
RequestKind = Literal["stop_with_savepoint", "savepoint", "rescale"]
RequestState = Literal["pending", "taken", "done", "failed"]
RescaleState = Literal["running", "done", "failed"]
RescaleMethod = Literal["by_reference", "rewrite", "live"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and what is wanted of it.

    Attributes:
        name: Name of the job.
        artifact: Path of the job file.
        store: Root of the job's checkpoints.
        master_url: Spark master its driver connects to.
        cluster: Name of the cluster whose size belongs to the job, if any.
        conf: Spark configuration of its driver.
        settings: What its job file reads as ``job.settings``.
        desired_state: Whether a driver should run.
        parallelism: Parallelism the next generation starts with.
        max_parallelism: Number of key groups; fixed once registered.
        start_from: Savepoint to start from, a path in the store or a URL; None for the newest epoch.
        start_after_generation: Newest generation when ``start_from`` was set; a later one that commits has taken it up.
        claims_savepoint: Whether the job then owns that savepoint, and drops it when it needs it no more.
        roll_back: Whether ``start_from`` counts although epochs were committed after it.
        allow_non_restored_state: Whether state that the job file no longer declares may be left behind.
        updated_ms: Last change of this record.

    """

    name: str
    artifact: str
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
    claims_savepoint: bool
    roll_back: bool
    allow_non_restored_state: bool
    updated_ms: int


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One run of a job's driver; ``lineage`` and ``epoch`` are the newest it knows to be committed."""

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

    @property
    def ended(self) -> bool:
        """Whether the generation is known to be over."""
        return self.state in ("stopped", "failed")


@dataclass(frozen=True, slots=True)
class Liveness:
    """How long a driver may be silent and still count as alive.

    Attributes:
        running_ms: Longest silence of a driver that has sent a heartbeat.
        launching_ms: Longest time from launch to first heartbeat.

    """

    running_ms: int = 20_000
    launching_ms: int = 90_000

    def is_alive(self, generation: GenerationRecord, now_ms: int) -> bool:
        """Return whether the generation has not ended and was heard of recently enough."""
        if generation.ended:
            return False
        limit_ms = self.launching_ms if generation.state == "launching" else self.running_ms
        return now_ms - generation.heartbeat_ms < limit_ms


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Something asked of a running driver; ``result`` once done, ``error`` once failed."""

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
    """Where a savepoint lies and what it holds; the manifest at ``path`` is the authority."""

    path: str
    job: str
    lineage: int
    epoch: int
    parallelism: int
    created_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """Metrics of one committed epoch.

    Attributes:
        job: Name of the job.
        lineage: Lineage the epoch belongs to.
        epoch: Number of the micro-batch.
        generation: Generation that committed it.
        parallelism: Parallelism it ran with.
        rows: Rows read in this epoch.
        rows_total: Rows read since the job began, this epoch included.
        started_ms: When the epoch began.
        committed_ms: When its manifest was written.
        duration_ms: How long it took, publishing included.
        phases: Milliseconds by name of phase.
        cache_hits: Subtasks that met their state in memory.
        subtasks: Subtasks that ran, over all operators.
        backlog_rows: Rows known to wait after it; None where the source cannot tell.
        memory_share: The largest share of its memory that a worker used, 0 to 1; None when it was not measured.

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
    backlog_rows: int | None = None
    memory_share: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The right to change a job, held until ``expires_ms`` (exclusive) unless renewed."""

    job: str
    owner: str
    acquired_ms: int
    heartbeat_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a step of a rescale run first started and first ended."""

    started_ms: int | None = None
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RescaleRunRecord:
    """One rescale of one job.

    Attributes:
        run_id: Identity of the run; starting it twice gives the same record.
        job: Name of the job.
        from_parallelism: Parallelism before.
        to_parallelism: Parallelism wanted.
        from_workers: Workers before; None where the size of the cluster is not ours to change.
        to_workers: Workers wanted; None as above.
        method: How the state gets to its new subtasks.
        reason: Why, in the words of whoever asked.
        state: How far it is.
        savepoint: Path of the manifest the job was stopped with.
        rescaled: Path of the manifest at the new parallelism.
        steps: Times by name of step.
        error: Why it failed.
        created_ms: When it was started.
        updated_ms: Last change of this record.

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


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster, the size wanted of it and the size last seen by the supervisor."""

    name: str
    kind: str
    settings: dict[str, Any]
    desired_workers: int
    ready_workers: int
    message: str | None
    updated_ms: int
