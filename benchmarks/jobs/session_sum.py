"""A sum per key and session; a session yields its sum when it ends."""

from __future__ import annotations

from datetime import timedelta
from operator import add

from benchmarks.inputs import EVENTS, MAX_LATENESS_S, SESSION_GAP_S
from statecore import EventTimeSessionWindows, ProcessWindowFunction, ReducingStateDescriptor, WindowFunction
from statecore.runtime import Job, ParquetSink


class SessionSum(ProcessWindowFunction):
    """Yields the sum of a session."""

    def process(self, key, context, elements):
        for total in elements:
            yield key[0], total


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    sessions = WindowFunction(
        EventTimeSessionWindows(timedelta(seconds=SESSION_GAP_S)),
        ReducingStateDescriptor("total", "bigint", reduce=add),
        process=SessionSum(),
        value="n",
    )
    events = job.source("events", read=read, event_time="ts", max_lateness=timedelta(seconds=MAX_LATENESS_S))
    sums = events.key_by("k").process(sessions, output="k string, total bigint", uid="sessions")
    sums.sink("totals", ParquetSink(job.settings["output"]))
