"""Records and broadcast rules, each with event time; the operator behind them leaves late records out."""

from __future__ import annotations

from pathlib import Path

from statecore import BroadcastProcessFunction, MapStateDescriptor, OutputTag, ProcessFunction
from statecore.runtime import Job, ParquetSink

RULES = MapStateDescriptor("rules", "bigint", "bigint")
LATE = OutputTag("late", "n bigint")


class Forward(BroadcastProcessFunction):
    """Passes records on, late or not."""

    def process_element(self, value, ctx):
        yield (value.n,)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value.n, value.n)


class Pass(ProcessFunction):
    """Passes records on."""

    def process_element(self, value, ctx):
        yield (value.n,)


def build(job: Job) -> None:
    source, output = Path(job.settings["input"]), job.settings["output"]

    def read(folder):
        return lambda spark: spark.readStream.schema("n bigint, at timestamp").parquet(str(folder))

    records = job.source("records", read=read(source), event_time="at")
    rules = job.source("rules", read=read(source.parent / "rules"), event_time="at")
    forwarded = records.connect(rules.broadcast(RULES)).process(Forward(), output="n bigint", uid="forwarded")
    passed = forwarded.process(Pass(), output="n bigint", uid="passed", late=LATE)
    passed.sink("passed", ParquetSink(f"{output}/passed"))
    passed.side_output(LATE).sink("late", ParquetSink(f"{output}/late"))
