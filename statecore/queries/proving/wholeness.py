"""Checks that a checkpoint, such as a savepoint, is whole: all that its query needs exists and can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from statecore.queries.copying.clone import on_this_machine
from statecore.queries.progress import Report, quiet, steps
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.files import files_below
from statecore.queries.reading.refusals import refusal_of
from statecore.queries.reading.source_logs import require_whole_sources
from statecore.queries.reading.state_files import require_state
from statecore.storage.workspaces import workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Wholeness:
    """A checkpoint that is whole.

    Attributes:
        path: Its URL.
        batch: The newest committed batch.
        files: Number of files.
        bytes: Their size.
        rows: Rows of state that were read, of all stores; None if state was not read.
        unread: Why it was not read; None if it was.

    """

    path: str
    batch: int
    files: int
    bytes: int
    rows: int | None
    unread: str | None


def check_whole(url: str, *, spark: SparkSession | None = None, report: Report = quiet) -> Wholeness:
    """Check that a query can resume from a checkpoint: read its logs, its sources' files, and all rows of state.

    State of a kind that statecore does not cover is not read; only the existence of its files is checked.

    Args:
        url: The checkpoint; it is only read.
        spark: A session on this machine; None starts one.
        report: Called with the number of state stores read, and of all.

    Raises:
        CheckpointDamagedError: A file is missing or not whole.
        CheckpointRefusedError: There is no checkpoint, or the query is running.
        StorageError: The storage fails.

    """
    checkpoint = open_checkpoint(url)
    files = files_below(checkpoint.url)
    require_state(checkpoint, files)
    require_whole_sources(checkpoint)
    unread = refusal_of(checkpoint) if checkpoint.operators else None
    rows = 0 if unread is None else None
    if unread is None and checkpoint.operators:
        # Imported on demand: PySpark is slow to import.
        from statecore.queries.proving.digests import digests
        from statecore.queries.proving.proof import check_counted
        from statecore.queries.session import query_session

        done = steps(report, sum(len(operator.stores) for operator in checkpoint.operators))
        with workspace("verify") as folder:
            here = on_this_machine(checkpoint, folder / "here")
            stores = digests(spark or query_session(), here, done)
            check_counted(here, stores)
            rows = sum(sum(store.rows) for store in stores)
    return Wholeness(checkpoint.url, checkpoint.batch, len(files), sum(entry.size for entry in files), rows, unread)
