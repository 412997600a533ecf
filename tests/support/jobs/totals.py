"""A small job with every part a job can have here: value, list and operator state, main and side output."""

from __future__ import annotations

from statecore import CheckpointedFunction, KeyedProcessFunction, ListStateDescriptor, OutputTag, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

TOTAL = ValueStateDescriptor("total", "struct<count:bigint,sum:bigint>")
NEWEST = ListStateDescriptor("newest", "bigint")
WAITING = ListStateDescriptor("waiting", "bigint")
BATCHES = OutputTag("batches", "struct<n:bigint>")


class Totals(KeyedProcessFunction, CheckpointedFunction):
    """Counts and sums per key, keeps the newest two values, forwards every tenth number in batches of seven."""

    def initialize_state(self, context):
        self.waiting = context.operator_state_store.get_list_state(WAITING)

    def open(self, ctx):
        self.total = ctx.get_state(TOTAL)
        self.newest = ctx.get_list_state(NEWEST)

    def process_element(self, value, ctx):
        if value.n < 0:
            raise ValueError("a number below zero, " * -value.n)
        count, total = self.total.value() or (0, 0)
        self.total.update((count + 1, total + value.n))
        if value.n % 50 == 0:
            self.total.clear()
        self.newest.update([*self.newest.get(), value.n][-2:])
        if value.n % 10 == 0:
            self.waiting.add(value.n)
            waiting = list(self.waiting.get())
            if len(waiting) >= 7:
                for n in waiting:
                    ctx.output(BATCHES, (n,))
                self.waiting.clear()
        yield value.k, value.n

    def snapshot_state(self, context):
        pass


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    records = job.source("records", read=read)
    totals = records.key_by("k", order_by=("n",)).process(Totals(), output="k string, n bigint", uid="totals")
    totals.sink("seen", ParquetSink(job.settings["output"] + "/seen"))
    totals.side_output(BATCHES).sink("batches", ParquetSink(job.settings["output"] + "/batches"))
