"""Finds the epoch that a driver resumes from, checks it, and prepares it for Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from statecore.catalog import Catalog, JobRecord, Jobs
from statecore.runtime.driver.checks import check_restorable, check_sources
from statecore.runtime.driver.start_savepoint import beside_the_stream, forget_start, keep_until_first_commit
from statecore.runtime.epoch.progress import QuerySources, lay_down_progress
from statecore.runtime.generation.definition import definition_of
from statecore.runtime.job import Job, fetch_artifact, load_job
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import write_definition
from statecore.snapshot.resume_point import ResumePoint, find_resume_point, is_start_pending
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


Load = Callable[[JobRecord, CheckpointStore, Path], tuple[Path, Job]]
"""Loads a job's program, given an empty folder; returns the job file and the job that it describes."""


def load_registered(job: JobRecord, store: CheckpointStore, directory: Path) -> tuple[Path, Job]:
    """Load the job file that the job is registered with."""
    artifact = fetch_artifact(job.artifact, job.artifact_sha256, store.files, directory)
    return artifact, load_job(artifact, job.settings)


def resume(
    catalog: Catalog,
    job: JobRecord,
    generation: int,
    directory: Path,
    stack: ExitStack,
    load: Load = load_registered,
) -> Resumed:
    """Resume a job; this does not need Spark yet.

    Args:
        catalog: Adopts the max parallelism of the resume point.
        job: The job.
        generation: The generation that resumes.
        directory: An empty folder for files of this generation.
        stack: Closed when the generation ends.
        load: Loads the job's program.

    Raises:
        StatecoreError: The job cannot run, or cannot resume from there.

    """
    store = CheckpointStore.at(job.store)
    artifact, plan = load(job, store, directory)
    write_definition(store.files, definition_of(job))
    point = find_resume_point(store, job, generation)
    if point.manifest is not None and point.manifest.savepoint is None:
        if job.start_from is not None and not is_start_pending(point.manifest, job):
            beside_the_stream(partial(forget_start, catalog.jobs, store, job))
        job = _with_max_parallelism(catalog.jobs, job, point.manifest.max_parallelism)
    on_first_commit = keep_until_first_commit(stack, catalog, store, point, job)
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


def _with_max_parallelism(jobs: Jobs, job: JobRecord, max_parallelism: int) -> JobRecord:
    """Give the job the max parallelism of its newest epoch; a request for another one ended with its savepoint."""
    if max_parallelism == job.max_parallelism:
        return job
    log.warning("the job keeps max parallelism %d of its newest epoch", max_parallelism)
    fitting = min(job.parallelism, max_parallelism)
    return jobs.set_desired(job.name, parallelism=fitting, max_parallelism=max_parallelism)
