"""Two keyed operators in a chain, a broadcast connection and side outputs: every edge that a job can have.

Records with a number in HELD are held up while a file ``hold`` lies beside the input.
"""

from __future__ import annotations

import time
from pathlib import Path

from statecore import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ValueStateDescriptor,
)
from statecore.runtime import Job, ParquetSink

FACTORS = MapStateDescriptor("factors", "string", "bigint")
SEEN = ValueStateDescriptor("seen", "bigint")
SUM = ValueStateDescriptor("sum", "bigint")
DUE = ValueStateDescriptor("due", "bigint")
UNKNOWN = OutputTag("unknown", "struct<k:string,n:bigint>")
BUCKETS = 5
HELD = range(150, 170)


class Weighed(KeyedBroadcastProcessFunction):
    """Multiplies numbers by the factor of their parity; reports the count of a key once event time passed a record."""

    def __init__(self, hold=None):
        self.hold = hold

    def open(self, ctx):
        self.seen = ctx.get_state(SEEN)

    def process_element(self, value, ctx):
        while self.hold is not None and value.n in HELD and Path(self.hold).exists():
            Path(self.hold).with_name("held").touch()
            time.sleep(0.05)
        factor = ctx.get_broadcast_state(FACTORS).get("even" if value.n % 2 == 0 else "odd")
        if factor is None:
            ctx.output(UNKNOWN, (value.k, value.n))
            return
        self.seen.update((self.seen.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value.n * 1000 + 500)
        yield value.n % BUCKETS, value.n * factor, "record", ctx.timestamp()

    def on_timer(self, timestamp_ms, ctx):
        yield timestamp_ms // 1000 % BUCKETS, self.seen.value(), "timer", timestamp_ms

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(FACTORS).put(value.name, value.factor)


class BucketSums(KeyedProcessFunction):
    """Sums per bucket, and reports the sum when event time passes the newest record's."""

    def open(self, ctx):
        self.sum = ctx.get_state(SUM)
        self.due = ctx.get_state(DUE)

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value.amount)
        self.due.update(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        # Met late, what a timer upstream made would not be "in time".
        late = ctx.timestamp() <= ctx.timer_service().current_watermark()
        yield value.bucket, self.sum.value(), f"{value.what} {'late' if late else 'in time'}"

    def on_timer(self, timestamp_ms, ctx):
        if timestamp_ms == self.due.value():
            yield ctx.get_current_key()[0], self.sum.value(), "due"


def build(job: Job) -> None:
    source, output = Path(job.settings["input"]), job.settings["output"]

    def read_records(spark):
        reader = spark.readStream.schema("k string, n bigint, at timestamp").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(source))

    def read_rules(spark):
        reader = spark.readStream.schema("name string, factor bigint, version bigint")
        return reader.parquet(str(source.parent / "rules"))

    records = job.source("records", read=read_records, event_time="at")
    rules = job.source("rules", read=read_rules)
    weighed = (
        records.key_by("k", order_by=("n",))
        .connect(rules.broadcast(FACTORS, order_by=("version",)))
        .process(
            Weighed(str(source.parent / "hold")),
            output="bucket bigint, amount bigint, what string, at bigint",
            uid="weighed",
        )
    )
    sums = weighed.key_by("bucket", order_by=("amount", "what", "at")).process(
        BucketSums(), output="bucket bigint, sum bigint, what string", uid="sums", parallelism=2
    )
    weighed.sink("weighed", ParquetSink(f"{output}/weighed"))
    weighed.side_output(UNKNOWN).sink("unknown", ParquetSink(f"{output}/unknown"))
    sums.sink("sums", ParquetSink(f"{output}/sums"))
