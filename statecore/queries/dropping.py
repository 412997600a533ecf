"""Removes copies of checkpoints that statecore made for a job and nobody needs: savepoints, and those it has left."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from statecore.catalog import Catalog, JobRecord
from statecore.errors import CheckpointRefusedError, SavepointInUseError
from statecore.queries.files import INCOMPLETE, files_below, is_local, local_path
from statecore.queries.origin import ORIGIN, read_origin
from statecore.queries.savepoints import SAVEPOINTS
from statecore.queries.targets import CHECKPOINTS
from statecore.storage import in_batches, open_store
from statecore.storage.urls import normal_url

# As many as S3 deletes in one request.
_BATCH = 1000


def is_copy(url: str) -> bool:
    """Tell whether a URL is that of a checkpoint that statecore has copied, such as a savepoint of a query.

    Raises:
        CheckpointError: The file that says so cannot be read.
        StorageError: The storage fails.

    """
    return read_origin(open_store(normal_url(url))) is not None


def drop_savepoint(url: str, *, progress: Callable[[int, int], None] | None = None) -> int:
    """Remove a savepoint of a query.

    Safe to interrupt, and to repeat: what is left of one is no checkpoint any more.

    Args:
        url: The savepoint's folder.
        progress: Receives the number of files removed so far, and of all.

    Returns:
        The freed bytes; less than that on a file system where other checkpoints have links to the files.

    Raises:
        CheckpointRefusedError: It is not a savepoint.
        StorageError: The storage fails.

    """
    url = normal_url(url).rstrip("/")
    if not is_copy(url) or url.split("/")[-2] != SAVEPOINTS:
        raise CheckpointRefusedError(
            f"found no savepoint at {url}; expected a folder <store>/{SAVEPOINTS}/NAME with {ORIGIN}, because only "
            "what statecore took as a savepoint is dropped; remove another checkpoint by hand"
        )
    return _remove(url, progress)


def require_unused(catalog: Catalog, url: str) -> None:
    """Refuse to drop a savepoint that a running rescale may need.

    Raises:
        SavepointInUseError: A run that has not ended began with it.

    """
    for job in catalog.jobs():
        for run in catalog.rescale_runs(job.name):
            if run.state == "running" and run.savepoint and _is(job, run.savepoint, url):
                raise SavepointInUseError(
                    f"found the savepoint {url} in use by the rescale {run.run_id} of job {job.name!r}; expected no "
                    "run that needs it; wait until that run has ended"
                )


def surplus_checkpoints(catalog: Catalog, job: JobRecord) -> list[str]:
    """Return the checkpoints in a query's store that no job uses any more: rescales and rollbacks left them.

    None while a run changes the job, or a rollback is not settled.

    Raises:
        StorageError: The store cannot be listed.

    """
    busy = any(run.state == "running" for run in catalog.rescale_runs(job.name))
    if busy or job.left_checkpoint is not None or catalog.lease(job.name) is not None:
        return []
    root = open_store(job.store)
    used = {
        _canonical(url) for each in catalog.jobs() for url in (each.checkpoint, each.left_checkpoint) if url is not None
    }
    found = (f"{root.url.rstrip('/')}/{path}" for path in root.folders(CHECKPOINTS))
    return [url for url in sorted(found) if _canonical(url) not in used and is_copy(url)]


def remove_checkpoint(url: str) -> int:
    """Remove a surplus checkpoint; return the freed bytes, as ``drop_savepoint`` does.

    Raises:
        StorageError: The storage fails.

    """
    return _remove(url, None)


def _is(job: JobRecord, path: str, url: str) -> bool:
    whole = path if "://" in path or path.startswith("/") else f"{open_store(job.store).url.rstrip('/')}/{path}"
    return _canonical(whole) == _canonical(url)


def _canonical(url: str) -> str:
    """Return the one spelling of a URL; of a local one behind all links."""
    return str(local_path(url)) if is_local(url) else normal_url(url).rstrip("/")


def _remove(url: str, progress: Callable[[int, int], None] | None) -> int:
    store = open_store(url)
    files = [entry for entry in files_below(url) if entry.path not in (INCOMPLETE, ORIGIN)]
    # From here on nobody takes the rest for a checkpoint. What it is known by goes last, so that this can be repeated.
    store.write(INCOMPLETE, b"dropped")
    removed = 0
    for batch in in_batches(files, _BATCH):
        store.delete_all(entry.path for entry in batch)
        removed += len(batch)
        if progress is not None:
            progress(removed, len(files))
    store.delete_all([ORIGIN, INCOMPLETE])
    if is_local(url):
        # Folders that had no files of their own.
        shutil.rmtree(local_path(url), ignore_errors=True)
    return sum(entry.size for entry in files)
