"""The job of these tests: counts and sums per key, at a pace that only more subtasks quicken.

Every record waits for a moment, as one does that asks another service: what a job can do follows from its parallelism
then, and not from how busy the machine is. Each record's output has the state after it, so the sink alone tells whether
any record was lost or counted twice, by state or output.
"""

from __future__ import annotations

import time

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

TOTAL = ValueStateDescriptor("total", "struct<count:bigint,sum:bigint>")
PAUSE_S = 0.004
INPUT = "k string, n bigint"
OUTPUT = "k string, n bigint, count bigint, sum bigint"


class Totals(KeyedProcessFunction):
    def open(self, ctx):
        self.total = ctx.get_state(TOTAL)

    def process_element(self, value, ctx):
        time.sleep(PAUSE_S)
        count, total = self.total.value() or (0, 0)
        self.total.update((count + 1, total + value.n))
        yield value.k, value.n, count + 1, total + value.n


def build(job: Job) -> None:
    def read(spark):
        return spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(job.settings["input"])

    records = job.source("records", read=read)
    totals = records.key_by("k", order_by=("n",)).process(Totals(), output=OUTPUT, uid="totals")
    totals.sink("totals", ParquetSink(job.settings["output"]))
