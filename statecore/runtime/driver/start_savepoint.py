"""The savepoint that a job should start from: claimed until an epoch follows it, and then forgotten."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from statecore.catalog import Catalog, ClaimedSavepoint, JobRecord, Jobs
from statecore.errors import MissingFileError, SavepointInUseError, StatecoreError, StorageError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import LIFETIME, claimed
from statecore.snapshot.manifest import Manifest, fingerprint
from statecore.snapshot.resume_point import ResumePoint, is_start_pending
from statecore.snapshot.savepoints import drop_savepoint

log = logging.getLogger(__name__)


def keep_until_first_commit(
    stack: ExitStack, catalog: Catalog, store: CheckpointStore, resume: ResumePoint, job: JobRecord
) -> Callable[[], None]:
    """Claim the savepoint that the driver resumes from; return a function to call after the first commit."""
    if job.start_from is None:
        return lambda: None
    claim = stack.enter_context(ExitStack())
    if resume.path is not None and resume.manifest is not None and resume.manifest.savepoint is not None:
        source, holder = resume.foreign or store, f"job {job.name}, which starts from it"
        claim.enter_context(claimed(source.files, resume.path, holder))

    def release() -> None:
        with suppress(StorageError):
            # A claim that stays expires.
            claim.close()
        forget_start(catalog.jobs, store, job)

    return lambda: beside_the_stream(release)


def end_start(jobs: Jobs, store: CheckpointStore, resume: Manifest | None, job: JobRecord) -> JobRecord:
    """End a job's request to start from a savepoint once it resumes from an epoch of its own; return the job after it.

    A max parallelism other than that epoch's was requested with the savepoint, and ends with it.
    """
    if resume is None or resume.savepoint is not None:
        return job
    if job.start_from is not None and not is_start_pending(resume, job):
        beside_the_stream(partial(forget_start, jobs, store, job))
    if resume.max_parallelism == job.max_parallelism:
        return job
    log.warning("the job keeps max parallelism %d of its newest epoch", resume.max_parallelism)
    fitting = min(job.parallelism, resume.max_parallelism)
    return jobs.set_desired(job.name, parallelism=fitting, max_parallelism=resume.max_parallelism)


def beside_the_stream(action: Callable[[], None]) -> None:
    """Run an action in a thread, because a savepoint may consist of many files, and another reader may hold it."""
    threading.Thread(target=action, name="statecore-start-savepoint", daemon=True).start()


def forget_start(jobs: Jobs, store: CheckpointStore, job: JobRecord) -> None:
    """Drop the savepoint that a job was asked to start from, if the job owns it, and clear the request in the catalog.

    Repeatable: the next driver does it if this one dies before. It waits until the claim of a killed driver expires.
    """
    try:
        if job.claims_savepoint is not None:
            _drop(store, job.claims_savepoint)
        jobs.clear_start(job.name, job.start_after_generation)
    except StatecoreError as error:
        log.warning("the savepoint that job %s has started from is kept for now: %s", job.name, error)


@retry(
    retry=retry_if_exception_type(SavepointInUseError),
    wait=wait_fixed(60),
    stop=stop_after_delay(2 * LIFETIME),
    reraise=True,
)
def _drop(store: CheckpointStore, claims: ClaimedSavepoint) -> None:
    try:
        savepoint = store.open(claims.path)
        if fingerprint(savepoint.manifest) != claims.fingerprint:
            log.info("kept %s: it is not the savepoint that the job has started from", claims.path)
            return
        freed = drop_savepoint(savepoint.store, savepoint.path)
    except MissingFileError:
        return
    log.info("dropped the claimed savepoint %s, %d bytes", claims.path, freed)
