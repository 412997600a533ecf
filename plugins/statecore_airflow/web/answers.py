"""Answers of the JSON routes, and two requests.

Times are milliseconds since 1970-01-01 UTC; None means unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field, field_validator

from statecore.catalog import (
    DecisionState,
    GenerationState,
    PolicyState,
    RescaleMethod,
    RescaleState,
    StepTimes,
)
from statecore.catalog.records import JobState
from statecore.model.metrics import MetricKind
from statecore.operations.downtime import Downtime
from statecore.operations.status.alerts import Severity
from statecore.operations.status.finding import Alert
from statecore.snapshot.plan import OperatorPlan, SubtaskPlan
from statecore_airflow.links.addresses import change_path


class Answer(BaseModel):
    """Base of all answers; built from the catalog's records or from objects with the same attributes."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Condition(StrEnum):
    """Condition of a job's driver in one word, the most urgent first; a job under a lease is rescaling."""

    FAILED = "failed"
    LOST = "lost"
    RESCALING = "rescaling"
    STARTING = "starting"
    STOPPING = "stopping"
    RUNNING = "running"
    STOPPED = "stopped"


class Epoch(Answer):
    """The newest committed epoch."""

    lineage: int
    epoch: int
    committed_ms: int
    duration_ms: int


class Savepoint(Answer):
    """A savepoint."""

    path: str
    lineage: int
    epoch: int
    parallelism: int
    created_ms: int
    reason: str
    bytes: int | None
    took_ms: int | None


class Backlog(Answer):
    """Backlog of a source, or of all sources if ``name`` is empty."""

    name: str
    records: int | None
    bytes: int | None
    files: int | None
    event_time_lag_ms: int | None
    oldest_age_ms: int | None
    skew: float | None


class TopicPartition(Answer):
    """Backlog of a partition that a source reads; ``oldest_ms`` is the time of the oldest record."""

    source: str
    topic: str
    partition: int
    position: int
    records: int | None
    oldest_ms: int | None


class Workers(Answer):
    """Size of a job's cluster; ``message`` says why it differs from the desired size."""

    desired: int
    ready: int
    message: str | None


class Lease(Answer):
    """The lease on a job; ``page`` is the path of the owner's DAG run in Airflow, None for another owner."""

    owner: str
    page: str | None
    expires_ms: int


class Finding(Answer):
    """A finding about a job, and what to do.

    Attributes:
        alert: The alert that it is; None if it is only shown.
        severity: How urgent that alert is.
        is_new: Whether the alert has not lasted long enough to be sent.

    """

    found: str
    todo: str
    alert: Alert | None
    severity: Severity | None
    is_new: bool


class JobSummary(Answer):
    """A job's row in the list of jobs.

    Attributes:
        checkpoint: Checkpoint of a query of Spark's own; None for a job of statecore.
        methods: Methods by which it can be rescaled.
        severity: How urgent its worst finding is; None without an alert.
        error: Why its driver ended although the job should run.
        findings: What is found and what to do, most urgent first; empty when nothing is wrong.
        backlog_ms: Time of the backlog's measurement.
        backlog: Backlog of all sources.

    """

    name: str
    checkpoint: str | None
    methods: list[RescaleMethod]
    condition: Condition
    severity: Severity | None
    error: str | None
    findings: list[Finding]
    generation: int | None
    parallelism: int
    max_parallelism: int
    workers: Workers | None
    rows_per_second: float | None
    backlog: Backlog | None
    backlog_ms: int | None
    epoch: Epoch | None
    savepoint: Savepoint | None
    lease: Lease | None


class JobsAnswer(Answer):
    """All jobs, the most urgent first."""

    now_ms: int
    jobs: list[JobSummary]


class Step(Answer):
    """A step of a rescale run."""

    name: str
    started_ms: int | None
    ended_ms: int | None


class Change(Answer):
    """What a rescale run and a decision have in common; a decision that was not carried out has no run."""

    run_id: str | None
    from_parallelism: int
    to_parallelism: int
    from_workers: int | None
    to_workers: int | None
    method: RescaleMethod
    reason: str

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def page(self) -> str | None:
        """Path of the DAG run in Airflow; None for a run from a shell."""
        return None if self.run_id is None else change_path(self.run_id)


class RescaleRun(Change):
    """A rescale run, with its steps in order of their start; ``artifact`` is the job file that an upgrade moves to."""

    artifact: str | None
    state: RescaleState
    aborted_by: str | None
    error: str | None
    created_ms: int
    updated_ms: int
    steps: list[Step]

    @field_validator("steps", mode="before")
    @classmethod
    def _by_start(cls, steps: Mapping[str, StepTimes]) -> list[Step]:
        made = [Step(name=name, started_ms=at.started_ms, ended_ms=at.ended_ms) for name, at in steps.items()]
        return sorted(made, key=lambda step: (step.started_ms is None, step.started_ms))


class PolicyRequest(BaseModel):
    """Turn a job's policy on or off."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    enabled: bool


class AbortRequest(BaseModel):
    """The run to abort: the one that the user has seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    run_id: str


class Generation(Answer):
    """A generation: one run of the driver."""

    generation: int
    state: GenerationState
    parallelism: int
    started_ms: int
    heartbeat_ms: int
    ended_ms: int | None
    error: str | None


