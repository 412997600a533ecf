"""Visits per key: sessions with the sum of their numbers."""

from __future__ import annotations

from datetime import timedelta
from operator import add

from pyspark.sql import functions as F

from statecore import EventTimeSessionWindows, ProcessWindowFunction, ReducingStateDescriptor, WindowFunction
from statecore.runtime import Job, ParquetSink

GAP = timedelta(seconds=70)
MAX_LATENESS = timedelta(seconds=200)
SUM = ReducingStateDescriptor("sum", "bigint", reduce=add)


class Visit(ProcessWindowFunction):
    """Puts out the bounds of a session and its sum."""

    def process(self, key, context, elements):
        for total in elements:
            yield *key, *context.window, total


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"]).withColumn("at", F.timestamp_seconds("n"))

    records = job.source("records", read=read, event_time="at", max_lateness=MAX_LATENESS)
    visits = records.key_by("k").process(
        WindowFunction(EventTimeSessionWindows(GAP), SUM, process=Visit(), value="n"),
        output="k string, start bigint, end bigint, total bigint",
        uid="visits",
    )
    visits.sink("visits", ParquetSink(f"{job.settings['output']}/visits"))
