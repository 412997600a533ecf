"""A job whose function keeps metrics of every kind, beside state that says what they have to be."""

from __future__ import annotations

from statecore import KeyedProcessFunction, OutputTag, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

BAD = OutputTag("bad", "error string")


class Measured(KeyedProcessFunction):
    """Counts records, and fails on every seventh number."""

    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count", "bigint"))
        self.records = ctx.metrics.counter("records")
        self.sizes = ctx.metrics.histogram("sizes")
        self.subtask = ctx.metrics.gauge("subtask")
        self.subtask.set(ctx.subtask)

    def process_element(self, value, ctx):
        self.records.inc()
        self.sizes.update(value.n)
        if value.n % 7 == 0:
            raise ValueError(value.n)
        self.count.update((self.count.value() or 0) + 1)
        yield value.k, value.n


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    records = job.source("records", read=read)
    measured = records.key_by("k").process(Measured(), output="k string, n bigint", uid="measured", on_error=BAD)
    measured.sink("seen", ParquetSink(job.settings["output"] + "/seen"))
    measured.side_output(BAD).sink("bad", ParquetSink(job.settings["output"] + "/bad"))
