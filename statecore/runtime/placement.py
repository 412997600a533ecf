"""Key group and subtask of a record, computed in the JVM; ``key_group_for`` is the Python twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from statecore.runtime.messages import KEY_GROUP, SUBTASK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def place(df: DataFrame, key_columns: Sequence[str], max_parallelism: int, parallelism: int) -> DataFrame:
    """Return the rows with their key group and subtask, each subtask's rows in the partition of its number."""
    key_group = key_group_of([column(name) for name in key_columns], max_parallelism)
    placed = df.withColumn(KEY_GROUP, key_group).withColumn(SUBTASK, subtask_of(max_parallelism, parallelism))
    return placed.repartitionById(parallelism, SUBTASK)


def key_group_of(keys: Sequence[Column], max_parallelism: int) -> Column:
    """Return the key group of a key."""
    return F.pmod(F.xxhash64(*keys), F.lit(max_parallelism)).cast("int")


def subtask_of(max_parallelism: int, parallelism: int) -> Column:
    """Return the subtask that owns the row's key group."""
    return F.expr(f"cast({KEY_GROUP} * {parallelism} div {max_parallelism} as int)")


def column(name: str) -> Column:
    """Return the column with exactly this name, which may contain dots."""
    return F.col(f"`{name.replace('`', '``')}`")
