"""What the JSON routes answer. All times are milliseconds since the epoch, UTC; None is not known, never nothing."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from statecore.catalog import DecisionState, GenerationState, RescaleMethod, RescaleState


class Answer(BaseModel):
    """Base of all answers: made of the catalog's records or of what fits them."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Condition(StrEnum):
    """How a job is, in one word; those that need somebody come first. While a run holds its lease, it is rescaling."""

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


class Waiting(Answer):
    """What waits in a source, or in all of them; without a name it is all of them."""

    name: str
    records: int | None
    bytes: int | None
    files: int | None
    event_time_lag_ms: int | None


class Workers(Answer):
    """The size of a job's cluster; ``message`` says what stands in the way of the one wanted."""

    desired: int
    ready: int
    message: str | None


class Lease(Answer):
    """Who may change the job now; ``page`` is the path of its DAG run in Airflow, if it is one."""

    owner: str
    page: str | None
    expires_ms: int


class JobSummary(Answer):
    """A job in one line.

    Attributes:
        condition: How it is.
        error: Why its driver is no more, if it should be.
        advice: What to do, the most urgent first; nothing when all is well.
        backlog_ms: When ``backlog`` was measured.
        backlog: Over all sources.

    """

    name: str
    condition: Condition
    error: str | None
    advice: list[str]
    generation: int | None
    parallelism: int
    max_parallelism: int
    workers: Workers | None
    rows_per_second: float | None
    backlog: Waiting | None
    backlog_ms: int | None
    epoch: Epoch | None
    savepoint: Savepoint | None
    lease: Lease | None


class JobsAnswer(Answer):
    """All jobs; those that need somebody come first."""

    now_ms: int
    jobs: list[JobSummary]


class Step(Answer):
    """A step of a rescale run."""

    name: str
    started_ms: int | None
    ended_ms: int | None


class RescaleRun(Answer):
    """A rescale run; ``page`` is the path of its DAG run in Airflow, if it is one."""

    run_id: str
    page: str | None
    from_parallelism: int
    to_parallelism: int
    from_workers: int | None
    to_workers: int | None
    method: RescaleMethod
    reason: str
    state: RescaleState
    error: str | None
    created_ms: int
    updated_ms: int
    steps: list[Step]


class Generation(Answer):
    """A run of the driver."""

    generation: int
    state: GenerationState
    parallelism: int
    started_ms: int
    heartbeat_ms: int
    ended_ms: int | None
    error: str | None


class Policy(Answer):
    """A job's policy; ``finding`` is what its last look found, in words."""

    enabled: bool
    finding: str | None
    looked_ms: int | None


class Decision(Answer):
    """A decision of a policy to rescale the job.

    Attributes:
        run_id: The rescale run that carries it out.
        page: The path of that run in Airflow.
        outcome: Why it was refused or has failed.

    """

    decided_ms: int
    from_parallelism: int
    to_parallelism: int
    from_workers: int | None
    to_workers: int | None
    method: RescaleMethod
    reason: str
    state: DecisionState
    run_id: str | None
    page: str | None
    outcome: str | None


class JobAnswer(Answer):
    """All about a job but for its charts; every list has its newest first.

    Attributes:
        is_rescaler: Whether who asks may trigger a rescale.

    """

    now_ms: int
    is_rescaler: bool
    job: JobSummary
    sources: list[Waiting]
    savepoints: list[Savepoint]
    rescales: list[RescaleRun]
    policy: Policy | None
    decisions: list[Decision]
    generations: list[Generation]


class Mark(Answer):
    """Something to be marked in a chart."""

    at_ms: int
    kind: str
    text: str


class SeriesAnswer(Answer):
    """Figures for charts: all lists but ``marks`` are as long as ``at_ms``, one item for each step of time.

    Attributes:
        since_ms: Where the charts begin.
        until_ms: Where they end: now.
        step_ms: Length of a step.
        rows_per_second: None since the newest epoch, while the next one is under way.
        phases: Mean milliseconds per epoch of the phases that follow on each other, by name.
        marks: Rescales and decisions.

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
    """How an operator's keyed state is spread.

    Attributes:
        uid: The operator.
        measured_ms: When it was counted.
        max_parallelism: Key groups there are.
        groups_per_bin: Key groups that an item of ``rows`` stands for; the last one may stand for fewer.
        rows: Rows per bin.
        borders: First key group of each subtask but the first.
        rows_of_subtasks: Rows per subtask.
        skew: Rows of the fullest subtask per rows of the average one.

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
    """The keyed state of all operators that have a key, by uid."""

    now_ms: int
    operators: list[Spread]


class SubtaskShare(Answer):
    """What a subtask will have."""

    subtask: int
    key_groups: tuple[int, int]
    files: int
    rows: int
    bytes: int


class OperatorShare(Answer):
    """The state of an operator."""

    uid: str
    rows: int
    bytes: int


class DowntimeRange(Answer):
    """How long earlier rescales kept the job from working."""

    median_ms: int
    shortest_ms: int
    longest_ms: int
    runs: int


class PlanAnswer(Answer):
    """What a rescale will do.

    Attributes:
        subtasks: The first of them; ``to_parallelism`` is their number.
        average_rows: Rows of an average subtask.
        downtime: None when no rescale by this method has been seen.
        refusal: Why it would be refused now, if it would.

    """

    now_ms: int
    lineage: int
    epoch: int
    method: RescaleMethod
    from_parallelism: int
    to_parallelism: int
    from_max_parallelism: int
    to_max_parallelism: int
    subtasks: list[SubtaskShare]
    operators: list[OperatorShare]
    fixed: dict[str, int]
    rows: int
    bytes: int
    bytes_written: int
    average_rows: float
    skew: float
    downtime: DowntimeRange | None
    refusal: str | None


class LogAnswer(Answer):
    """The end of a driver's log.

    Attributes:
        generations: Those whose log may be asked for, newest first.
        missing_bytes: What stands before ``text`` in the file.

    """

    now_ms: int
    generation: int
    state: GenerationState
    generations: list[int]
    path: str
    text: str
    missing_bytes: int


class ErrorAnswer(Answer):
    """Why there is no answer: what was found, what was expected, what to do."""

    detail: str
