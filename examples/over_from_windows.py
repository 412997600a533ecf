"""The way over from windows of Spark: a query with ``avg`` and ``count``, the job that takes its place, the savepoint.

Stop the query; write the savepoint, in a shell with PySpark::

    from examples.over_from_windows import carry_over
    carry_over(spark, {"input": …, "output": …}, "/data/checkpoint", "/data/savepoint")

then register this file as the job, and start it with ``--from /data/savepoint``. It has the query's windows, which end
when their time comes, also those of users who never come back, and reads on where the query stopped. Settings of both:
``input`` is a directory; of the job, ``output`` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from statecore import ProcessWindowFunction, ReducingStateDescriptor, TumblingEventTimeWindows, WindowFunction
from statecore.runtime import Job, ParquetSink, write_savepoint
from statecore.windows import WindowContext

PAYMENTS = "user string, cents bigint, at timestamp"
SIZE, MAX_LATENESS = timedelta(minutes=10), timedelta(minutes=5)


def _added(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return one[0] + other[0], one[1] + other[1]


SUMS = ReducingStateDescriptor("sums", "struct<cents:double,payments:bigint>", reduce=_added)


def payments(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    """Return the stream that both read."""
    return spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", 1).parquet(settings["input"])


def query(spark: SparkSession, settings: Mapping[str, str]) -> DataStreamWriter:
    """Describe the query that is left."""
    windows = (
        payments(spark, settings)
        .withWatermark("at", "5 minutes")
        .groupBy(F.window("at", "10 minutes"), "user")
        .agg(F.avg("cents").alias("mean"), F.count("*").alias("payments"))
    )
    return windows.writeStream.outputMode("append").format("noop")


class Means(ProcessWindowFunction):
    """Yields a user's mean and number of payments in a window."""

    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        """Divide."""
        for cents, count in elements:
            yield *key, context.window.start, cents / count, count


def build(job: Job) -> None:
    """Describe the job that takes the query's place."""
    settings = job.settings
    by_user = job.source(
        "payments", read=lambda spark: payments(spark, settings), event_time="at", max_lateness=MAX_LATENESS
    ).key_by("user")
    means = by_user.process(
        WindowFunction(
            TumblingEventTimeWindows(SIZE), SUMS, process=Means(), value=lambda each: (float(each.cents), 1)
        ),
        uid="means",
        output="user string, start_ms bigint, mean double, payments bigint",
    )
    means.sink("means", ParquetSink(f"{settings['output']}/means"))


def carry_over(spark: SparkSession, settings: Mapping[str, str], checkpoint: str, savepoint: str) -> str:
    """Write a savepoint of the query's state and of where it stands in its source; return the savepoint's URL."""
    state = spark.read.format("statestore").load(checkpoint)
    # Spark names the columns of its state after the aggregate functions, and two of them are `count`: by their places.
    value = F.col("value").cast("struct<cents:double,payments:bigint,rows:bigint>")
    sums = state.select(
        "key.user",
        F.unix_millis("key.window.start").alias("window_start"),
        F.unix_millis("key.window.end").alias("window_end"),
        value.getField("cents").alias("cents"),
        value.getField("payments").alias("payments"),
    )
    return write_savepoint(
        savepoint,
        {"means": {SUMS: (sums, ["user"])}},
        max_parallelism=128,
        parallelism=4,
        job=build,
        settings=settings,
        sources_from=checkpoint,
        sources=["payments"],
    )
