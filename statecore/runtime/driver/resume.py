"""Decides what a driver goes on from."""

from __future__ import annotations

import logging

from statecore.errors import ManifestError
from statecore.runtime.epoch.runner import ResumePoint
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)


def find_resume_point(
    store: CheckpointStore,
    job: str,
    start_from: str | None,
    *,
    after_generation: int = 0,
    roll_back: bool = False,
) -> ResumePoint:
    """Return what to go on from: the newest epoch, or a savepoint that was asked for.

    A savepoint of the newest epoch keeps the lineage. An older one counts only when a roll-back was asked for, and
    opens a new lineage; without that, epochs were committed after it and going back would publish them twice, so the
    newest epoch counts. Asking is honoured once: when a generation after the asking has committed an epoch, the newest
    epoch counts again.

    A savepoint outside of the store, of this job or another, is where a job with an empty store begins; it opens a new
    lineage, because its old job may have gone on from it.

    Args:
        store: Checkpoints of the job.
        job: Name of the job.
        start_from: The savepoint asked for: a path in the store, any other path, or a URL. None for the newest epoch.
        after_generation: The newest generation when that was asked for.
        roll_back: Whether a savepoint is meant although epochs were committed after it.

    Raises:
        MissingFileError: There is no such savepoint.
        ManifestError: The savepoint in the store, or the newest epoch, is of another job; or a savepoint of elsewhere
            is to replace what the store holds.

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
            # A copy of what the store holds already.
            return _after(newest)
        return ResumePoint(asked.lineage, asked, path, foreign)
    if newest is None:
        if foreign is None:
            return ResumePoint(asked.lineage, asked, path)
        log.info("starting from %s, which lies outside of the job's store", source.describe(path))
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
            "give every job a store of its own, and resume from its own savepoints"
        )


def _after(newest: Manifest | None) -> ResumePoint:
    if newest is None:
        return ResumePoint(1, None, None)
    return ResumePoint(newest.lineage, newest, CheckpointStore.manifest_path(newest.lineage, newest.epoch))
