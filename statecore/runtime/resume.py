"""Decides what a driver goes on from."""

from __future__ import annotations

import logging

from statecore.errors import ManifestError
from statecore.runtime.epoch import ResumePoint
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)


def find_resume_point(
    store: CheckpointStore, job: str, start_from: str | None, *, roll_back: bool = False
) -> ResumePoint:
    """Return what to go on from: the newest epoch, or a savepoint that was asked for.

    A savepoint of the newest epoch keeps the lineage. An older one counts only when a roll-back was asked for, and
    opens a new lineage; without that, epochs were committed after it and going back would publish them twice, so the
    newest epoch counts. Asking is honoured once: the first epoch that starts from the savepoint names it as its
    parent, and from then on the newest epoch counts.

    Args:
        store: Checkpoints of the job.
        job: Name of the job.
        start_from: Path in the store of the savepoint asked for, or None.
        roll_back: Whether a savepoint older than the newest epoch is meant.

    Raises:
        MissingFileError: There is no such savepoint.
        ManifestError: The savepoint, or the newest epoch, is of another job.

    """
    newest = store.newest()
    if newest is not None:
        _check_job(store, newest, job)
    if start_from is None:
        return _after(newest)
    asked = store.manifest(start_from)
    _check_job(store, asked, job)
    if newest is None or (asked.lineage, asked.epoch) == (newest.lineage, newest.epoch):
        return ResumePoint(asked.lineage, asked, start_from)
    first = store.find(newest.lineage, asked.epoch + 1)
    if (first is not None and first.parent == start_from) or not roll_back:
        return _after(newest)
    log.warning("rolling back to %s: outputs published since then are not withdrawn", start_from)
    return ResumePoint(newest.lineage + 1, asked, start_from)


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
