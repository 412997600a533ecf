"""What a checkpoint says about the job that is registered for it."""

from __future__ import annotations

from statecore.errors import CheckpointRefusedError, InvalidParallelismError
from statecore.queries.job.savepoints import is_savepoint
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint
from statecore.storage import open_store
from statecore.storage.urls import normal_url


def partitions_of(checkpoint: str, asked: int | None) -> int | None:
    """Return the number of state partitions of a job's query: that of its checkpoint, which the query keeps for life.

    Args:
        checkpoint: Where the query's checkpoint is, or will be.
        asked: The wanted number; None for that of the checkpoint.

    Returns:
        The number; None if nobody says one.

    Raises:
        InvalidParallelismError: Another number is wanted than the checkpoint has.
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
    found = open_checkpoint(checkpoint).partitions
    if asked not in (None, found):
        raise InvalidParallelismError(
            f"found parallelism {asked} for the checkpoint {checkpoint}, which has {found} state partitions; expected "
            f"{found}, because Spark keeps the number for life; leave --parallelism out, or write a checkpoint with "
            f"{asked}: `statecore checkpoint rescale {checkpoint} TARGET --partitions {asked}`"
        )
    return found
