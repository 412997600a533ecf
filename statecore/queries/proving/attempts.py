"""The state written by an attempt at a batch that is logged but not committed.

Some sinks, such as Spark's file sink and Delta, skip a batch that they already have. Spark then commits the batch
without computing it, and the next batch starts from the state that the attempt wrote. A sink has a batch only after all
state of the batch is written. So a copy needs this state too, besides that of the newest committed batch, from which a
query with another sink recomputes the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.errors import NotProvenError
from statecore.queries.copying.clone import cloned
from statecore.queries.progress import uncounted
from statecore.queries.proving.digests import digests
from statecore.queries.proving.proof import check_same_state
from statecore.queries.reading.checkpoint import COMMITS, SparkCheckpoint, open_checkpoint
from statecore.queries.reading.files import files_below
from statecore.queries.reading.state_files import missing_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statecore.queries.proving.digests import StoreDigest


@contextmanager
def after_attempt(checkpoint: SparkCheckpoint, scratch: Path) -> Iterator[SparkCheckpoint | None]:
    """Yield a clone of a checkpoint with the attempt committed; None without an attempt, or if its state is incomplete.

    In state checkpoint format 2 the commit names the files, so the files of an attempt cannot be identified: Spark
    4.3.0 itself fails when a sink skips the batch.

    Args:
        checkpoint: The checkpoint; it is only read.
        scratch: A local folder that does not exist, for the clone; it is gone afterwards.

    Raises:
        CheckpointError: The checkpoint cannot be cloned.
        StorageError: The storage fails.

    """
    if not _is_left(checkpoint):
        yield None
        return
    with cloned(checkpoint.url, scratch) as copy:
        # Spark reads the state of committed batches alone.
        copy.store.write(f"{COMMITS}/{copy.pending}", copy.commit.encode())
        yield open_checkpoint(copy.url)


def check_attempt(spark: SparkSession, expected: Sequence[StoreDigest], copy: SparkCheckpoint, scratch: Path) -> None:
    """Check that a copy has the state that an attempt wrote.

    Args:
        spark: The session.
        expected: Digests of that state.
        copy: The copy; it is only read.
        scratch: A local folder that does not exist, for a clone of it; it is gone afterwards.

    Raises:
        NotProvenError: The state is missing or differs.
        CheckpointError: The copy cannot be cloned or read.
        StorageError: The storage fails.

    """
    with after_attempt(copy, scratch) as ahead:
        if ahead is None:
            raise NotProvenError(
                f"found no state of version {copy.version + 1} in {copy.url}; expected what the attempt at batch "
                f"{copy.version} left, which is logged and not committed: a sink may have its rows; make the copy again"
            )
        check_same_state(expected, digests(spark, ahead, uncounted))


def _is_left(checkpoint: SparkCheckpoint) -> bool:
    if checkpoint.pending is None or checkpoint.checkpoint_format > 1:
        return False
    ahead = replace(checkpoint, batch=checkpoint.pending, pending=None)
    return not any(missing_state(ahead, files_below(checkpoint.url)))
