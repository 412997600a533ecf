"""Status of a job: all its records in the catalog, for `status`, `jobs` and Airflow's pages."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import msgspec

from statecore.catalog import (
    Catalog,
    GenerationRecord,
    JobRecord,
    Overview,
    RescaleRunRecord,
    SourceBacklog,
    SupervisorRecord,
    over_all,
)
from statecore.operations.autoscaling.figures import failed_rescales
from statecore.operations.restarts import failures_in_a_row, next_start_ms
from statecore.release import RELEASE

log = logging.getLogger(__name__)

DriverState = Literal["never started", "launching", "running", "stopped", "failed", "lost"]

_MANY_FAILURES = 2


@dataclass(frozen=True, slots=True)
class JobStatus(Overview):
    """A job and all records about it at one time.

    Attributes:
        supervisor: The last supervisor.
        supervised: Whether it is alive.
        release: Release of the calling program.

    """

    supervisor: SupervisorRecord | None
    supervised: bool
    release: str

    @property
    def rescale(self) -> RescaleRunRecord | None:
        """The newest rescale run."""
        return next(iter(self.rescales), None)

    @property
    def failed_rescales(self) -> Sequence[RescaleRunRecord]:
        """The rescales of the policy that failed in a row, newest first."""
        return failed_rescales(self.rescales, lambda: self.decided)

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
        """Why the newest driver ended or is silent; in a crash loop, why the last one failed."""
        if self.driver == "lost":
            return "no heartbeat for too long; if no new driver starts, no supervisor runs"
        told = self.last_failure if self.crash_loops else self.generation
        return None if told is None else told.error

    @property
    def failures(self) -> Sequence[GenerationRecord]:
        """The drivers that failed in a row, newest first; one that has not settled does not end the row."""
        return failures_in_a_row(self.generations)

    @property
    def crash_loops(self) -> bool:
        """Whether drivers keep failing."""
        return self.job.desired_state == "running" and len(self.failures) >= _MANY_FAILURES

    @property
    def next_start_ms(self) -> int | None:
        """When the supervisor starts the next driver, if the newest one has failed."""
        wanted = self.job.desired_state == "running" and self.driver == "failed"
        return next_start_ms(self.generations) if wanted else None

    @property
    def last_failure(self) -> GenerationRecord | None:
        """The newest generation that failed, even if others followed."""
        return next((each for each in self.generations if each.state == "failed"), None)

    @property
    def waiting(self) -> SourceBacklog:
        """Backlog over all sources."""
        backlog = self.figures.backlog
        return over_all(() if backlog is None else backlog.sources)


@dataclass(frozen=True, slots=True)
class Summary:
    """A job in ``jobs --json``.

    Attributes:
        backlog_records, backlog_bytes, backlog_files, event_time_lag_ms: Over all sources, at the last measurement.
        checkpoint: URL of the checkpoint of a query of Spark's own; None for a job of statecore.
        committed_ms: When the newest epoch was committed.
        error, log: Of a driver that failed or is lost; in a crash loop, of the last one that failed.

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
    checkpoint: str | None


def job_status(catalog: Catalog, job: JobRecord) -> JobStatus:
    """Read the status of a job."""
    (rows,) = catalog.overviews.of([job.name]).values()
    return _status(rows.overview(), *_supervisor(catalog))


def job_statuses(catalog: Catalog, names: Collection[str] | None = None) -> dict[str, JobStatus]:
    """Return the status of each job, or of these, by name; a job whose records cannot be read is logged and omitted.

    Raises:
        CatalogError: The catalog cannot be reached.

    """
    found = {}
    for name, rows in catalog.overviews.of(names).items():
        try:
            found[name] = rows.overview()
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            # The other jobs are looked at, too.
            log.error("how job %r stands cannot be read: %s", name, error)
    supervisor, supervised = _supervisor(catalog)
    return {name: _status(each, supervisor, supervised) for name, each in found.items()}


def _supervisor(catalog: Catalog) -> tuple[SupervisorRecord | None, bool]:
    """Return the last supervisor, and whether it is alive."""
    last = catalog.supervisors.last()
    return last, catalog.supervisors.is_alive(last)


def _status(found: Overview, supervisor: SupervisorRecord | None, supervised: bool) -> JobStatus:
    values = {each.name: getattr(found, each.name) for each in fields(found)}
    return JobStatus(**values, supervisor=supervisor, supervised=supervised, release=RELEASE)


def summary(status: JobStatus) -> Summary:
    """Return a job's line in a list of jobs."""
    job, generation = status.job, status.generation
    failed = status.last_failure if status.crash_loops else generation
    newest, backlog, waiting = status.figures.epoch, status.figures.backlog, status.waiting
    # A rebuilt catalog has the generations, but not the figures of their epochs.
    known = newest or generation
    return Summary(
        job=job.name,
        desired=job.desired_state,
        driver=status.driver,
        generation=None if generation is None else generation.generation,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        lineage=None if known is None else known.lineage,
        epoch=None if known is None else known.epoch,
        committed_ms=None if newest is None else newest.committed_ms,
        rows_total=None if newest is None else newest.rows_total,
        rows_per_second=status.figures.rows_per_second,
        backlog_records=waiting.records,
        backlog_bytes=waiting.bytes,
        backlog_files=waiting.files,
        event_time_lag_ms=waiting.event_time_lag_ms,
        backlog_measured_ms=None if backlog is None else backlog.measured_ms,
        sources=() if backlog is None else backlog.sources,
        error=status.error,
        log=None if status.error is None or failed is None else failed.log_path,
        checkpoint=job.checkpoint,
    )
