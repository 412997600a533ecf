"""Converts the catalog's view of jobs to answers."""

from __future__ import annotations

from collections.abc import Callable

from statecore.catalog import Catalog
from statecore.operations.kinds import kind_of
from statecore.operations.status.advice import advice
from statecore.operations.status.job_status import DriverState, JobStatus, job_status
from statecore_airflow.links.addresses import change_path
from statecore_airflow.web.answers import Backlog, Condition, Epoch, JobSummary, Lease, Savepoint, Workers

_ORDER = {condition: place for place, condition in enumerate(Condition)}
_WANTED: dict[DriverState, Condition] = {
    "never started": Condition.STARTING,
    "launching": Condition.STARTING,
    "running": Condition.RUNNING,
    "stopped": Condition.STARTING,
    "failed": Condition.FAILED,
    "lost": Condition.LOST,
}
_NOT_WANTED: dict[DriverState, Condition] = {
    "never started": Condition.STOPPED,
    "launching": Condition.STOPPING,
    "running": Condition.STOPPING,
    "stopped": Condition.STOPPED,
    "failed": Condition.STOPPED,
    "lost": Condition.LOST,
}


def summaries(catalog: Catalog, is_shown: Callable[[str], bool] = lambda _: True) -> list[JobSummary]:
    """Return the jobs whose names are to be shown, the most urgent first, then by name."""
    made = [summary(job_status(catalog, job)) for job in catalog.jobs.all() if is_shown(job.name)]
    return sorted(made, key=lambda each: (_ORDER[each.condition], each.name))


def summary(status: JobStatus) -> JobSummary:
    """Return a job's row in the list of jobs."""
    job, generation, figures = status.job, status.generation, status.figures
    cluster = status.cluster
    return JobSummary(
        name=job.name,
        checkpoint=job.checkpoint,
        methods=list(kind_of(job).methods),
        condition=_condition(status),
        error=status.error,
        advice=advice(status),
        generation=None if generation is None else generation.generation,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        workers=None
        if cluster is None
        else Workers(desired=cluster.desired_workers, ready=cluster.ready_workers, message=cluster.message),
        rows_per_second=figures.rows_per_second,
        backlog=Backlog.model_validate(status.waiting) if figures.backlog is not None else None,
        backlog_ms=None if figures.backlog is None else figures.backlog.measured_ms,
        epoch=None if figures.epoch is None else Epoch.model_validate(figures.epoch),
        savepoint=None if status.savepoint is None else Savepoint.model_validate(status.savepoint),
        lease=_lease(status),
    )


def _condition(status: JobStatus) -> Condition:
    if _lease(status) is not None:
        return Condition.RESCALING
    if status.crash_loops and status.alive:
        return Condition.FAILED
    return (_WANTED if status.job.desired_state == "running" else _NOT_WANTED)[status.driver]


def _lease(status: JobStatus) -> Lease | None:
    lease = status.lease
    if lease is None or status.now_ms >= lease.expires_ms:
        return None
    return Lease(owner=lease.owner, page=change_path(lease.owner), expires_ms=lease.expires_ms)
