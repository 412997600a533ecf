"""A job whose function fails, at the place that its settings name."""

from __future__ import annotations

from statecore import BatchProcessFunction, KeyedProcessFunction
from statecore.runtime import Job, ParquetSink

PRICES = {"k0": 1}


class Failing(KeyedProcessFunction):
    """Fails at the record 13, in a timer, or yields what its sink cannot take."""

    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in

    def process_element(self, value, ctx):
        if self.fails_in == "timer":
            ctx.timer_service().register_processing_time_timer(1_000)
        elif value.n == 13:
            yield value.k, int("thirteen") if self.fails_in == "element" else "thirteen"

    def on_timer(self, timestamp_ms, ctx):
        raise LookupError(f"no price at {timestamp_ms}")


class FailingInBatches(BatchProcessFunction):
    """Fails at its second key."""

    def process_batch(self, batch, ctx):
        for (k,) in ctx.each_key():
            PRICES[k]
        yield from ()


def build(job: Job) -> None:
    def read(spark):
        return spark.readStream.schema("k string, n bigint").parquet(job.settings["input"])

    fails_in = job.settings["fails_in"]
    function = FailingInBatches() if fails_in == "batch" else Failing(fails_in)
    keyed = job.source("numbers", read=read).key_by("k", order_by=("n",))
    keyed.process(function, output="k string, n bigint", uid="failing").sink(
        "seen", ParquetSink(job.settings["output"] + "/seen")
    )