class Policy(Answer):
    """A job's policy; ``finding`` is the text of its newest evaluation, ``diagnosis`` the cause that it names."""

    settings: dict[str, Any]
    enabled: bool
    state: PolicyState
    finding: str | None
    diagnosis: str | None
    looked_ms: int | None


class Decision(Change):
    """A decision of a policy to rescale the job; ``outcome`` is why it was refused or failed."""

    decided_ms: int
    state: DecisionState
    outcome: str | None


class StateOfOperator(Answer):
    """The state of a stateful operator of a query of Spark's own."""

    operator: str
    rows: int
    memory_bytes: int
    disk_bytes: int | None


class SourceTime(Answer):
    """Event time of a source; ``moved_ms`` is when its watermark last moved, None if not since the driver started."""

    watermark_ms: int | None
    idle: bool
    moved_ms: int | None


class FunctionMetric(Answer):
    """A metric that a function of an operator keeps; ``half`` and ``most`` are what half and 99 % do not exceed."""

    uid: str
    name: str
    kind: MetricKind
    count: int
    total: float
    least: float | None
    largest: float | None
    half: float | None
    most: float | None


class JobAnswer(Answer):
    """How a job stands, its history, and what the user may do; lists have the newest first.

    Attributes:
        desired_state: Whether the job should run.
        triggerable: The DAGs that the user may trigger.
        may_abort: Whether the user may abort a run.
        may_set_policy: Whether the user may turn the policy on and off.
        ui_url: Address of Spark's pages about the running driver; None without one.
        held_by: The source that holds the watermark back, of several.
        metrics: Those that the job's functions keep.
        partitions: Those with the most waiting first.
        partitions_total: How many there are; the page lists some.

    """

    now_ms: int
    desired_state: JobState
    triggerable: list[str]
    may_abort: bool
    may_set_policy: bool
    ui_url: str | None
    job: JobSummary
    sources: list[Backlog]
    partitions: list[TopicPartition]
    partitions_total: int
    state: list[StateOfOperator]
    watermark_ms: int | None
    held_by: str | None
    source_times: dict[str, SourceTime]
    metrics: list[FunctionMetric]
    savepoints: list[Savepoint]
    rescales: list[RescaleRun]
    policy: Policy | None
    decisions: list[Decision]
    generations: list[Generation]


class Mark(Answer):
    """A mark in a chart."""

    at_ms: int
    kind: str
    text: str


class SeriesAnswer(Answer):
    """Series for charts; every list except ``marks`` has one item per time in ``at_ms``.

    Attributes:
        rows_per_second: None after the newest commit, while the next epoch runs.
        phases: Name of a phase → mean milliseconds per epoch; together they are an epoch.

    """

    now_ms: int
    since_ms: int
    until_ms: int
    step_ms: int
    at_ms: list[int]
    rows_per_second: list[float | None]
    backlog_records: list[int | None]
    backlog_bytes: list[int | None]
    backlog_files: list[int | None]
    event_time_lag_ms: list[int | None]
    epoch_ms: list[float | None]
    phases: dict[str, list[float | None]]
    parallelism: list[int | None]
    marks: list[Mark]


class Spread(Answer):
    """Distribution of an operator's keyed state over key groups and subtasks.

    Attributes:
        measured_ms: Time of the count.
        max_parallelism: Number of key groups.
        groups_per_bin: Key groups per bin; the last bin may have fewer.
        rows: Rows per bin.
        borders: First key group of each subtask except the first.
        rows_of_subtasks: Rows per subtask.
        skew: Rows of the fullest subtask divided by the average.

    """

    uid: str
    measured_ms: int
    max_parallelism: int
    groups_per_bin: int
    rows: list[int]
    borders: list[int]
    rows_of_subtasks: list[int]
    skew: float


class SpreadAnswer(Answer):
    """Distribution of the keyed state of all keyed operators, by uid."""

    now_ms: int
    operators: list[Spread]


class PlanAnswer(Answer):
    """Plan of a rescale.

    Attributes:
        subtasks: The first subtasks of ``to_parallelism``.
        downtime: None before the first rescale by this method.
        refusal: Why the rescale would be refused now; None when it would not.

    """

    now_ms: int
    lineage: int
    epoch: int
    method: RescaleMethod
    from_parallelism: int
    to_parallelism: int
    from_max_parallelism: int
    to_max_parallelism: int
    subtasks: tuple[SubtaskPlan, ...]
    operators: tuple[OperatorPlan, ...]
    fixed: dict[str, int]
    rows: int
    bytes: int
    bytes_written: int
    skew: float
    downtime: Downtime | None
    refusal: str | None


class QueryPlanAnswer(Answer):
    """Plan of a rescale of a query of Spark's own.

    Attributes:
        lines: Description of its checkpoint.
        downtime: None before its first rescale.
        refusal: Why the rescale would be refused now; None when it would not.

    """

    now_ms: int
    method: RescaleMethod
    from_parallelism: int
    to_parallelism: int
    lines: list[str]
    downtime: Downtime | None
    refusal: str | None


class ChangePlanAnswer(Answer):
    """What another change will do, in sentences.

    Attributes:
        refusal: Why it would be refused now; None when it would not.

    """

    now_ms: int
    lines: list[str]
    refusal: str | None


class LogAnswer(Answer):
    """The end of a driver's log, after ``missing_bytes``, and the generations with a log, newest first."""

    now_ms: int
    generation: int
    state: GenerationState
    generations: list[int]
    path: str
    text: str
    missing_bytes: int
