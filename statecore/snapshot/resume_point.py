"""Where a job resumes: at its newest epoch, or at a savepoint that it should start from."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from statecore.errors import ManifestError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)


class StartingJob(Protocol):
    """The catalog's record of where a job should start; see ``JobRecord``."""

    @property
    def name(self) -> str:
        """Name of the job."""

    @property
    def start_from(self) -> str | None:
        """The requested savepoint: a path in the store, any other path, or a URL. None for the newest epoch."""

    @property
    def start_after_generation(self) -> int:
        """The newest generation at the time of the request."""

    @property
    def roll_back(self) -> bool:
        """Whether to leave behind the epochs that were committed after the savepoint."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The point that a driver resumes from.

    Attributes:
        lineage: Lineage of the following epochs.
        manifest: State and source positions to start from; None for a job's first epoch.
        path: Path of that manifest in its store.
        foreign: The store of that manifest and its files; None for the job's own.

    """

    lineage: int
    manifest: Manifest | None
    path: str | None
    foreign: CheckpointStore | None = None


def find_resume_point(store: CheckpointStore, job: StartingJob, generation: int) -> ResumePoint:
    """Return the resume point: the newest epoch, or a savepoint that the user requested.

    A savepoint of the newest epoch keeps the lineage. An older savepoint opens a new lineage, and needs a roll-back:
    without one, the driver resumes from the newest epoch, because the epochs since then would be published twice. A
    request applies once: after a later generation has committed an epoch, drivers resume from the newest epoch again.

    A job with an empty store may start from a savepoint outside of it, of this job or another. That opens a new
    lineage, because the savepoint's job may have continued from it.

    A new lineage has the number of the generation that opens it: two drivers never open the same one, also when the
    first was frozen before its first commit.

    Args:
        store: Checkpoints of the job.
        job: The job.
        generation: The generation that resumes.

    Raises:
        MissingFileError: There is no such savepoint.
        ManifestError: The savepoint in the store, or the newest epoch, belongs to another job; or a savepoint of
            another job would replace the epochs in the store.

    """
    newest = store.newest()
    if newest is not None:
        _check_job(store, newest, job.name)
    if job.start_from is None or not is_start_pending(newest, job):
        return _after(newest)
    source, path, asked = store.open(job.start_from)
    foreign = None if source is store else source
    if foreign is None:
        _check_job(store, asked, job.name)
    if newest is not None and _same_epoch(asked, newest):
        if foreign is not None and asked.max_parallelism == newest.max_parallelism:
            # A copy of an epoch that the store already holds.
            return _after(newest)
        return ResumePoint(asked.lineage, asked, path, foreign)
    if newest is None:
        if foreign is None:
            return ResumePoint(asked.lineage, asked, path)
        log.info("starting from %s, outside of the job's store", source.describe(path))
        return ResumePoint(max(generation, asked.lineage + 1), asked, path, source)
    if asked.job != job.name and not job.roll_back:
        raise ManifestError(
            f"found epochs of job {job.name!r} in {store.files.url}; expected an empty store to start from "
            f"{source.describe(path)}, a savepoint of job {asked.job!r}; register the job with a new store, "
            "or start with --roll-back to leave these epochs behind"
        )
    if not job.roll_back:
        return _after(newest)
    log.warning("rolling back to %s: outputs published since then are not withdrawn", source.describe(path))
    return ResumePoint(max(generation, newest.lineage + 1, asked.lineage + 1), asked, path, foreign)


def is_start_pending(newest: Manifest | None, job: StartingJob) -> bool:
    """Return whether a job is yet to start from a savepoint: no generation after the request has committed an epoch."""
    return job.start_from is not None and (newest is None or newest.generation <= job.start_after_generation)


def known_generation(store: CheckpointStore, newest: Manifest | None, asked: Manifest | None = None) -> int:
    """Return a number that new generations must exceed, also after the catalog was lost.

    Generations and lineages in the store count, because the catalog may be older than the store; so does the lineage of
    a savepoint from elsewhere, because a generation becomes the number of the lineage that it opens.

    Args:
        store: Checkpoints of the job.
        newest: The newest epoch in the store.
        asked: The savepoint that the job should start from.

    """
    of_newest = (0, 0) if newest is None else (newest.generation, newest.lineage)
    return max(store.newest_generation() or 0, *of_newest, 0 if asked is None else asked.lineage)


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
