"""Tries a query file on a clone of its checkpoint, before the running query is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from statecore.queries.copying.clone import clone
from statecore.queries.job.query_file import load_query
from statecore.queries.proving.trial import trial_restart
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.session import query_session
from statecore.storage.workspaces import workspace

_REMEDY = (
    "nothing was stopped; keep the operators and the schemas of their state as they are, or begin with a new checkpoint"
)


def try_query(url: str, query: str | Path, settings: Mapping[str, str], *, spark: SparkSession | None = None) -> int:
    """Restart a query from a clone of a checkpoint, for one empty batch; return the batch that it follows.

    Args:
        url: The checkpoint; it is only read, and may be written to meanwhile.
        query: A file that defines ``build(spark, settings)``.
        settings: The settings that ``build`` gets.
        spark: A session on this machine; None starts one.

    Raises:
        NotProvenError: Spark refuses the query on this checkpoint; the message has its reason.
        QueryDefinitionError: The file is wrong.
        CheckpointError: The checkpoint cannot be cloned or read.
        StorageError: The storage fails.

    """
    build = load_query(query)
    with workspace("trial") as folder:
        made = clone(open_checkpoint(url), str(folder / "copy"), running=True)
        session = spark or query_session()
        trial_restart(
            session, made.target, build, settings, folder / "trial", tried_on="its checkpoint", remedy=_REMEDY
        )
    return made.batch
