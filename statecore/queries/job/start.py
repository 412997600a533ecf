"""Makes the checkpoint from which a stopped job, a query of Spark's own, starts from a savepoint."""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.errors import CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.copying.clone import clone
from statecore.queries.job.current_checkpoint import current_checkpoint
from statecore.queries.job.new_checkpoint import new_checkpoint
from statecore.queries.progress import Report, quiet
from statecore.queries.reading.checkpoint import (
    SparkCheckpoint,
    newest_batches,
    open_checkpoint,
    query_id,
    read_offsets,
)
from statecore.storage import FileStore, open_store
from statecore.storage.urls import normal_url


def begin_from(
    job: JobRecord, savepoint: str, name: str, *, roll_back: bool = False, report: Report = quiet
) -> SparkCheckpoint:
    """Clone a savepoint to a new checkpoint for a job; the savepoint stays unchanged.

    Args:
        job: The job.
        savepoint: URL of the savepoint, or of any checkpoint of a query that does not run.
        name: Name of the new checkpoint.
        roll_back: Whether to discard batches that the job has begun after the savepoint.
        report: Called with the number of files done, and of all.

    Raises:
        CheckpointRefusedError: The job has begun batches that the savepoint does not have, or it cannot be cloned.
        CheckpointDamagedError: A file of the savepoint, or of the job's checkpoint, is missing or not whole.
        StorageError: The storage fails.

    """
    source = open_checkpoint(savepoint)
    if not roll_back:
        _require_no_later(job, source)
    target = new_checkpoint(job, name)
    clone(source, target, report)
    return open_checkpoint(target)


def _require_no_later(job: JobRecord, source: SparkCheckpoint) -> None:
    """Refuse to discard batches.

    Raises:
        CheckpointRefusedError: The job has begun a batch that the savepoint does not have, or has another one under its
            number.

    """
    url = current_checkpoint(job)
    store = open_store(normal_url(url))
    committed, logged = newest_batches(store)
    last = committed if logged is None else logged
    if last is None or _has(source, store, last):
        return
    raise CheckpointRefusedError(
        f"found batch {last} begun in {url}; expected job {job.name!r} to begin with {source.url}, which is at batch "
        f"{source.batch} of query {source.query_id} and lacks that batch; sinks may skip or double rows of a batch "
        "whose number repeats; add --roll-back to leave the later batches behind, or start without --from"
    )


def _has(source: SparkCheckpoint, store: FileStore, batch: int) -> bool:
    """Return whether a checkpoint has the batch of another one: a rescale changes nothing but its number of partitions.

    A number alone says little: a query that was rolled back has used it again.
    """
    if query_id(store) != source.query_id or batch > (source.pending or source.batch):
        return False
    try:
        theirs, ours = read_offsets(source.store, batch), read_offsets(store, batch)
    except CheckpointDamagedError:
        # One of them is so much newer that it has removed the entry.
        return False
    return theirs.with_partitions(1) == ours.with_partitions(1)
