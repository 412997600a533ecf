"""The job of the drills: it counts records per key, and fails on a negative number."""

from __future__ import annotations

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

COUNT = ValueStateDescriptor("count", "bigint")


class Count(KeyedProcessFunction):
    """Numbers the records of a key."""

    def open(self, ctx):
        self.count = ctx.get_state(COUNT)

    def process_element(self, value, ctx):
        if value.n < 0:
            raise ValueError(f"negative number {value.n}")
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value.k, value.n, count


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    records = job.source("records", read=read)
    counted = records.key_by("k").process(Count(), output="k string, n bigint, count bigint", uid="count")
    counted.sink("counted", ParquetSink(job.settings["output"]))
