"""The way over from a ``groupBy().agg`` of Spark: the query, the job that takes its place, the savepoint between them.

Stop the query; write the savepoint, in a shell with PySpark::

    from examples.over_from_groupby import carry_over
    carry_over(spark, {"input": …, "output": …}, "/data/checkpoint", "/data/savepoint")

then register this file as the job, and start it with ``--from /data/savepoint``. It has the query's totals, and reads
on where the query stopped. Settings of both: ``input`` is a directory; of the job, ``output`` too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.functions import ProcessContext, RuntimeContext
from statecore.runtime import Job, ParquetSink, write_savepoint

PAYMENTS = "user string, cents bigint"
TOTAL = ValueStateDescriptor("total", "struct<payments:bigint,cents:bigint>")


def payments(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    """Return the stream that both read."""
    return spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", 1).parquet(settings["input"])


def query(spark: SparkSession, settings: Mapping[str, str]) -> DataStreamWriter:
    """Describe the query that is left."""
    totals = (
        payments(spark, settings).groupBy("user").agg(F.count("*").alias("payments"), F.sum("cents").alias("cents"))
    )
    return totals.writeStream.outputMode("update").format("noop")


class Totals(KeyedProcessFunction):
    """Counts and sums the payments of a user, and yields both after each."""

    def open(self, ctx: RuntimeContext) -> None:
        """Get the state."""
        self._total = ctx.get_state(TOTAL)

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[tuple[Any, ...]]:
        """Add a payment."""
        count, cents = self._total.value() or (0, 0)
        total = (count + 1, cents + value.cents)
        self._total.update(total)
        yield value.user, *total


def build(job: Job) -> None:
    """Describe the job that takes the query's place."""
    settings = job.settings
    by_user = job.source("payments", read=lambda spark: payments(spark, settings)).key_by("user")
    totals = by_user.process(Totals(), uid="totals", output="user string, payments bigint, cents bigint")
    totals.sink("totals", ParquetSink(f"{settings['output']}/totals"))


def carry_over(spark: SparkSession, settings: Mapping[str, str], checkpoint: str, savepoint: str) -> str:
    """Write a savepoint of the query's state and of where it stands in its source; return the savepoint's URL."""
    state = spark.read.format("statestore").load(checkpoint)
    # Spark names the columns of its state after the aggregate functions.
    totals = state.select("key.user", F.col("value.count").alias("payments"), F.col("value.sum").alias("cents"))
    return write_savepoint(
        savepoint,
        {"totals": {TOTAL: (totals, ["user"])}},
        max_parallelism=128,
        parallelism=4,
        job=build,
        settings=settings,
        sources_from=checkpoint,
        sources=["payments"],
    )
