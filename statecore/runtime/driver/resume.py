"""Finds the epoch that a driver resumes from, checks it, and prepares it for Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from statecore.catalog import Catalog, JobRecord
from statecore.errors import ManifestError
from statecore.runtime.driver.checks import check_restorable, check_sources
from statecore.runtime.driver.start_savepoint import drop_left_over, keep_until_first_commit
from statecore.runtime.epoch.progress import QuerySources, lay_down_progress
from statecore.runtime.epoch.runner import ResumePoint
from statecore.runtime.job import Job, fetch_artifact, load_job
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import JobDefinition, write_definition
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.verify import verify_presence

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumed:
    """A generation's job and resume point.

    Attributes:
        job: The job's record in the catalog.
        plan: Its sources, operators and sinks.
        artifact: The job file.
        store: The job's checkpoints.
        point: The resume point.
        sources: The sources of the query.
        checkpoint_directory: Spark's checkpoint directory, filled to continue after the resume point.
        on_first_commit: Releases the savepoint that the job started from.

    """

    job: JobRecord
    plan: Job
    artifact: Path
    store: CheckpointStore
    point: ResumePoint
    sources: QuerySources
    checkpoint_directory: Path
    on_first_commit: Callable[[], None]


def resume(catalog: Catalog, job: JobRecord, directory: Path, stack: ExitStack) -> Resumed:
    """Resume a job; this does not need Spark yet.

    Args:
        catalog: Adopts the max parallelism of the resume point.
        job: The job.
        directory: An empty folder for files of this generation.
        stack: Closed when the generation ends.

    Raises:
        StatecoreError: The job cannot run, or cannot resume from there.

    """
    artifact = fetch_artifact(job.artifact, directory)
    plan = load_job(artifact, job.settings)
    store = CheckpointStore.at(job.store)
    write_definition(store.files, _definition(job))
    point = find_resume_point(
        store, job.name, job.start_from, after_generation=job.start_after_generation, roll_back=job.roll_back
    )
    if point.manifest is not None and point.manifest.savepoint is None:
        drop_left_over(store, point, job)
        job = _with_max_parallelism(catalog, job, point.manifest.max_parallelism)
    on_first_commit = keep_until_first_commit(stack, store, point, job)
    sources = QuerySources(tuple(source.name for source in plan.sources), plan.fires_timers)
    checkpoint_directory = directory / "spark"
    if point.manifest is None:
        log.info("job %s starts without state", job.name)
    else:
        source, uids = point.foreign or store, [operator.uid for operator in plan.operators]
        verify_presence(source, point.manifest)
        lenient = job.allow_non_restored_state
        check_restorable(point.manifest, uids, job.max_parallelism, allow_non_restored_state=lenient)
        check_sources(point.manifest, sources.names, allow_non_restored_state=lenient)
        lay_down_progress(point.manifest, source, checkpoint_directory, sources)
    return Resumed(job, plan, artifact, store, point, sources, checkpoint_directory, on_first_commit)


def _with_max_parallelism(catalog: Catalog, job: JobRecord, max_parallelism: int) -> JobRecord:
    """Give the job the max parallelism of its newest epoch; a request for another one ended with its savepoint."""
    if max_parallelism == job.max_parallelism:
        return job
    log.warning("the job keeps max parallelism %d of its newest epoch", max_parallelism)
    fitting = min(job.parallelism, max_parallelism)
    return catalog.set_desired(job.name, parallelism=fitting, max_parallelism=max_parallelism)


def _definition(job: JobRecord) -> JobDefinition:
    return JobDefinition(
        name=job.name,
        artifact=job.artifact,
        store=job.store,
        master_url=job.master_url,
        cluster=job.cluster,
        conf=job.conf,
        settings=job.settings,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
    )


def find_resume_point(
    store: CheckpointStore,
    job: str,
    start_from: str | None,
    *,
    after_generation: int = 0,
    roll_back: bool = False,
) -> ResumePoint:
    """Return the resume point: the newest epoch, or a savepoint that the user requested.

    A savepoint of the newest epoch keeps the lineage. An older savepoint opens a new lineage, and needs a roll-back:
    without one, the driver resumes from the newest epoch, because the epochs since then would be published twice. A
    request applies once: after a later generation has committed an epoch, drivers resume from the newest epoch again.

    A job with an empty store may start from a savepoint outside of it, of this job or another. That opens a new
    lineage, because the savepoint's job may have continued from it.

    Args:
        store: Checkpoints of the job.
        job: Name of the job.
        start_from: The requested savepoint: a path in the store, any other path, or a URL. None for the newest epoch.
        after_generation: The newest generation at the time of the request.
        roll_back: Whether to leave behind the epochs that were committed after the savepoint.

    Raises:
        MissingFileError: There is no such savepoint.
        ManifestError: The savepoint in the store, or the newest epoch, belongs to another job; or a savepoint of
            another job would replace the epochs in the store.

    """
    newest = store.newest()
    if newest is not None:
        _check_job(store, newest, job)
    if start_from is None or (newest is not None and newest.generation > after_generation):
        return _after(newest)
    source, path, asked = store.open(start_from)
    foreign = None if source is store else source
    if foreign is None:
        _check_job(store, asked, job)
    if newest is not None and _same_epoch(asked, newest):
        if foreign is not None and asked.max_parallelism == newest.max_parallelism:
            # A copy of an epoch that the store already holds.
            return _after(newest)
        return ResumePoint(asked.lineage, asked, path, foreign)
    if newest is None:
        if foreign is None:
            return ResumePoint(asked.lineage, asked, path)
        log.info("starting from %s, outside of the job's store", source.describe(path))
        return ResumePoint(asked.lineage + 1, asked, path, source)
    if asked.job != job and not roll_back:
        raise ManifestError(
            f"found epochs of job {job!r} in {store.files.url}; expected an empty store to start from "
            f"{source.describe(path)}, a savepoint of job {asked.job!r}; register the job with a new store, "
            "or start with --roll-back to leave these epochs behind"
        )
    if not roll_back:
        return _after(newest)
    log.warning("rolling back to %s: outputs published since then are not withdrawn", source.describe(path))
    return ResumePoint(max(newest.lineage, asked.lineage) + 1, asked, path, foreign)


def _same_epoch(one: Manifest, other: Manifest) -> bool:
    return (one.job, one.lineage, one.epoch) == (other.job, other.lineage, other.epoch)


def _check_job(store: CheckpointStore, manifest: Manifest, job: str) -> None:
    if manifest.job != job:
        raise ManifestError(
            f"found state of job {manifest.job!r} in {store.files.url}; expected state of {job!r}; "
            "use a separate store for every job, and resume from the job's own savepoints"
        )


def _after(newest: Manifest | None) -> ResumePoint:
    if newest is None:
        return ResumePoint(1, None, None)
    return ResumePoint(newest.lineage, newest, CheckpointStore.manifest_path(newest.lineage, newest.epoch))
