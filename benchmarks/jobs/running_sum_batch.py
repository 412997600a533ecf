"""A running sum per key over batches; every key of an epoch yields its sum so far."""

from __future__ import annotations

from operator import add

from statecore import BatchProcessFunction, ReducingStateDescriptor
from statecore.runtime import Job, ParquetSink

UID = "sums"
TOTAL = ReducingStateDescriptor("total", "bigint", reduce=add)


class RunningSum(BatchProcessFunction):
    """Adds each record to the sum of its key."""

    def open(self, ctx):
        self.total = ctx.get_reducing_state(TOTAL)

    def process_batch(self, batch, ctx):
        yield ctx.keys().append_column("total", self.total.add_batch(batch["n"]))


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    sums = job.source("records", read=read).key_by("k").process(RunningSum(), output="k string, total bigint", uid=UID)
    sums.sink("totals", ParquetSink(job.settings["output"]))
