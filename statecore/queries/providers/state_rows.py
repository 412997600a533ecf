"""The rows of a checkpoint's state, alike for both state store providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statecore.queries.providers import rocksdb
from statecore.queries.providers.hdfs import tables as hdfs
from statecore.queries.reading.checkpoint import ROCKSDB, SparkCheckpoint
from statecore.queries.rows.keys import key_schema, partition_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from statecore.queries.reading.operators import StatefulOperator
    from statecore.queries.reading.stores import StateStore


def state_rows(
    spark: SparkSession, checkpoint: SparkCheckpoint, operator: StatefulOperator, store: StateStore
) -> DataFrame:
    """Return the rows of a state store after the newest committed batch.

    Returns:
        ``partition`` int, ``partition_key`` struct, ``key_bytes`` and ``value_bytes`` binary as the store has them, and
        ``column_family_name`` string.

    """
    if checkpoint.provider == ROCKSDB:
        return rocksdb.read_store(spark, checkpoint.url, store, checkpoint.batch, checkpoint.checkpoint_format)
    keys = key_schema(spark, checkpoint, store)
    leading = partition_columns(operator, store, keys)
    return hdfs.read_store(spark, checkpoint.url, store, checkpoint.version, keys, leading, checkpoint.conf)
