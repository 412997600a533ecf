"""Digests of the rows of state stores, to compare two stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from statecore.queries.providers.rocksdb import spark_failures
from statecore.queries.providers.state_rows import state_rows
from statecore.queries.rows.placement import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from statecore.queries.reading.checkpoint import SparkCheckpoint
    from statecore.queries.reading.stores import StateStore

_LOW_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class FamilyDigest:
    """A multiset of rows: equal multisets have equal digests, others differ but for a chance of about 2**-64.

    Attributes:
        rows: Number of rows.
        high: Sum of the upper halves of the rows' 64-bit hashes.
        low: Sum of the lower halves.

    """

    rows: int = 0
    high: int = 0
    low: int = 0

    def plus(self, other: FamilyDigest) -> FamilyDigest:
        """Return the digest of both multisets together."""
        return FamilyDigest(self.rows + other.rows, self.high + other.high, self.low + other.low)


@dataclass(frozen=True, slots=True)
class StoreDigest:
    """The contents of one state store, in all its partitions.

    Attributes:
        store: The state store.
        families: Digest of each column family that has rows, by its name.
        rows: Number of rows in each state partition.
        misplaced: Number of rows in each partition that Spark would look for in another one.

    """

    store: StateStore
    families: Mapping[str, FamilyDigest]
    rows: tuple[int, ...]
    misplaced: tuple[int, ...]


def digest(rows: DataFrame, store: StateStore, *, ordered: bool) -> StoreDigest:
    """Read a state store and return its digest.

    Args:
        rows: Its rows: ``partition``, ``partition_key``, ``key_bytes``, ``value_bytes``, ``column_family_name``.
        store: The state store, with its number of partitions.
        ordered: Whether one key may have several rows, whose order counts.

    """
    parts = [f.col("column_family_name"), f.col("key_bytes"), f.col("value_bytes")]
    if ordered:
        # A key's rows all lie in one partition, so their order there is that of their list.
        rows = rows.withColumn("position", f.monotonically_increasing_id())
        list_of = Window.partitionBy("partition", "column_family_name", "key_bytes").orderBy("position")
        rows = rows.withColumn("place", f.row_number().over(list_of))
        parts.append(f.col("place"))
    groups = (
        rows.withColumn("row_hash", f.xxhash64(*parts))
        .groupBy("partition", "column_family_name")
        .agg(
            f.count("*").alias("rows"),
            f.sum(f.shiftright("row_hash", 32)).alias("high"),
            f.sum(f.col("row_hash").bitwiseAND(f.lit(_LOW_BITS))).alias("low"),
            f.count_if(f.col("partition") != partition_of(rows, store.partitions)).alias("misplaced"),
        )
        .collect()
    )
    families: dict[str, FamilyDigest] = defaultdict(FamilyDigest)
    counts, misplaced = [0] * store.partitions, [0] * store.partitions
    for row in groups:
        family = row["column_family_name"]
        families[family] = families[family].plus(FamilyDigest(row["rows"], row["high"], row["low"]))
        counts[row["partition"]] += row["rows"]
        misplaced[row["partition"]] += row["misplaced"]
    return StoreDigest(store, dict(families), tuple(counts), tuple(misplaced))


def digests(spark: SparkSession, checkpoint: SparkCheckpoint, done: Callable[[], None]) -> list[StoreDigest]:
    """Read all state of a checkpoint and return the digest of each store; ``done`` is called after each."""
    by_store = []
    for operator in checkpoint.operators:
        for store in operator.stores:
            with spark_failures(checkpoint.url):
                by_store.append(
                    digest(state_rows(spark, checkpoint, operator, store), store, ordered=operator.has_lists)
                )
            done()
    return by_store
