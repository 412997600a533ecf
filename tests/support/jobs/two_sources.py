"""Files with event time, each in an epoch of its own, beside the source ``rate``; held up for as long as asked."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import functions as F

from statecore import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessFunction,
    ValueStateDescriptor,
)
from statecore.runtime import Job


class Counts(KeyedProcessFunction):
    """Keeps per key a sum, every number, and how often each digit came."""

    def __init__(self, hold):
        self.hold = hold

    def open(self, ctx):
        self.sum = ctx.get_state(ValueStateDescriptor("sum", "bigint"))
        self.every = ctx.get_list_state(ListStateDescriptor("every", "bigint"))
        self.digits = ctx.get_map_state(MapStateDescriptor("digits", "int", "bigint"))

    def process_element(self, value, ctx):
        while Path(self.hold).exists():
            Path(self.hold).with_name("held").touch()
            time.sleep(0.05)
        self.sum.update((self.sum.value() or 0) + value.n)
        self.every.add(value.n)
        digit = value.n % 10
        self.digits.put(digit, (self.digits.get(digit) or 0) + 1)
        yield from ()


class Pulse(ProcessFunction):
    """Lets everything pass away."""

    def process_element(self, value, ctx):
        yield from ()


def build(job: Job) -> None:
    source = Path(job.settings["input"])

    def read_files(spark):
        reader = spark.readStream.schema("k string, n bigint, at timestamp").option("maxFilesPerTrigger", 1)
        # Any folder whose name fits.
        return reader.parquet(str(source.parent / "inp*"))

    def read_rate(spark):
        return spark.readStream.format("rate").option("rowsPerSecond", 5).load().select(F.col("value").alias("n"))

    files = job.source("files", read=read_files, event_time="at")
    pulse = job.source("pulse", read=read_rate)
    files.key_by("k").process(Counts(str(source.parent / "hold")), output="k string", uid="counts")
    pulse.process(Pulse(), output="n bigint", uid="pulse")
