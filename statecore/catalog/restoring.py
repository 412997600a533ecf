"""Restores a job after a failed change, from the lease's copy."""

from __future__ import annotations

from msgspec import to_builtins
from sqlalchemy import Connection, update

from statecore.catalog import tables
from statecore.catalog.queries import end_generation, fail_requests, get_cluster, get_job, newest_generation
from statecore.catalog.records import GenerationRecord, JobBefore, JobRecord

_CONFIGURED = (
    "artifact",
    "artifact_sha256",
    "parallelism",
    "max_parallelism",
    "start_from",
    "start_after_generation",
    "claims_savepoint",
    "roll_back",
    "checkpoint",
)


def saved_job(connection: Connection, name: str) -> JobBefore:
    """Return a registered job as it is now."""
    job = get_job(connection, name)
    newest = newest_generation(connection, name)
    return JobBefore(
        desired_state=job.desired_state,
        workers=None if job.cluster is None else get_cluster(connection, job.cluster).desired_workers,
        generation=0 if newest is None else newest.generation,
        allow_non_restored_state=job.allow_non_restored_state,
        **{field: getattr(job, field) for field in _CONFIGURED},
    )


def restore_job(connection: Connection, name: str, before: JobBefore, reason: str, now_ms: int) -> None:
    """Restore a job; end a driver that the change started, so that the next one resumes from the newest epoch.

    Idempotent. A driver that the change did not touch keeps running. If another job file ran in between, the restored
    one may drop the state that the other one added. A query job returns to its old checkpoint; its next driver checks
    whether batches were begun in the other one. The caller has locked the job. The reason becomes the error of its
    unfinished requests and of the driver.
    """
    job = get_job(connection, name)
    configured = {field: getattr(before, field) for field in _CONFIGURED}
    changed = any(getattr(job, field) != value for field, value in configured.items())
    newest = newest_generation(connection, name)
    if changed and newest is not None and not newest.ended and _is_changed(newest, before):
        # The next heartbeat stops the driver; it commits no further epoch. Marked stopped, not failed, so that its
        # successor starts without a pause.
        end_generation(connection, newest, now_ms=now_ms, state="stopped", error=reason)
    connection.execute(
        update(tables.jobs)
        .where(tables.jobs.c.name == name)
        .values(
            desired_state=before.desired_state,
            allow_non_restored_state=_may_leave_state(job, before, newest),
            updated_ms=now_ms,
            left_checkpoint=job.left_checkpoint if job.checkpoint == before.checkpoint else job.checkpoint,
            **to_builtins(configured),
        )
    )
    if job.cluster is not None and before.workers is not None:
        connection.execute(
            update(tables.clusters)
            .where(tables.clusters.c.name == job.cluster)
            .values(desired_workers=before.workers, updated_ms=now_ms)
        )
    fail_requests(connection, name, reason, now_ms)


def _is_changed(newest: GenerationRecord, before: JobBefore) -> bool:
    """Return whether the change started the newest driver, or rescaled it live."""
    return newest.generation > before.generation or newest.parallelism != before.parallelism


def _may_leave_state(job: JobRecord, before: JobBefore, newest: GenerationRecord | None) -> bool:
    """Return whether the restored job file may drop state: it does not know state that another file added."""
    if (job.artifact, job.artifact_sha256) == (before.artifact, before.artifact_sha256):
        return job.allow_non_restored_state
    return before.allow_non_restored_state or (newest is not None and _is_changed(newest, before))
