"""Sums per key, and the records that have no sum."""

from __future__ import annotations

from statecore import KeyedProcessFunction, ListStateDescriptor, OutputTag, ReducingStateDescriptor
from statecore.runtime import Job, ParquetSink

SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
LAST = ListStateDescriptor("last", "bigint")
BAD = OutputTag("bad", "error string, uid string, key string, epoch bigint, record string")
SEEN = OutputTag("seen", "n bigint")


def is_poison(n: int) -> bool:
    return n % 10 == 3


class Sum(KeyedProcessFunction):
    """Writes to all of its state and puts out, before it fails."""

    def open(self, ctx):
        self.sum = ctx.get_reducing_state(SUM)
        self.last = ctx.get_list_state(LAST)

    def process_element(self, value, ctx):
        self.sum.add(value.n)
        self.last.update([*self.last.get(), value.n][-3:])
        ctx.output(SEEN, value.n)
        ctx.timer_service().register_processing_time_timer(4_000_000_000_000 + value.n)
        yield value.k, value.n, self.sum.get(), str(list(self.last.get()))
        if is_poison(value.n):
            raise ValueError(f"{value.n} is poison")


def build(job: Job) -> None:
    output = job.settings["output"]

    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    sums = (
        job.source("records", read=read)
        .key_by("k", order_by=("n",))
        .process(Sum(), output="k string, n bigint, sum bigint, last string", uid="sums", on_error=BAD)
    )
    sums.sink("sums", ParquetSink(f"{output}/sums"))
    sums.side_output(BAD).sink("bad", ParquetSink(f"{output}/bad"))
    sums.side_output(SEEN).sink("seen", ParquetSink(f"{output}/seen"))
