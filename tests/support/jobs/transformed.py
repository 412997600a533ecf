"""Transformations before, between and after the readers of a source."""

from __future__ import annotations

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

FAILS_WITHOUT_TOTAL = "1 div coalesce(total, 0)"
SUM = ValueStateDescriptor("sum", "bigint")


class Sums(KeyedProcessFunction):
    """Adds up, and sets a timer that is due when the watermark has passed the record by 5 s."""

    def open(self, ctx):
        self.sum = ctx.get_state(SUM)

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value.doubled)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5_000)
        yield value.country, self.sum.value(), value.n

    def on_timer(self, timestamp_ms, ctx):
        yield ctx.get_current_key()[0], self.sum.value(), -timestamp_ms


class Seen(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value.name, value.total, value.n, ctx.timestamp()


class Odd(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value.n, value.k


def build(job: Job) -> None:
    folder, output = job.settings["folder"], job.settings["output"]

    def read(spark):
        schema = "k string, n bigint, at timestamp"
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/one")

    def named(df):
        # The table is as it is in the epoch.
        return df.join(df.sparkSession.read.parquet(f"{folder}/countries"), "country")

    records = job.source("one", read=read, event_time="at")
    sums = (
        records.filter("n % 2 = 0")
        .with_column("doubled", lambda df: df.n * 2)
        .select("substr(k, 2) AS country", "n", "doubled", "at")
        .key_by("country", order_by=("n",))
        .process(Sums(), output="country string, total bigint, n bigint", uid="sums")
    )
    seen = (
        sums.filter(f"{FAILS_WITHOUT_TOTAL} >= 0")
        .filter("total % 3 > 0")
        .transform(named)
        .with_column("name", "concat(name, '!')")
        .with_column("part", FAILS_WITHOUT_TOTAL)
        .select("*", f"{FAILS_WITHOUT_TOTAL} + part AS parts")
        .key_by("name", order_by=("n",))
        .process(Seen(), output="name string, total bigint, n bigint, at_ms bigint", uid="seen")
    )
    odd = records.filter("n % 2 = 1").key_by("k").process(Odd(), output="n bigint, k string", uid="odd")
    for name, result in {"sums": sums, "seen": seen, "odd": odd}.items():
        result.sink(name, ParquetSink(f"{output}/{name}"))
