"""Two sources with event time; one may be left out of it when it has no records. A timer is due at each even one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from statecore import KeyedProcessFunction
from statecore.runtime import Job, ParquetSink


class Due(KeyedProcessFunction):
    """Tells when event time has come to each record."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value.n * 1000)
        yield from ()

    def on_timer(self, timestamp_ms, ctx):
        yield ctx.get_current_key()[0], timestamp_ms // 1000


def build(job: Job) -> None:
    folder = Path(job.settings["input"]).parent

    def read(name):
        return lambda spark: spark.readStream.schema("k string, n bigint, at timestamp").parquet(str(folder / name))

    busy = job.source("busy", read=read("busy"), event_time="at")
    quiet = job.source("quiet", read=read("quiet"), event_time="at", idle_after=timedelta(seconds=3))
    due = (
        busy.filter("n % 2 = 0")
        .union(quiet.filter("n % 2 = 0"))
        .key_by("k")
        .process(Due(), output="k string, n bigint", uid="due")
    )
    due.sink("due", ParquetSink(f"{job.settings['output']}/due"))
