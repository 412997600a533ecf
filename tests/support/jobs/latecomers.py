"""One source read three times: late records go to side outputs of two operators, and into the function of the third."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import functions as F

from statecore import BatchProcessFunction, KeyedProcessFunction, OutputTag, ProcessFunction, ReducingStateDescriptor
from statecore.runtime import Job, ParquetSink

SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
LATE = OutputTag("late", "k string, n bigint, at timestamp")
LATE_FOR_BATCHES = OutputTag("late_for_batches", "k string, n bigint, at timestamp")


class Sum(KeyedProcessFunction):
    """Sums per key."""

    def open(self, ctx):
        self.sum = ctx.get_reducing_state(SUM)

    def process_element(self, value, ctx):
        self.sum.add(value.n)
        yield value.k, value.n, self.sum.get()


class Pass(BatchProcessFunction):
    """Puts out what it is given."""

    def process_batch(self, batch, ctx):
        yield batch.select(["n"])


class Judge(ProcessFunction):
    """Says of each record whether it is late."""

    def process_element(self, value, ctx):
        yield value.n, value.at is not None and ctx.timestamp() <= ctx.current_watermark()


def build(job: Job) -> None:
    output = job.settings["output"]

    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        # Every seventh record has no event time, and so is never late.
        at = F.when(F.col("n") % 7 != 0, F.timestamp_seconds("n"))
        return reader.parquet(job.settings["input"]).withColumn("at", at)

    records = job.source("records", read=read, event_time="at", max_lateness=timedelta(seconds=5))
    sums = records.key_by("k", order_by=("n",)).process(
        Sum(), output="k string, n bigint, sum bigint", uid="sums", late=LATE
    )
    sums.sink("sums", ParquetSink(f"{output}/sums"))
    sums.side_output(LATE).sink("late", ParquetSink(f"{output}/late"))
    passed = records.key_by("k").process(Pass(), output="n bigint", uid="passed", late=LATE_FOR_BATCHES)
    passed.sink("passed", ParquetSink(f"{output}/passed"))
    passed.side_output(LATE_FOR_BATCHES).sink("late_for_batches", ParquetSink(f"{output}/late_for_batches"))
    judged = records.process(Judge(), output="n bigint, late boolean", uid="judged")
    judged.sink("judged", ParquetSink(f"{output}/judged"))
