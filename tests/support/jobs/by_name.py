"""A job whose sources, and which operator reads which of them, are settings: ``source:uid`` by comma."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import functions as F

from statecore import KeyedProcessFunction, ReducingStateDescriptor
from statecore.runtime import Job, ParquetSink

SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
SCHEMA = "k string, n bigint"


class Sum(KeyedProcessFunction):
    """Sums per key, and tells after each record how far the sum is."""

    def open(self, ctx):
        self.sum = ctx.get_reducing_state(SUM)

    def process_element(self, value, ctx):
        self.sum.add(value.n)
        yield value.k, value.n, self.sum.get()


def build(job: Job) -> None:
    folder = Path(job.settings["input"])

    def files(name, kind):
        def read(spark):
            df = spark.readStream.schema(SCHEMA).load(str(folder / name), format=kind)
            return df.withColumn("at", F.timestamp_seconds("n"))

        return read

    def clock(spark):
        ticks = spark.readStream.load(format="rate", rowsPerSecond=3)
        return ticks.select(F.lit("clock").alias("k"), F.col("value").alias("n"))

    for name, uid in (each.split(":") for each in job.settings["sources"].split(",")):
        timed = name != "clock"
        # A file source is named after its format.
        source = job.source(name, read=files(name, name) if timed else clock, event_time="at" if timed else None)
        sums = source.key_by("k", order_by=("n",)).process(Sum(), output="k string, n bigint, sum bigint", uid=uid)
        sums.sink(uid, ParquetSink(f"{job.settings['output']}/{uid}"))
