"""How jobs are: the catalog's records put together for a person on call."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.catalog import (
    BacklogRecord,
    Catalog,
    ClusterRecord,
    GenerationRecord,
    JobRecord,
    LeaseRecord,
    RescaleRunRecord,
    over_all,
)
from statecore_airflow.web.answers import (
    Condition,
    Epoch,
    JobSummary,
    Lease,
    RescaleRun,
    Savepoint,
    Step,
    Waiting,
    Workers,
)

_ORDER = {condition: place for place, condition in enumerate(Condition)}


@dataclass(frozen=True, slots=True)
class _Found:
    """What tells how a job is."""

    job: JobRecord
    generation: GenerationRecord | None
    alive: bool
    lease: LeaseRecord | None
    rescale: RescaleRunRecord | None


def summaries(catalog: Catalog, now_ms: int) -> list[JobSummary]:
    """Return all jobs; those that need somebody come first, then they go by name."""
    clusters = {cluster.name: cluster for cluster in catalog.clusters()}
    made = [summary(catalog, job, clusters, now_ms) for job in catalog.jobs()]
    return sorted(made, key=lambda each: (_ORDER[each.condition], each.name))


def summary(catalog: Catalog, job: JobRecord, clusters: dict[str, ClusterRecord], now_ms: int) -> JobSummary:
    """Return one job in one line."""
    generation = catalog.newest_generation(job.name)
    lease = catalog.lease(job.name)
    found = _Found(
        job=job,
        generation=generation,
        alive=catalog.is_alive(generation),
        lease=lease if lease is not None and now_ms < lease.expires_ms else None,
        rescale=next(iter(catalog.rescale_runs(job.name, limit=1)), None),
    )
    condition, advice = _condition(found, now_ms)
    figures = catalog.figures(job.name)
    savepoint = next(iter(catalog.savepoints(job.name, limit=1)), None)
    cluster = clusters.get(job.cluster or "")
    return JobSummary(
        name=job.name,
        condition=condition,
        advice=advice,
        generation=None if generation is None else generation.generation,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        workers=None
        if cluster is None
        else Workers(desired=cluster.desired_workers, ready=cluster.ready_workers, message=cluster.message),
        rows_per_second=figures.rows_per_second,
        backlog=waiting(figures.backlog),
        backlog_ms=None if figures.backlog is None else figures.backlog.measured_ms,
        epoch=None if figures.epoch is None else Epoch.model_validate(figures.epoch),
        savepoint=None if savepoint is None else Savepoint.model_validate(savepoint),
        lease=None if found.lease is None else Lease.model_validate(found.lease),
    )


def waiting(backlog: BacklogRecord | None) -> Waiting | None:
    """Return what waits in all sources together."""
    return None if backlog is None or not backlog.sources else Waiting.model_validate(over_all(backlog.sources))


def rescale_run(run: RescaleRunRecord) -> RescaleRun:
    """Return a rescale run with its steps in the order in which they began."""
    steps = [Step(name=name, started_ms=at.started_ms, ended_ms=at.ended_ms) for name, at in run.steps.items()]
    return RescaleRun(
        run_id=run.run_id,
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


def _condition(found: _Found, now_ms: int) -> tuple[Condition, str]:
    """Return how a job is, and what that means."""
    if found.lease is not None:
        return Condition.RESCALING, _rescaling(found.lease, found.rescale)
    generation, wanted = found.generation, found.job.desired_state == "running"
    if generation is None or generation.ended:
        return _without_driver(generation, wanted=wanted)
    number = generation.generation
    if not found.alive:
        silent_s = (now_ms - generation.heartbeat_ms) // 1000
        return Condition.LOST, (
            f"Generation {number} has sent no heartbeat for {silent_s} s. The supervisor starts another driver from "
            "the newest epoch; if none comes within two minutes, look whether the supervisor runs."
        )
    if not wanted:
        return Condition.STOPPING, f"Generation {number} was asked to end. What it has committed is kept."
    if generation.state == "launching":
        return Condition.STARTING, f"Generation {number} is starting; Spark takes about half a minute."
    return Condition.RUNNING, f"Generation {number} runs at parallelism {generation.parallelism}."


def _without_driver(generation: GenerationRecord | None, *, wanted: bool) -> tuple[Condition, str]:
    if generation is not None and generation.state == "failed" and wanted:
        return Condition.FAILED, (
            f"Generation {generation.generation} failed: {generation.error or 'no reason was given'}. The supervisor "
            "starts another driver from the newest epoch; if that one fails, too, read the driver log."
        )
    if wanted:
        return Condition.STARTING, (
            "No driver runs yet. The supervisor starts one; if none comes within a minute, look whether it runs."
        )
    if generation is None:
        return Condition.STOPPED, "It has never run. Start it with the DAG start, or from a shell."
    failed = f" Its last driver failed: {generation.error}." if generation.state == "failed" else ""
    return Condition.STOPPED, f"It is wanted so; its state is kept.{failed} The DAG start, or a shell, starts it."


def _rescaling(lease: LeaseRecord, run: RescaleRunRecord | None) -> str:
    if run is None or run.run_id != lease.owner or run.state != "running":
        return f"{lease.owner} holds the lease. If it is given up, the supervisor brings the job back."
    under_way = [name for name, at in run.steps.items() if at.ended_ms is None]
    step = f", at {under_way[-1]}" if under_way else ""
    return (
        f"From parallelism {run.from_parallelism} to {run.to_parallelism}{step}. If the run is given up, the "
        "supervisor brings the job back from its newest epoch."
    )
