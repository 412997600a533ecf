"""Computes the state partition where Spark looks for a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TARGET = "target"
"""Column of the state partition that a row belongs to."""


def partition_of(rows: DataFrame, partitions: int) -> Column:
    """Return the state partition, 0 … ``partitions - 1``, where Spark looks for each row.

    It is the expression of Spark's ``repartition(partitions, keys)``: the Murmur3 hash of a struct is its fields' hash
    in order. An operator without keys keeps its state in partition 0.

    Args:
        rows: Rows of a state store, with the struct column ``partition_key``.
        partitions: Number of state partitions.

    """
    if not len(rows.schema["partition_key"].dataType.fieldNames()):  # type: ignore[attr-defined]
        return f.lit(0)
    return f.pmod(f.hash("partition_key"), f.lit(partitions))


def placed(rows: DataFrame, partitions: int) -> DataFrame:
    """Return the rows with the int column ``target``, the state partition that each belongs to."""
    return rows.withColumn(TARGET, partition_of(rows, partitions))
