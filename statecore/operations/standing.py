"""The standing of a job: everything that the catalog knows of it, for the shell and for Airflow alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from statecore.catalog import (
    Catalog,
    ClusterRecord,
    GenerationRecord,
    JobFigures,
    JobRecord,
    LeaseRecord,
    PolicyRecord,
    RescaleRunRecord,
    SavepointRecord,
    SourceBacklog,
    SystemClock,
    over_all,
)

DriverState = Literal["never started", "launching", "running", "stopped", "failed", "lost"]

_HISTORY = 10  # generations to look back for failures in a row


@dataclass(frozen=True, slots=True)
class Standing:
    """A job with everything around it.

    Attributes:
        job: What is wanted.
        generations: The newest ones, newest first.
        alive: Whether the newest of them runs.
        figures: How it does.
        cluster: Whose size belongs to the job, if any.
        lease: Who may change the job, if anybody.
        savepoint: The newest.
        rescale: The newest rescale run.
        policy: By which it is sized, if any.
        now_ms: When all this was looked up.

    """

    job: JobRecord
    generations: Sequence[GenerationRecord]
    alive: bool
    figures: JobFigures
    cluster: ClusterRecord | None
    lease: LeaseRecord | None
    savepoint: SavepointRecord | None
    rescale: RescaleRunRecord | None
    policy: PolicyRecord | None
    now_ms: int

    @property
    def generation(self) -> GenerationRecord | None:
        """The newest generation."""
        return self.generations[0] if self.generations else None

    @property
    def driver(self) -> DriverState:
        """State of the newest driver."""
        newest = self.generation
        if newest is None:
            return "never started"
        return newest.state if newest.ended or self.alive else "lost"

    @property
    def error(self) -> str | None:
        """Why the newest driver ended, if it was not stopped on request."""
        if self.driver == "lost":
            return "no heartbeat for too long; if no new driver starts, no supervisor runs"
        return None if self.generation is None else self.generation.error

    @property
    def failures(self) -> int:
        """How many drivers failed in a row, the newest included."""
        return next((n for n, each in enumerate(self.generations) if each.state != "failed"), len(self.generations))

    @property
    def last_failure(self) -> GenerationRecord | None:
        """The newest generation that failed, whatever came after it."""
        return next((each for each in self.generations if each.state == "failed"), None)

    @property
    def waiting(self) -> SourceBacklog:
        """Backlog of all sources."""
        backlog = self.figures.backlog
        return over_all(() if backlog is None else backlog.sources)


@dataclass(frozen=True, slots=True)
class Summary:
    """A job as ``jobs --json`` prints it.

    Attributes:
        backlog_records, backlog_bytes, backlog_files, event_time_lag_ms: Over all sources, when it was last measured.
        committed_ms: When the newest epoch was.
        error, log: Of a driver that failed or is lost.

    """

    job: str
    desired: str
    driver: str
    generation: int | None
    parallelism: int
    max_parallelism: int
    lineage: int | None
    epoch: int | None
    committed_ms: int | None
    rows_total: int | None
    rows_per_second: float | None
    backlog_records: int | None
    backlog_bytes: int | None
    backlog_files: int | None
    event_time_lag_ms: int | None
    backlog_measured_ms: int | None
    sources: tuple[SourceBacklog, ...]
    error: str | None
    log: str | None


def standing(catalog: Catalog, job: JobRecord) -> Standing:
    """Read the standing of a job."""
    generations = catalog.generations(job.name, limit=_HISTORY)
    return Standing(
        job=job,
        generations=generations,
        alive=bool(generations) and catalog.is_alive(generations[0]),
        figures=catalog.figures(job.name),
        cluster=None if job.cluster is None else catalog.cluster(job.cluster),
        lease=catalog.lease(job.name),
        savepoint=next(iter(catalog.savepoints(job.name, limit=1)), None),
        rescale=next(iter(catalog.rescale_runs(job.name, limit=1)), None),
        policy=catalog.policy(job.name),
        now_ms=SystemClock().now_ms(),
    )


def summary(found: Standing) -> Summary:
    """Return the summary for a list of jobs."""
    job, generation = found.job, found.generation
    newest, backlog, waiting = found.figures.epoch, found.figures.backlog, found.waiting
    # Figures of epochs are not rebuilt; what a generation knows is.
    known = newest or generation
    return Summary(
        job=job.name,
        desired=job.desired_state,
        driver=found.driver,
        generation=None if generation is None else generation.generation,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        lineage=None if known is None else known.lineage,
        epoch=None if known is None else known.epoch,
        committed_ms=None if newest is None else newest.committed_ms,
        rows_total=None if newest is None else newest.rows_total,
        rows_per_second=found.figures.rows_per_second,
        backlog_records=waiting.records,
        backlog_bytes=waiting.bytes,
        backlog_files=waiting.files,
        event_time_lag_ms=waiting.event_time_lag_ms,
        backlog_measured_ms=None if backlog is None else backlog.measured_ms,
        sources=() if backlog is None else backlog.sources,
        error=found.error,
        log=None if found.error is None or generation is None else generation.log_path,
    )
