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
    group = key_group_of([column(name) for name in key_columns], max_parallelism)
    subtask = subtask_of(group, max_parallelism, parallelism)
    placed = df.select("*", group.alias(KEY_GROUP), subtask.alias(SUBTASK))
    return placed.repartitionById(parallelism, SUBTASK)


def key_group_of(keys: Sequence[Column], max_parallelism: int) -> Column:
    """Return the key group of a key."""
    return F.pmod(F.xxhash64(*keys), F.lit(max_parallelism)).cast("int")


def subtask_of(key_group: Column, max_parallelism: int, parallelism: int) -> Column:
    """Return the subtask that owns a key group."""
    return F.call_function("div", key_group * parallelism, F.lit(max_parallelism)).cast("int")


def column(name: str) -> Column:
    """Return the column with exactly this name, which may contain dots."""
    return F.col(f"`{name.replace('`', '``')}`")
