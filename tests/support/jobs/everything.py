"""A job with every kind of state, timers of both domains and event time."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import functions as F

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
)
from statecore.runtime import Job, ParquetSink

SECOND = timedelta(seconds=1)
# Expires within the test: an epoch comes every few seconds.
TTL = StateTtlConfig(2 * SECOND, UpdateType.ON_READ_AND_WRITE, cleanup_full_snapshot=True)


class Spread(AggregateFunction):
    def create_accumulator(self):
        return None, None

    def add(self, value, accumulator):
        low, high = accumulator
        return value if low is None else min(low, value), value if high is None else max(high, value)

    def get_result(self, accumulator):
        return accumulator[1] - accumulator[0]

    def merge(self, a, b):
        return min(a[0], b[0]), max(a[1], b[1])


LAST = ValueStateDescriptor("last", "struct<n:bigint,at:timestamp>", TTL)
EVERY = ListStateDescriptor("every", "bigint", TTL)
BY_DIGIT = MapStateDescriptor("by_digit", "int", "array<bigint>")
RECENT = MapStateDescriptor("recent", "string", "double", TTL)
SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
SPREAD = AggregatingStateDescriptor("spread", "struct<low:bigint,high:bigint>", aggregate=Spread(), ttl=TTL)
SEVENS = ListStateDescriptor("sevens", "bigint")
EPOCHS = ListStateDescriptor("epochs", "bigint")
RULES = MapStateDescriptor("rules", "string", "bigint")
KEYED = (LAST, EVERY, BY_DIGIT, RECENT, SUM, SPREAD)


class Everything(KeyedProcessFunction, CheckpointedFunction):
    """Writes every state, and yields what it read of them."""

    def initialize_state(self, context):
        self.sevens = context.operator_state_store.get_list_state(SEVENS)
        self.epochs = context.operator_state_store.get_union_list_state(EPOCHS)
        self.rules = context.operator_state_store.get_broadcast_state(RULES)

    def open(self, ctx):
        self.subtask, self.parallelism = ctx.subtask, ctx.parallelism
        self.last = ctx.get_state(LAST)
        self.every = ctx.get_list_state(EVERY)
        self.by_digit = ctx.get_map_state(BY_DIGIT)
        self.recent = ctx.get_map_state(RECENT)
        self.sum = ctx.get_reducing_state(SUM)
        self.spread = ctx.get_aggregating_state(SPREAD)

    def process_element(self, value, ctx):
        n = value.n
        before = self.last.value()
        self.last.update((n, value.at))
        self.every.add(n)
        self.by_digit.put(n % 10, [*(self.by_digit.get(n % 10) or []), n][-3:])
        if n % 6 == 0:
            self.by_digit.remove(n % 5)
        if n % 31 == 0:
            self.by_digit.clear()
        self.recent.put(str(n % 4), n / 3)
        self.sum.add(n)
        self.spread.add(n)
        if n % 7 == 0:
            self.sevens.add(n)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 20_000)
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + 1)
        if n % 3 == 0:
            ctx.timer_service().delete_event_time_timer(ctx.timestamp() + 20_000)
        yield "row", value.k, n, 0 if before is None else before.n
        yield "read", value.k, self.sum.get(), self.spread.get() + len(list(self.every.get()))
        yield "recent", value.k, n, len(list(self.recent.keys()))

    def on_timer(self, timestamp_ms, ctx):
        (k,) = ctx.get_current_key()
        yield str(ctx.time_domain()), k, timestamp_ms if ctx.time_domain() == "event_time" else 0, self.sum.get()

    def snapshot_state(self, context):
        # Each subtask keeps its share of all epochs. After a rescale the shares are others, so it needs them all.
        epochs = [*self.epochs.get(), context.epoch]
        self.epochs.update(epoch for epoch in epochs if epoch % self.parallelism == self.subtask)
        self.rules.put("epoch", context.epoch)


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"]).withColumn("at", F.timestamp_seconds("n"))

    records = job.source("records", read=read, event_time="at", max_lateness=5 * SECOND)
    outputs = records.key_by("k", order_by=("n",)).process(
        Everything(), output="what string, k string, a bigint, b bigint", uid="totals"
    )
    outputs.sink("seen", ParquetSink(job.settings["output"] + "/seen"))
