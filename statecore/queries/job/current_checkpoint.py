"""The checkpoint that has the newest state of a query."""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.queries.job.heads import Heads
from statecore.queries.reading.checkpoint import newest_batches
from statecore.storage import open_store
from statecore.storage.urls import normal_url


def current_checkpoint(job: JobRecord) -> str:
    """Return the URL of the checkpoint that has a query's newest state, at its number of partitions if one has.

    Raises:
        CheckpointError: A head, or its checkpoint, cannot be read.
        StorageError: The storage fails.

    """
    assert job.checkpoint is not None
    heads = Heads(job.store)
    if heads.newest is None:
        return job.checkpoint
    return (heads.fitting(job.parallelism) or heads.with_newest_state()[0]).checkpoint


def newest_batch(job: JobRecord) -> int | None:
    """Return the newest committed batch of a query; None before the first.

    Raises:
        CheckpointError: The logs of its checkpoint contradict each other.
        StorageError: The storage fails.

    """
    return newest_batches(open_store(normal_url(current_checkpoint(job))))[0]
