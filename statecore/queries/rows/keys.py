"""Determines which key columns decide the state partition, for the HDFS-backed provider.

For RocksDB, Spark's reader returns them. The rule is Spark's ``StatePartitionKeyExtractor``: a query shuffles by the
grouping columns, which are the leading columns of the keys that it stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from statecore.queries.reading.operators import JOIN, SESSION_WINDOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statecore.queries.reading.checkpoint import SparkCheckpoint
    from statecore.queries.reading.operators import StatefulOperator
    from statecore.queries.reading.stores import StateStore

_INDEXED = "-keyWithIndexToValue"


def key_schema(spark: SparkSession, checkpoint: SparkCheckpoint, store: StateStore) -> StructType:
    """Return the columns of a store's keys, by the schema file that Spark keeps; reads no state."""
    reader = spark.read.format("statestore").option("path", checkpoint.url).option("batchId", checkpoint.batch)
    rows = reader.option("operatorId", store.operator).option("storeName", store.name).load()
    schema = rows.schema["key"].dataType
    assert isinstance(schema, StructType)
    return schema


def partition_columns(operator: StatefulOperator, store: StateStore, keys: StructType) -> int:
    """Return how many leading columns of a store's keys decide the partition; 0 for an operator without keys."""
    if operator.name == SESSION_WINDOW or (operator.name == JOIN and store.name.endswith(_INDEXED)):
        # The last one is the start of a session, or the index of a row among those of its key.
        return len(keys) - 1
    return len(keys)
