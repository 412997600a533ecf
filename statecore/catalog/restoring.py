"""Restores a job after a failed change, from the lease's copy."""

from __future__ import annotations

from dataclasses import fields, replace

from msgspec import to_builtins
from sqlalchemy import Connection, update

from statecore.catalog import tables
from statecore.catalog.queries import end_generation, fail_requests, get_cluster, get_job, newest_generation
from statecore.catalog.records import GenerationRecord, JobBefore, JobRecord

_NOT_RESTORED = ("name", "checkpoint", "accept_lost_records", "updated_ms")
"""What drivers write: a restore would undo what they have done since."""


def saved_job(connection: Connection, name: str) -> JobBefore:
    """Return a registered job as it is now."""
    job = get_job(connection, name)
    newest = newest_generation(connection, name)
    return JobBefore(
        job=job,
        workers=None if job.cluster is None else get_cluster(connection, job.cluster).desired_workers,
        generation=0 if newest is None else newest.generation,
    )


def restore_job(connection: Connection, name: str, before: JobBefore, reason: str, now_ms: int) -> None:
    """Restore a job; end a driver that the change started, so that the next one resumes from the newest epoch.

    Idempotent. A driver that the change did not touch keeps running. If another job file ran in between, the restored
    one may drop the state that the other one added. The next driver of a query finds its checkpoint in the job's store.
    The caller has locked the job. The reason becomes the error of its unfinished requests and of the driver.
    """
    job = get_job(connection, name)
    newest = newest_generation(connection, name)
    restored = replace(before.job, allow_non_restored_state=_may_leave_state(job, before, newest))
    # No more than what differs: the roles of programs may not write every column.
    changed = {
        field.name: to_builtins(getattr(restored, field.name))
        for field in fields(JobRecord)
        if field.name not in _NOT_RESTORED and getattr(restored, field.name) != getattr(job, field.name)
    }
    runs_other = bool(changed.keys() - {"desired_state", "allow_non_restored_state"})
    if runs_other and newest is not None and not newest.ended and _is_changed(newest, before):
        # The next heartbeat stops the driver; it commits no further epoch. Marked stopped, not failed, so that its
        # successor starts without a pause.
        end_generation(connection, newest, now_ms=now_ms, state="stopped", error=reason)
    connection.execute(update(tables.jobs).where(tables.jobs.c.name == name).values(**changed, updated_ms=now_ms))
    if job.cluster is not None and before.workers is not None:
        connection.execute(
            update(tables.clusters)
            .where(tables.clusters.c.name == job.cluster)
            .values(desired_workers=before.workers, updated_ms=now_ms)
        )
    fail_requests(connection, name, reason, now_ms)


def _is_changed(newest: GenerationRecord, before: JobBefore) -> bool:
    """Return whether the change started the newest driver, or rescaled it live."""
    return newest.generation > before.generation or newest.parallelism != before.job.parallelism


def _may_leave_state(job: JobRecord, before: JobBefore, newest: GenerationRecord | None) -> bool:
    """Return whether the restored job file may drop state: it does not know state that another file added."""
    if (job.artifact, job.artifact_sha256) == (before.job.artifact, before.job.artifact_sha256):
        return job.allow_non_restored_state
    return before.job.allow_non_restored_state or (newest is not None and _is_changed(newest, before))
