"""A job whose records ask for timers: soon, later, and not within any test."""

from __future__ import annotations

from pyspark.sql import functions as F

from statecore import KeyedProcessFunction, ReducingStateDescriptor
from statecore.runtime import Job, ParquetSink

COUNT = ReducingStateDescriptor("count", "bigint", reduce=lambda a, b: a + b)
EVENT_MS = 10_000
SOON_MS, LATER_MS, NEVER_MS = 700, 5_000, 3_600_000
LATER, NEVER = 1_000, 2_000  # numbers from here on


class Remind(KeyedProcessFunction):
    """Counts per key, and reports the count when a timer of either kind fires."""

    def open(self, ctx):
        self.count = ctx.get_reducing_state(COUNT)

    def process_element(self, value, ctx):
        self.count.add(1)
        wait_ms = NEVER_MS if value.n >= NEVER else LATER_MS if value.n >= LATER else SOON_MS + value.n % 3
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + EVENT_MS)
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + wait_ms)
        yield "record", value.k, value.n, self.count.get()

    def on_timer(self, timestamp_ms, ctx):
        yield str(ctx.time_domain()), ctx.get_current_key()[0], timestamp_ms, self.count.get()


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint")
        return reader.parquet(job.settings["input"]).withColumn("at", F.timestamp_seconds("n"))

    reminded = (
        job.source("records", read=read, event_time="at")
        .key_by("k", order_by=("n",))
        .process(Remind(), output="what string, k string, at bigint, count bigint", uid="remind")
    )
    reminded.sink("seen", ParquetSink(job.settings["output"] + "/seen"))
