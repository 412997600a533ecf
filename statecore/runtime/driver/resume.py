"""How a driver resumes: load the job, find its resume point, check it, and fill Spark's checkpoint from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from statecore.catalog import Catalog, JobRecord
from statecore.runtime.driver.checks import check_resume
from statecore.runtime.driver.job_file import Load, load_registered
from statecore.runtime.driver.start_savepoint import end_start, keep_until_first_commit
from statecore.runtime.epoch.first_offsets import FirstOffsets
from statecore.runtime.epoch.progress import QuerySources, lay_down_progress
from statecore.runtime.generation.definition import definition_of
from statecore.runtime.job import Job
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import write_definition
from statecore.snapshot.resume_point import ResumePoint, find_resume_point

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
        first_offsets: Where sources begin that no epoch has read yet.
        on_first_commit: Releases the savepoint that the job started from.

    """

    job: JobRecord
    plan: Job
    artifact: Path
    store: CheckpointStore
    point: ResumePoint
    sources: QuerySources
    checkpoint_directory: Path
    first_offsets: FirstOffsets
    on_first_commit: Callable[[], None]


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
        catalog: Says whether the job file may run, and adopts the max parallelism of the resume point.
        job: The job.
        generation: The generation that resumes.
        directory: An empty folder for files of this generation.
        stack: Closed when the generation ends.
        load: Loads the job's program.

    Raises:
        StatecoreError: The job cannot run, or cannot resume from there.

    """
    catalog.job_files.require_permitted(job)
    store = CheckpointStore.at(job.store)
    artifact, plan = load(job, store, directory)
    write_definition(store.files, definition_of(job))
    point = find_resume_point(store, job, generation)
    job = end_start(catalog.jobs, store, point.manifest, job)
    on_first_commit = keep_until_first_commit(stack, catalog, store, point, job)
    sources = QuerySources(tuple(source.name for source in plan.sources), plan.fires_timers)
    checkpoint_directory = directory / "spark"
    if point.manifest is None:
        log.info("job %s starts without state", job.name)
    else:
        source = point.foreign or store
        check_resume(point.manifest, source, job, plan)
        lay_down_progress(point.manifest, source, checkpoint_directory, sources)
    first_offsets = FirstOffsets(store.files, job, checkpoint_directory, sources, point.manifest)
    first_offsets.lay_down()
    return Resumed(job, plan, artifact, store, point, sources, checkpoint_directory, first_offsets, on_first_commit)
