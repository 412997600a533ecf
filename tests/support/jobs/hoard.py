"""A job whose state grows by as many MiB as each record says."""

from __future__ import annotations

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

HOARD = ValueStateDescriptor("hoard", "binary")


class Hoard(KeyedProcessFunction):
    """Keeps what it was told to."""

    def open(self, ctx):
        self.hoard = ctx.get_state(HOARD)

    def process_element(self, value, ctx):
        self.hoard.update(bytes(value.n * 2**20))
        yield value.k, value.n


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    hoarded = job.source("records", read=read).key_by("k").process(Hoard(), output="k string, n bigint", uid="hoard")
    hoarded.sink("seen", ParquetSink(job.settings["output"] + "/seen"))
