"""The savepoint that a driver resumes from: kept until the first commit, then dropped if the job owns it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress

from statecore.catalog import JobRecord
from statecore.errors import ConfigurationError, MissingFileError, SavepointInUseError
from statecore.runtime.epoch.runner import ResumePoint
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from statecore.snapshot.savepoints import drop_savepoint

log = logging.getLogger(__name__)


def keep_until_first_commit(
    stack: ExitStack, store: CheckpointStore, resume: ResumePoint, job: JobRecord
) -> Callable[[], None]:
    """Claim the savepoint that the driver resumes from; return a function to call after the first commit."""
    manifest = resume.manifest
    if manifest is None or resume.path is None or (resume.foreign is None and manifest.savepoint is None):
        # The job's own clean-up keeps its newest epoch.
        return lambda: None
    source, path = resume.foreign or store, resume.path
    claim = stack.enter_context(ExitStack())
    claim.enter_context(claimed(source.files, path, f"job {job.name}, which starts from it", name=f"start-{job.name}"))

    def release() -> None:
        claim.close()
        if job.claims_savepoint and manifest.savepoint is not None:
            _drop(source, path)

    return release


def drop_left_over(store: CheckpointStore, resume: ResumePoint, job: JobRecord) -> None:
    """Drop the savepoint of an earlier driver that died between its first commit and the drop."""
    committed = resume.manifest is not None and resume.manifest.generation > job.start_after_generation
    if job.claims_savepoint and job.start_from is not None and committed:
        with suppress(MissingFileError, ConfigurationError):
            _drop(store, job.start_from)


def _drop(store: CheckpointStore, path: str) -> None:
    try:
        freed = drop_savepoint(store, path)
    except SavepointInUseError as error:
        # The next driver retries; the stream need not wait for that.
        log.warning("the claimed savepoint is kept for now: %s", error)
    else:
        log.info("dropped the claimed savepoint %s, %d bytes", path, freed)
