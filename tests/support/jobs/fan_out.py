"""A function without a key whose two outputs are read by an operator each."""

from __future__ import annotations

from statecore import KeyedProcessFunction, OutputTag, ProcessFunction, ReducingStateDescriptor
from statecore.runtime import Job, ParquetSink

ODD = OutputTag("odd", "struct<k:string,n:bigint>")
# Spark cannot hash a map, which chooses the subtask of a record without a key.
TAGGED = "k string, n bigint, tags MAP<string, bigint>"


class Split(ProcessFunction):
    """Gives every record on, and the odd ones once more."""

    def process_element(self, value, ctx):
        if value.n % 2:
            ctx.output(ODD, (value.k, value.n))
        yield value.k, value.n, {value.k: value.n}


class Same(ProcessFunction):
    """Gives every record on, without its tags."""

    def process_element(self, value, ctx):
        assert value.tags == {value.k: value.n}
        yield value.k, value.n


class Sum(KeyedProcessFunction):
    """Sums per key."""

    def open(self, ctx):
        self.sum = ctx.get_reducing_state(ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b))

    def process_element(self, value, ctx):
        self.sum.add(value.n)
        yield value.k, value.n


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    split = job.source("records", read=read).process(Split(), output=TAGGED, uid="split")
    same = split.process(Same(), output="k string, n bigint", uid="same")
    for name, stream in (("all", same), ("odd", split.side_output(ODD))):
        sums = stream.key_by("k").process(Sum(), output="k string, n bigint", uid=f"sum_{name}")
        sums.sink(name, ParquetSink(f"{job.settings['output']}/{name}"))
