"""Checkpoints whose state was laid out anew, without the proof: to see what reader and writer do by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from statecore.queries.copying.layout import commit, lay_out
from statecore.queries.copying.staging import staged
from statecore.queries.providers.rocksdb import read_store, rewrite
from statecore.queries.reading.checkpoint import SparkCheckpoint, open_checkpoint
from statecore.queries.rows.placement import placed

Rows = dict[tuple[int, str, str, bytes], list[bytes]]
"""Operator, store, column family and key to the key's values, in order."""


def rewritten(
    spark: SparkSession,
    source: Path,
    target: Path,
    partitions: int,
    place: Callable[[DataFrame], DataFrame] | None = None,
) -> Path:
    """Lay the state of a checkpoint out anew and return the new checkpoint."""
    checkpoint = open_checkpoint(str(source))
    with staged(str(target), checkpoint.url) as staging:
        lay_out(checkpoint, staging, partitions)
        how = place or (lambda rows: placed(rows, partitions))
        ids = rewrite(spark, checkpoint.url, staging.url, checkpoint.batch, partitions, how)
        commit(checkpoint, staging, ids)
    return target


def rows_of(spark: SparkSession, checkpoint: SparkCheckpoint) -> tuple[Rows, int]:
    """Return all rows of a checkpoint's state, and the number of those that Spark would look for elsewhere."""
    found: Rows = defaultdict(list)
    misplaced = 0
    for operator in checkpoint.operators:
        for store in operator.stores:
            rows = read_store(spark, checkpoint.url, store, checkpoint.batch, checkpoint.checkpoint_format)
            for row in placed(rows, store.partitions).collect():
                key = operator.number, store.name, row["column_family_name"], bytes(row["key_bytes"])
                found[key].append(bytes(row["value_bytes"]))
                misplaced += row["partition"] != row["target"]
    return dict(found), misplaced
