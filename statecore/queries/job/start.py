"""Makes the checkpoint from which a stopped job, a query of Spark's own, starts from a savepoint."""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.errors import CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.copying.clone import clone
from statecore.queries.job.current_checkpoint import current_checkpoint
from statecore.queries.job.heads import Heads
from statecore.queries.job.new_checkpoint import new_checkpoint
from statecore.queries.progress import Report, quiet
from statecore.queries.reading.checkpoint import (
    SparkCheckpoint,
    newest_batches,
    open_checkpoint,
    query_id,
    read_offsets,
)
from statecore.queries.reading.files import canonical_url
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


def adopt(job: str, store: str, checkpoint: str, generation: int) -> None:
    """Append a head of a checkpoint that a stopped job is registered with.

    Before the job's first start there are no heads; then its driver appends the first one.

    Args:
        job: Name of the job.
        store: URL of its store.
        checkpoint: URL of the checkpoint.
        generation: The job's newest generation, 0 before the first.

    Raises:
        CheckpointRefusedError: The query has begun a batch that the checkpoint lacks.
        CheckpointDamagedError: A file of it, or of the newest head's checkpoint, is missing or not whole.
        StorageError: The storage fails.

    """
    heads = Heads(store)
    equal = heads.with_newest_state()
    if not equal or canonical_url(checkpoint) in [canonical_url(head.checkpoint) for head in equal]:
        return
    current = open_store(normal_url(equal[0].checkpoint))
    last = _last_begun(current)
    if last is not None:
        committed, _ = newest_batches(open_store(normal_url(checkpoint)))
        source = None if committed is None else open_checkpoint(checkpoint)
        if source is None or not _has(source, current, last):
            raise CheckpointRefusedError(
                f"found batch {last} begun in {current.url}; expected job {job!r} to resume from there, because "
                f"{checkpoint} lacks that batch; leave --checkpoint out; to leave later batches behind, run `statecore "
                f"start {job} --from {checkpoint} --roll-back`; for another query, give another --store"
            )
    heads.append(checkpoint, "registered", generation, is_base=True)


def _require_no_later(job: JobRecord, source: SparkCheckpoint) -> None:
    """Refuse to discard batches.

    Raises:
        CheckpointRefusedError: The job has begun a batch that the savepoint does not have, or has another one under its
            number.

    """
    store = open_store(normal_url(current_checkpoint(job)))
    last = _last_begun(store)
    if last is None or _has(source, store, last):
        return
    raise CheckpointRefusedError(
        f"found batch {last} begun in {store.url}; expected job {job.name!r} to begin with {source.url}, which is at "
        f"batch {source.batch} of query {source.query_id} and lacks that batch; sinks may skip or double rows of a "
        "batch whose number repeats; add --roll-back to leave the later batches behind, or start without --from"
    )


def _last_begun(store: FileStore) -> int | None:
    committed, logged = newest_batches(store)
    return committed if logged is None else logged


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
