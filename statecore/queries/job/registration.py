"""Reads the number of state partitions from the checkpoint of a job that is being registered."""

from __future__ import annotations

from statecore.errors import CheckpointRefusedError, InvalidParallelismError
from statecore.queries.job.savepoints import is_savepoint
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint
from statecore.storage import open_store
from statecore.storage.urls import normal_url


def partitions_of(checkpoint: str, asked: int | None) -> int | None:
    """Return the number of state partitions of a job's query; an existing checkpoint fixes it.

    Args:
        checkpoint: Where the query's checkpoint is, or will be.
        asked: The requested number; None for the checkpoint's.

    Returns:
        The number; None if neither gives one.

    Raises:
        InvalidParallelismError: The requested number differs from the checkpoint's.
        CheckpointError: The checkpoint cannot be read, or is a savepoint.
        StorageError: The storage fails.

    """
    if is_savepoint(checkpoint):
        raise CheckpointRefusedError(
            f"found the checkpoint {checkpoint} among savepoints; expected one that is no savepoint, "
            "because the query writes to it; clone it with `statecore checkpoint clone`, and give the clone"
        )
    batch, logged = newest_batches(open_store(normal_url(checkpoint)))
    if batch is None and logged is None:
        return asked
    partitions = open_checkpoint(checkpoint).partitions
    if asked not in (None, partitions):
        raise InvalidParallelismError(
            f"found parallelism {asked} for the checkpoint {checkpoint}, which has {partitions} state partitions; "
            f"expected {partitions}, because Spark keeps the number for life; leave --parallelism out, or write a "
            f"checkpoint with {asked}: `statecore checkpoint rescale {checkpoint} TARGET --partitions {asked}`"
        )
    return partitions
