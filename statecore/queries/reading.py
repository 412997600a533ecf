"""The rows of a checkpoint's state, alike for both state store providers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from statecore.queries import rocksdb
from statecore.queries.checkpoint import ROCKSDB, SparkCheckpoint
from statecore.queries.digests import StoreDigest, digest
from statecore.queries.hdfs import tables as hdfs
from statecore.queries.keys import key_schema, partition_columns
from statecore.queries.rocksdb import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from statecore.queries.operators import StatefulOperator
    from statecore.queries.stores import StateStore


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


def digests(spark: SparkSession, checkpoint: SparkCheckpoint, done: Callable[[], None]) -> list[StoreDigest]:
    """Read all state of a checkpoint and return the digest of each store; ``done`` is called after each."""
    found = []
    for operator in checkpoint.operators:
        for store in operator.stores:
            with spark_failures(checkpoint.url):
                found.append(digest(state_rows(spark, checkpoint, operator, store), store, ordered=operator.has_lists))
            done()
    return found
