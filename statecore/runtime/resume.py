"""Decides what a driver goes on from."""

from __future__ import annotations

from statecore.errors import ManifestError
from statecore.runtime.epoch import ResumePoint
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest


def find_resume_point(store: CheckpointStore, job: str, start_from: str | None) -> ResumePoint:
    """Return what to go on from: the newest epoch, or a savepoint that was asked for.

    A savepoint of the newest epoch keeps the lineage, an older one opens a new lineage. Asking is honoured once: the
    first epoch that starts from the savepoint names it as its parent, and from then on the newest epoch counts.

    Args:
        store: Checkpoints of the job.
        job: Name of the job.
        start_from: Path in the store of the savepoint asked for, or None.

    Raises:
        MissingFileError: There is no such savepoint.
        ManifestError: The savepoint is of another job.

    """
    newest = store.newest()
    if start_from is None:
        return _after(newest)
    asked = store.manifest(start_from)
    if asked.job != job:
        raise ManifestError(
            f"found a savepoint of job {asked.job!r} at {store.describe(start_from)}; expected one of {job!r}; "
            "give the path of one of its savepoints"
        )
    if newest is None:
        return ResumePoint(asked.lineage, asked, start_from)
    first = store.find(newest.lineage, asked.epoch + 1)
    if first is not None and first.parent == start_from:
        return _after(newest)
    if (asked.lineage, asked.epoch) == (newest.lineage, newest.epoch):
        return ResumePoint(asked.lineage, asked, start_from)
    return ResumePoint(newest.lineage + 1, asked, start_from)


def _after(newest: Manifest | None) -> ResumePoint:
    if newest is None:
        return ResumePoint(1, None, None)
    return ResumePoint(newest.lineage, newest, CheckpointStore.manifest_path(newest.lineage, newest.epoch))
