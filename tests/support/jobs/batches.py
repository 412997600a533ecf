"""Sums over batches in a chain; over records while a file named ``by_record`` lies beside the input."""

from __future__ import annotations

from operator import add
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from statecore import BatchProcessFunction, KeyedProcessFunction, OutputTag, ReducingStateDescriptor
from statecore.runtime import Job, ParquetSink

TOTAL = ReducingStateDescriptor("total", "bigint", reduce=add)
LARGEST = ReducingStateDescriptor("largest", "bigint", reduce=max)
BIG = OutputTag("big", "k string, n bigint")
SUMS = "k string, bucket bigint, total bigint"
BIG_FROM = 90


class SumsOfBatches(BatchProcessFunction):
    """Sums per key: a row for each key of an epoch."""

    def open(self, ctx):
        self.total = ctx.get_reducing_state(TOTAL)

    def process_batch(self, batch, ctx):
        ctx.output(BIG, batch.filter(pc.greater_equal(batch["n"], BIG_FROM)))
        totals = self.total.add_batch(batch["n"])
        buckets = pc.cast(pc.utf8_slice_codeunits(ctx.keys()["k"], 1), pa.int64())
        yield ctx.keys().append_column("bucket", pc.bit_wise_and(buckets, 3)).append_column("total", totals)


class SumsOfRecords(KeyedProcessFunction):
    """The same: a row for each record."""

    def open(self, ctx):
        self.total = ctx.get_reducing_state(TOTAL)

    def process_element(self, value, ctx):
        self.total.add(value.n)
        if value.n >= BIG_FROM:
            ctx.output(BIG, (value.k, value.n))
        yield value.k, int(value.k[1:]) & 3, self.total.get()


class Largest(BatchProcessFunction):
    """Keeps the largest sum of each bucket."""

    def open(self, ctx):
        self.largest = ctx.get_reducing_state(LARGEST)

    def process_batch(self, batch, ctx):
        yield ctx.keys().append_column("largest", self.largest.add_batch(batch["total"]))


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    by_record = (Path(job.settings["input"]).parent / "by_record").exists()
    function = SumsOfRecords() if by_record else SumsOfBatches()
    sums = job.source("records", read=read).key_by("k").process(function, output=SUMS, uid="sums")
    sums.sink("sums", ParquetSink(job.settings["output"] + "/sums"))
    sums.side_output(BIG).sink("big", ParquetSink(job.settings["output"] + "/big"))
    largest = sums.key_by("bucket").process(Largest(), output="bucket bigint, largest bigint", uid="largest")
    largest.sink("largest", ParquetSink(job.settings["output"] + "/largest"))
