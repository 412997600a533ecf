"""A running sum per key, and an operator that counts its outputs; with transformations before and between, or without.

The transformations drop nothing, so that both do the same work otherwise.
"""

from __future__ import annotations

import pyarrow as pa

from statecore import BatchProcessFunction, KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

TOTAL = ValueStateDescriptor("total", "bigint")


class RunningSum(KeyedProcessFunction):
    """Adds each record to the sum of its key."""

    def open(self, ctx):
        self.total = ctx.get_state(TOTAL)

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value.n
        self.total.update(total)
        yield value.k, total


class Count(BatchProcessFunction):
    """Yields the number of sums in an epoch."""

    def process_batch(self, batch, ctx):
        yield pa.RecordBatch.from_pydict({"sums": [batch.num_rows]})


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    transformed = "transformed" in job.settings
    records = job.source("records", read=read)
    if transformed:
        records = records.filter("n >= 0").with_column("half", "n / 2")
    sums = records.key_by("k").process(RunningSum(), output="k string, total bigint", uid="sums")
    sums.sink("totals", ParquetSink(f"{job.settings['output']}/totals"))
    counted = sums.filter("total >= 0").with_column("half", "total / 2") if transformed else sums
    counts = counted.process(Count(), output="sums bigint", uid="counts")
    counts.sink("counts", ParquetSink(f"{job.settings['output']}/counts"))
