"""Select the checkpoint that a query resumes from after a rollback.

::

    rescale:   old ──copy, other number of partitions──► new       the job's checkpoint from its restart on
    rollback:  new has logged nothing of its own  ──►  old         no sink has seen a batch of it
               new has logged a batch             ──►  new         a sink may have the batch, by its number

In the second case the next driver first copies ``new`` back to the old number of partitions.
"""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.queries.reading.checkpoint import newest_batches
from statecore.queries.reading.origin import read_origin
from statecore.storage import open_store
from statecore.storage.urls import normal_url


def current_checkpoint(job: JobRecord) -> str:
    """Return the URL of the checkpoint that has the newest state of a query.

    Raises:
        CheckpointError: The checkpoint before a rollback cannot be read.
        StorageError: The storage fails.

    """
    assert job.checkpoint is not None
    left = job.left_checkpoint
    return left if left is not None and _has_begun(left) else job.checkpoint


def newest_batch(job: JobRecord) -> int | None:
    """Return the newest committed batch of a query; None before the first.

    Raises:
        CheckpointError: The logs of its checkpoint contradict each other.
        StorageError: The storage fails.

    """
    return newest_batches(open_store(normal_url(current_checkpoint(job))))[0]


def _has_begun(url: str) -> bool:
    """Return whether a query has logged a batch in a copy after the copied ones."""
    store = open_store(normal_url(url))
    origin = read_origin(store)
    copied = -1 if origin is None else origin.batch if origin.pending is None else origin.pending
    _, logged = newest_batches(store)
    return logged is not None and logged > copied
