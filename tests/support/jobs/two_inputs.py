"""Two sources, united and connected in every way."""

from __future__ import annotations

from datetime import timedelta

from statecore import (
    CoGroupFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
)
from statecore.runtime import Job, ParquetSink

HELD = ValueStateDescriptor("held", "bigint")
LATE = OutputTag("late", "k string, n bigint, at timestamp")
LATE_OTHER = OutputTag("late-other", "at timestamp, n bigint, k string")
TOO_LATE = OutputTag("too-late", "at timestamp, n bigint, k string")
WINDOWS = TumblingEventTimeWindows(timedelta(seconds=4))
SEEN = ListStateDescriptor("seen", "string")


class Doubled(ProcessFunction):
    def process_element(self, value, ctx):
        yield value.k, value.n * 2, ctx.timestamp()


class Pairs(KeyedCoProcessFunction):
    """Holds the newest number of the first stream for 5 s; the second stream gets it, and adds to it."""

    def open(self, ctx):
        self.held = ctx.get_state(HELD)

    def process_element1(self, value, ctx):
        self.held.update(value.n)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5_000)

    def process_element2(self, value, ctx):
        held = self.held.value()
        yield value.id, held, value.m, "pair"
        if held is not None:
            self.held.update(held + 1)

    def on_timer(self, timestamp_ms, ctx):
        yield ctx.get_current_key()[0], self.held.value(), timestamp_ms, "due"
        self.held.clear()


class InOrder(KeyedCoProcessFunction):
    """Tells the order of both streams: each record, and the one before it."""

    def open(self, ctx):
        self.seen = ctx.get_list_state(SEEN)

    def process_element1(self, value, ctx):
        yield from self.note(f"a{value.n}", value.k)

    def process_element2(self, value, ctx):
        yield from self.note(f"b{value.n}", value.k)

    def note(self, what, key):
        before = list(self.seen.get())
        self.seen.update([what])
        yield key, before[0] if before else None, what


class Near(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left.n, right.n, ctx.timestamp()


class Sides(CoGroupFunction):
    def co_group(self, key, context, lefts, rights):
        yield *key, context.window.start, sum(left.n for left in lefts), sum(right.n for right in rights)


class Both(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield "a", value.n

    def process_element2(self, value, ctx):
        yield "b", value.n


def build(job: Job) -> None:
    folder, output = job.settings["folder"], job.settings["output"]
    # Those of two inputs with keyed state; the others run at the job's.
    fixed = int(job.settings["parallelism"]) if "parallelism" in job.settings else None

    def stream(name, columns):
        def read(spark):
            return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{name}")

        return job.source(name, read=read, event_time="at")

    one = stream("one", "k string, n bigint, at timestamp")
    other = stream("other", "at timestamp, n bigint, k string")
    doubled = one.union(other).process(Doubled(), output="id string, m bigint, at_ms bigint", uid="doubled")
    pairs = one.key_by("k").connect(doubled.key_by("id", order_by=("m",))).process(
        Pairs(), output="k string, held bigint, m bigint, what string", uid="pairs", parallelism=fixed
    )  # fmt: skip
    in_order = one.key_by("k", order_by=("at", "n")).connect(other.key_by("k", order_by=("at", "n"))).process(
        InOrder(), output="k string, before string, what string", uid="in-order"
    )  # fmt: skip
    both = one.connect(other).process(Both(), output="stream string, n bigint", uid="both")
    join = one.key_by("k").interval_join(other.key_by("k")).between(timedelta(seconds=-14), timedelta(seconds=7))
    near = join.process(
        Near(), output="n bigint, m bigint, at_ms bigint", uid="near", left_late=LATE, right_late=LATE_OTHER,
        parallelism=fixed,
    )  # fmt: skip
    sides = one.key_by("k").co_group(other.key_by("k")).window(WINDOWS).process(
        Sides(), output="k string, start bigint, n bigint, m bigint", uid="sides", right_late=TOO_LATE
    )  # fmt: skip
    sides.side_output(TOO_LATE).sink("too-late", ParquetSink(f"{output}/too-late"))
    near.side_output(LATE).sink("late", ParquetSink(f"{output}/late"))
    near.side_output(LATE_OTHER).sink("late-other", ParquetSink(f"{output}/late-other"))
    results = {"doubled": doubled, "pairs": pairs, "in-order": in_order, "both": both, "near": near, "sides": sides}
    for name, result in results.items():
        result.sink(name, ParquetSink(f"{output}/{name}"))
