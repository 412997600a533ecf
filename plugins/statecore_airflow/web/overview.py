"""Converts the catalog's view of jobs, runs and decisions to answers."""

from __future__ import annotations

from statecore.catalog import Catalog, DecisionRecord, RescaleRunRecord
from statecore.operations.advice import advice
from statecore.operations.standing import DriverState, Standing, standing
from statecore_airflow.links.addresses import change_path
from statecore_airflow.web.answers import (
    Backlog,
    Condition,
    Decision,
    Epoch,
    JobSummary,
    Lease,
    RescaleRun,
    Savepoint,
    Step,
    Workers,
)

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


def summaries(catalog: Catalog) -> list[JobSummary]:
    """Return all jobs, the most urgent first, then by name."""
    made = [summary(standing(catalog, job)) for job in catalog.jobs()]
    return sorted(made, key=lambda each: (_ORDER[each.condition], each.name))


def summary(found: Standing) -> JobSummary:
    """Return a job's row in the list of jobs."""
    job, generation, figures = found.job, found.generation, found.figures
    cluster = found.cluster
    return JobSummary(
        name=job.name,
        condition=_condition(found),
        error=found.error,
        advice=advice(found),
        generation=None if generation is None else generation.generation,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        workers=None
        if cluster is None
        else Workers(desired=cluster.desired_workers, ready=cluster.ready_workers, message=cluster.message),
        rows_per_second=figures.rows_per_second,
        backlog=Backlog.model_validate(found.waiting) if figures.backlog is not None else None,
        backlog_ms=None if figures.backlog is None else figures.backlog.measured_ms,
        epoch=None if figures.epoch is None else Epoch.model_validate(figures.epoch),
        savepoint=None if found.savepoint is None else Savepoint.model_validate(found.savepoint),
        lease=_lease(found),
    )


def rescale_run(run: RescaleRunRecord) -> RescaleRun:
    """Return a rescale run with its steps in order of their start."""
    steps = [Step(name=name, started_ms=at.started_ms, ended_ms=at.ended_ms) for name, at in run.steps.items()]
    return RescaleRun(
        run_id=run.run_id,
        page=change_path(run.run_id),
        from_parallelism=run.from_parallelism,
        to_parallelism=run.to_parallelism,
        from_workers=run.from_workers,
        to_workers=run.to_workers,
        method=run.method,
        reason=run.reason,
        state=run.state,
        error=run.error,
        created_ms=run.created_ms,
        updated_ms=run.updated_ms,
        steps=sorted(steps, key=lambda step: step.started_ms or run.updated_ms),
    )


def decision(made: DecisionRecord) -> Decision:
    """Return a decision of the policy."""
    return Decision(
        decided_ms=made.decided_ms,
        from_parallelism=made.from_parallelism,
        to_parallelism=made.to_parallelism,
        from_workers=made.from_workers,
        to_workers=made.to_workers,
        method=made.method,
        reason=made.reason,
        state=made.state,
        run_id=made.run_id,
        page=None if made.run_id is None else change_path(made.run_id),
        outcome=made.outcome,
    )


def _condition(found: Standing) -> Condition:
    if _lease(found) is not None:
        return Condition.RESCALING
    return (_WANTED if found.job.desired_state == "running" else _NOT_WANTED)[found.driver]


def _lease(found: Standing) -> Lease | None:
    lease = found.lease
    if lease is None or found.now_ms >= lease.expires_ms:
        return None
    return Lease(owner=lease.owner, page=change_path(lease.owner), expires_ms=lease.expires_ms)
