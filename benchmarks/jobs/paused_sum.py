"""A running sum per key that pauses, so that rows cost far more than an epoch without any, on a busy machine too."""

from __future__ import annotations

import time

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

# 1 ms a record; a pause for each would end late by as much as it takes, when the machine has other work.
RECORDS_A_PAUSE = 20
PAUSE_S = 0.020
TOTAL = ValueStateDescriptor("total", "bigint")


class PausedSum(KeyedProcessFunction):
    """Adds each record to the sum of its key, and pauses now and then, as if it called a service."""

    def open(self, ctx):
        self.total = ctx.get_state(TOTAL)
        self.records = 0

    def process_element(self, value, ctx):
        self.records += 1
        if self.records % RECORDS_A_PAUSE == 0:
            time.sleep(PAUSE_S)
        total = (self.total.value() or 0) + value.n
        self.total.update(total)
        yield value.k, total


def build(job: Job) -> None:
    def read(spark):
        return spark.readStream.schema("k string, n bigint").parquet(job.settings["input"])

    sums = (
        job.source("records", read=read).key_by("k").process(PausedSum(), output="k string, total bigint", uid="sums")
    )
    sums.sink("totals", ParquetSink(job.settings["output"]))
