"""A running sum per key; every record yields the sum so far."""

from __future__ import annotations

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

UID = "sums"
TOTAL = ValueStateDescriptor("total", "bigint")


class RunningSum(KeyedProcessFunction):
    """Adds each record to the sum of its key."""

    def open(self, ctx):
        self.total = ctx.get_state(TOTAL)

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value.n
        self.total.update(total)
        yield value.k, total


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    sums = job.source("records", read=read).key_by("k").process(RunningSum(), output="k string, total bigint", uid=UID)
    sums.sink("totals", ParquetSink(job.settings["output"]))
