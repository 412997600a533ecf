"""Removes copies of checkpoints made for a job: savepoints, replaced checkpoints, and interrupted copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise

from statecore.catalog import Catalog, JobRecord, Jobs
from statecore.errors import CheckpointRefusedError, SavepointInUseError
from statecore.queries.copying.staging import is_left_over
from statecore.queries.job.heads import Heads
from statecore.queries.job.new_checkpoint import CHECKPOINTS
from statecore.queries.job.savepoints import SAVEPOINTS, is_savepoint
from statecore.queries.reading.files import INCOMPLETE, canonical_url, files_below, is_local, local_path
from statecore.queries.reading.origin import ORIGIN, is_copy
from statecore.storage import in_batches, open_store
from statecore.storage.urls import normal_url

# As many as S3 deletes in one request.
_BATCH = 1000


def drop_savepoint(url: str, *, progress: Callable[[int, int], None] | None = None) -> int:
    """Remove a savepoint of a query.

    Safe to interrupt and to repeat: a partly removed savepoint is no checkpoint any more.

    Args:
        url: The savepoint's folder.
        progress: Receives the number of files removed so far, and of all.

    Returns:
        The freed bytes; fewer are freed on a file system where other checkpoints link to the files.

    Raises:
        CheckpointRefusedError: It is not a savepoint.
        StorageError: The storage fails.

    """
    if not is_savepoint(url):
        raise CheckpointRefusedError(
            f"found no savepoint at {url}; expected a folder <store>/{SAVEPOINTS}/NAME with {ORIGIN}, because "
            "statecore drops only savepoints; remove any other checkpoint by hand"
        )
    return _remove(normal_url(url).rstrip("/"), progress)


def require_unused(catalog: Catalog, url: str) -> None:
    """Refuse to drop a savepoint that a running rescale may need, or that is a job's checkpoint.

    Raises:
        SavepointInUseError: A run that has not ended uses it, or a job's query writes to it.

    """
    for job in catalog.jobs.all():
        if job.checkpoint is not None and canonical_url(job.checkpoint) == canonical_url(url):
            raise SavepointInUseError(
                f"found the savepoint {url} to be the checkpoint of job {job.name!r}; expected one that no query "
                "writes to; give the job a clone of it: `statecore checkpoint clone`, then `register --checkpoint`"
            )
        for run in catalog.runs.of(job.name):
            if run.state == "running" and run.savepoint and _is(job, run.savepoint, url):
                raise SavepointInUseError(
                    f"found the savepoint {url} in use by the rescale {run.run_id} of job {job.name!r}; expected no "
                    "run that needs it; wait until that run has ended"
                )


def surplus_checkpoints(catalog: Catalog, name: str, untouched_ms: int) -> Iterator[str]:
    """Yield the checkpoints in a query's store that rescales and rollbacks have replaced, and interrupted copies.

    Yields none while a run changes the job, and none that a head has named within the time. Each is checked for use
    just before it is yielded, because the removal of the previous one may take long.

    Args:
        catalog: Records which job uses which checkpoint.
        name: The job.
        untouched_ms: Minimum age of the last write. A writer that the catalog does not know, such as a driver that
            outlives a change of the job, protects its checkpoint by writing to it.

    Raises:
        UnknownJobError: The job is not registered.
        StorageError: The store cannot be listed.

    """
    root = open_store(catalog.jobs.get(name).store)
    # Listed before anything is looked up: what a run makes from now on is not among them, and what one has made before
    # is the job's by the time its lease is gone.
    for path in [*root.folders(CHECKPOINTS), *root.folders(SAVEPOINTS)]:
        url = f"{root.url.rstrip('/')}/{path}"
        may_go = is_left_over(url) or (path.startswith(f"{CHECKPOINTS}/") and is_copy(url))
        if not may_go or _is_changing(catalog, name) or _is_used(catalog.jobs, url):
            continue
        since_ms = catalog.now_ms() - untouched_ms
        if _written_ms(url) <= since_ms and canonical_url(url) not in _of_heads(root.url, since_ms):
            yield url


def remove_checkpoint(url: str) -> int:
    """Remove a surplus checkpoint; return the freed bytes, as ``drop_savepoint`` does.

    Raises:
        StorageError: The storage fails.

    """
    return _remove(url, None)


def _written_ms(url: str) -> int:
    """Return the time of the last write to a folder, which may have no files yet."""
    files = [entry.modified_ms for entry in files_below(url)]
    if not files and is_local(url):
        with suppress(FileNotFoundError):
            files.append(int(local_path(url).stat().st_mtime * 1000))
    return max(files, default=0)


def _is_changing(catalog: Catalog, name: str) -> bool:
    """Return whether a run changes a job."""
    return catalog.leases.find(name) is not None or any(run.state == "running" for run in catalog.runs.of(name))


def _is_used(jobs: Jobs, url: str) -> bool:
    return any(job.checkpoint is not None and canonical_url(job.checkpoint) == canonical_url(url) for job in jobs.all())


def _of_heads(store: str, since_ms: int) -> set[str]:
    """Return the checkpoints of a query's heads: those with the newest state, and those that it had since a time."""
    heads = Heads(store)
    equal = heads.with_newest_state()
    named = {canonical_url(head.checkpoint) for head in equal}
    for newer, head in pairwise(heads):
        if newer.time_ms <= since_ms and newer.number <= equal[0].number:
            break
        named.add(canonical_url(head.checkpoint))
    return named | ({canonical_url(heads.newest.checkpoint)} if heads.newest is not None else set())


def _is(job: JobRecord, path: str, url: str) -> bool:
    whole = path if "://" in path or path.startswith("/") else f"{open_store(job.store).url.rstrip('/')}/{path}"
    return canonical_url(whole) == canonical_url(url)


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
