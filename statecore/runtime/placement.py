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
    key_group = F.pmod(F.xxhash64(*(column(name) for name in key_columns)), F.lit(max_parallelism))
    subtask = F.expr(f"cast({KEY_GROUP} * {parallelism} div {max_parallelism} as int)")
    placed = df.withColumn(KEY_GROUP, key_group.cast("int")).withColumn(SUBTASK, subtask)
    return placed.repartitionById(parallelism, SUBTASK)


def column(name: str) -> Column:
    """Return the column of exactly that name, dots and all."""
    return F.col(f"`{name.replace('`', '``')}`")
