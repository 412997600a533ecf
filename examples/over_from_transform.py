"""The way over from a ``transformWithStateInPandas``: the query, the job that takes its place, the savepoint between.

The query keeps of each user the number of payments, a value state, and the newest three, a list state. See
``over_from_groupby`` for what to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor, StatefulProcessorHandle

from statecore import KeyedProcessFunction, ListStateDescriptor, ValueStateDescriptor
from statecore.functions import ProcessContext, RuntimeContext
from statecore.runtime import Job, ParquetSink, write_savepoint

PAYMENTS = "user string, cents bigint"
KEPT = 3
COUNT = ValueStateDescriptor("count", "bigint")
NEWEST = ListStateDescriptor("newest", "bigint")


def payments(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    """Return the stream that both read."""
    return spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", 1).parquet(settings["input"])


class NewestProcessor(StatefulProcessor):
    """What Spark calls for the rows of a user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._count = handle.getValueState("count", "count bigint")
        self._newest = handle.getListState("newest", "cents bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Count payments, and keep the newest."""
        (count,) = self._count.get() or (0,)
        newest = [cents for (cents,) in self._newest.get()]
        for frame in rows:
            count += len(frame)
            newest = [*newest, *map(int, frame["cents"])][-KEPT:]
        self._count.update((count,))
        self._newest.put([(cents,) for cents in newest])
        yield pd.DataFrame({"user": [key[0]], "payments": [count], "newest_cents": [sum(newest)]})

    def close(self) -> None:
        """Nothing is open."""


def query(spark: SparkSession, settings: Mapping[str, str]) -> DataStreamWriter:
    """Describe the query that is left; its state needs RocksDB as state store."""
    newest = (
        payments(spark, settings)
        .groupBy("user")
        .transformWithStateInPandas(
            NewestProcessor(),
            outputStructType="user string, payments bigint, newest_cents bigint",
            outputMode="Update",
            timeMode="None",
        )
    )
    return newest.writeStream.outputMode("update").format("noop")


class Newest(KeyedProcessFunction):
    """Counts the payments of a user and keeps the newest; yields the number and their sum after each."""

    def open(self, ctx: RuntimeContext) -> None:
        """Get the state."""
        self._count = ctx.get_state(COUNT)
        self._newest = ctx.get_list_state(NEWEST)

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[tuple[Any, ...]]:
        """Add a payment."""
        count = (self._count.value() or 0) + 1
        newest = [*self._newest.get(), value.cents][-KEPT:]
        self._count.update(count)
        self._newest.update(newest)
        yield value.user, count, sum(newest)


def build(job: Job) -> None:
    """Describe the job that takes the query's place."""
    settings = job.settings
    by_user = job.source("payments", read=lambda spark: payments(spark, settings)).key_by("user")
    newest = by_user.process(Newest(), uid="newest", output="user string, payments bigint, newest_cents bigint")
    newest.sink("newest", ParquetSink(f"{settings['output']}/newest"))


def carry_over(spark: SparkSession, settings: Mapping[str, str], checkpoint: str, savepoint: str) -> str:
    """Write a savepoint of the query's state and of where it stands in its source; return the savepoint's URL."""
    count = spark.read.format("statestore").option("stateVarName", "count").load(checkpoint)
    # Whole lists, in their order.
    whole = spark.read.format("statestore").option("flattenCollectionTypes", "false")
    newest = whole.option("stateVarName", "newest").load(checkpoint)
    return write_savepoint(
        savepoint,
        {
            "newest": {
                COUNT: (count.select("key.user", F.col("value.count").alias("value")), ["user"]),
                NEWEST: (newest.select("key.user", F.col("list_value.cents").alias("value")), ["user"]),
            }
        },
        max_parallelism=128,
        parallelism=4,
        job=build,
        settings=settings,
        sources_from=checkpoint,
        sources=["payments"],
    )
