"""The job of the campaign: every kind of state and timers, a broadcast, sessions, two inputs, a join, side outputs.

::

    records ─► key_by(k) ─┬─► gathered ─► key_by(bucket) ─► tallied
    rules ───► broadcast ─┘      │                             │
                             unknown, flushed                late
    records ─► key_by(k) ───► visits ─► key_by(k) ─┬─► attended
                                 │                 │
                              missed               │
    records ─► key_by(k) ──────────────────────────┘
    records ─► key_by(k) ───► sums
                                 │
                               tardy
    records ──────────────────► key_by(bucket) ─┬─► near
    gathered ─► filter(what) ─► key_by(bucket) ─┘     │
                                                    stray
"""

from __future__ import annotations

import operator
from datetime import timedelta

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    EventTimeSessionWindows,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
    WindowFunction,
)
from statecore.runtime import Job, ParquetSink

LATENESS = timedelta(seconds=3)
# A round takes some seconds to half a minute: some of it lives from one to the next, some does not.
TTL = timedelta(seconds=20)
TOUCHED = StateTtlConfig(TTL, UpdateType.ON_READ_AND_WRITE, cleanup_full_snapshot=True)
WRITTEN = StateTtlConfig(TTL, cleanup_incremental=(3, True))
BUCKETS = 7


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


SPREAD_TYPE = "struct<low:bigint,high:bigint>"
LAST = ValueStateDescriptor("last", "struct<n:bigint,at:timestamp>", TOUCHED)
TRAIL = ListStateDescriptor("trail", "bigint")
RECENT = MapStateDescriptor("recent", "string", "double", WRITTEN)
SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
SPREAD = AggregatingStateDescriptor("spread", SPREAD_TYPE, aggregate=Spread(), ttl=TOUCHED)
GATHERED = (LAST, TRAIL, RECENT, SUM, SPREAD)

TOTAL = ValueStateDescriptor("total", "bigint")
LATEST = ListStateDescriptor("latest", "bigint", WRITTEN)
BY_WHAT = MapStateDescriptor("by_what", "string", "array<bigint>")
BURST = ReducingStateDescriptor("burst", "bigint", reduce=lambda a, b: a + b, ttl=TOUCHED)
RANGE = AggregatingStateDescriptor("range", SPREAD_TYPE, aggregate=Spread())
TALLIED = (TOTAL, LATEST, BY_WHAT, BURST, RANGE)

SEEN = ListStateDescriptor("seen", "bigint")
# The numbers of a key are 23 apart, so that one that comes late may merge two sessions.
GAP = timedelta(seconds=25)
GRACE = timedelta(seconds=10)

ADDED = ReducingStateDescriptor("added", "bigint", reduce=operator.add)

WAITING = ListStateDescriptor("waiting", "bigint")
TAKEN = ValueStateDescriptor("taken", "bigint")
ATTENDED = (WAITING, TAKEN)
# Some sessions end before, some after: their records may still be merged into others.
WAIT_MS = 40_000

# The numbers of a bucket are 7 apart.
NEAR = (timedelta(seconds=-8), timedelta(seconds=7))

PENDING = ListStateDescriptor("pending", "bigint")
COUNTS = ListStateDescriptor("counts", "struct<subtask:int,records:bigint>")
FACTORS = MapStateDescriptor("factors", "string", "bigint")
FLUSH = "flush"

UNKNOWN = OutputTag("unknown", "k string, n bigint")
FLUSHED = OutputTag("flushed", "n bigint")
LATE = OutputTag("late", "bucket bigint, amount bigint, what string")
MISSED = OutputTag("missed", "k string, n bigint, at timestamp")
TARDY = OutputTag("tardy", "k string, n bigint, at timestamp")
STRAY = OutputTag("stray", "k string, n bigint, at timestamp, bucket bigint")


class Gather(KeyedBroadcastProcessFunction, CheckpointedFunction):
    """Weighs numbers by the factor of their parity, and holds some back until a rule says so."""

    def initialize_state(self, context):
        self.pending = context.operator_state_store.get_list_state(PENDING)
        self.counts = context.operator_state_store.get_union_list_state(COUNTS)

    def open(self, ctx):
        self.subtask = ctx.subtask
        held = list(self.counts.get())
        # Others' counts are there after a restore alone: then one subtask takes up all, whatever the parallelism was.
        restored = any(count.subtask != self.subtask for count in held)
        self.records = sum(count.records for count in held) if not restored or self.subtask == 0 else 0
        self.last = ctx.get_state(LAST)
        self.trail = ctx.get_list_state(TRAIL)
        self.recent = ctx.get_map_state(RECENT)
        self.sum = ctx.get_reducing_state(SUM)
        self.spread = ctx.get_aggregating_state(SPREAD)

    def process_broadcast_element(self, value, ctx):
        if value.name == FLUSH:
            for n in self.pending.get():
                ctx.output(FLUSHED, (n,))
            self.pending.clear()
        elif value.factor:
            ctx.get_broadcast_state(FACTORS).put(value.name, value.factor)
        else:
            ctx.get_broadcast_state(FACTORS).remove(value.name)

    def process_element(self, value, ctx):
        n, at, timers = value.n, ctx.timestamp(), ctx.timer_service()
        self.records += 1
        factor = ctx.get_broadcast_state(FACTORS).get("even" if n % 2 == 0 else "odd")
        if factor is None:
            ctx.output(UNKNOWN, (value.k, n))
            return
        before = self.last.value()
        self.last.update((n, value.at))
        self.trail.add(n)
        if n % 5 == 0:
            self.trail.update(list(self.trail.get())[-3:])
        self.recent.put(str(n % 4), n / 3)
        if n % 11 == 0:
            self.recent.remove(str((n + 1) % 4))
        self.sum.add(n)
        self.spread.add(n)
        if n % 7 == 0:
            self.pending.add(n)
        timers.register_event_time_timer(at + 5_000)
        if n % 3 == 0:
            timers.delete_event_time_timer(at + 5_000)
        timers.register_processing_time_timer(ctx.current_processing_time() + 1 + n % 4 * 8_000)
        yield n % BUCKETS, n * factor, "record", at
        yield n % BUCKETS, self.sum.get(), "sum", at
        yield n % BUCKETS, self.spread.get() + len(list(self.recent.keys())), "lives", at
        yield n % BUCKETS, 0 if before is None else before.n, "before", at
        if n % 29 == 0:
            self.sum.clear()
            self.trail.clear()

    def on_timer(self, timestamp_ms, ctx):
        (k,) = ctx.get_current_key()
        is_event = ctx.time_domain() == "event_time"
        yield int(k[1:]) % BUCKETS, self.sum.get() or 0, str(ctx.time_domain()), timestamp_ms if is_event else 0

    def snapshot_state(self, context):
        self.counts.update([(self.subtask, self.records)])


class Tally(KeyedProcessFunction):
    """Adds up per bucket, and reports when either time passes."""

    def open(self, ctx):
        self.total = ctx.get_state(TOTAL)
        self.latest = ctx.get_list_state(LATEST)
        self.by_what = ctx.get_map_state(BY_WHAT)
        self.burst = ctx.get_reducing_state(BURST)
        self.range = ctx.get_aggregating_state(RANGE)

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        self.total.update((self.total.value() or 0) + value.amount)
        self.latest.add(value.amount)
        self.by_what.put(value.what, [*(self.by_what.get(value.what) or []), value.amount][-3:])
        self.burst.add(value.amount)
        self.range.add(value.amount)
        if value.at:
            timers.register_event_time_timer(value.at + 1_000)
            if value.at <= timers.current_watermark():
                ctx.output(LATE, (value.bucket, value.amount, value.what))
        if value.amount % 3 == 0:
            timers.register_processing_time_timer(ctx.current_processing_time() + 1 + value.amount % 5 * 5_000)
        if value.amount % 10 == 0:
            timers.delete_processing_time_timer(ctx.current_processing_time() + 1)
        yield value.bucket, self.total.value(), value.what, self.burst.get() + len(list(self.latest.get()))
        if value.amount % 31 == 0:
            self.by_what.remove("before")

    def on_timer(self, timestamp_ms, ctx):
        (bucket,) = ctx.get_current_key()
        yield bucket, self.total.value(), str(ctx.time_domain()), self.range.get()


class Visit(ProcessWindowFunction):
    """Puts out the bounds of a session and what it has seen."""

    def process(self, key, context, elements):
        yield *key, context.window.start, context.window.end, " ".join(map(str, sorted(elements)))


def visits() -> WindowFunction:
    """Gather numbers to sessions."""
    return WindowFunction(
        EventTimeSessionWindows(GAP),
        SEEN,
        process=Visit(),
        value=lambda record: record.n,
        allowed_lateness=GRACE,
        late_output=MISSED,
    )


class Added(ProcessWindowFunction):
    """Puts out the bounds of a session and its sum."""

    def process(self, key, context, elements):
        yield *key, *context.window, *elements


def sums() -> WindowFunction:
    """Add up numbers per session; these sessions lie in columns."""
    return WindowFunction(EventTimeSessionWindows(GAP), ADDED, process=Added(), value="n", late_output=TARDY)


class Attend(KeyedCoProcessFunction):
    """Lets records wait for a session that has seen them."""

    def open(self, ctx):
        self.waiting = ctx.get_list_state(WAITING)
        self.taken = ctx.get_state(TAKEN)

    def process_element1(self, value, ctx):
        self.waiting.add(value.n)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + WAIT_MS)

    def process_element2(self, value, ctx):
        seen = set(map(int, value.seen.split()))
        before = list(self.waiting.get())
        left = [n for n in before if n not in seen]
        self.waiting.update(left)
        self.taken.update((self.taken.value() or 0) + len(before) - len(left))
        yield value.k, value.start, "visit", self.taken.value(), len(left)

    def on_timer(self, timestamp_ms, ctx):
        waiting = list(self.waiting.get())
        if waiting:
            yield *ctx.get_current_key(), timestamp_ms, "due", self.taken.value(), len(waiting)


class Near(ProcessJoinFunction):
    """Puts out pairs of a record and what was gathered near it."""

    def process_element(self, left, right, ctx):
        yield left.bucket, left.n, right.amount, ctx.timestamp()


def build(job: Job) -> None:
    def files(folder: str, schema: str):
        def read(spark):
            # A file is an epoch, so what an epoch has read can be told from where it stands.
            reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            return reader.parquet(f"{job.settings['input']}/{folder}")

        return read

    lake, disk = job.settings["lake"], job.settings["disk"]
    records = job.source(
        "records", read=files("records", "k string, n bigint, at timestamp"), event_time="at", max_lateness=LATENESS
    )
    rules = job.source("rules", read=files("rules", "name string, factor bigint, version bigint"))
    gathered = (
        records.key_by("k", order_by=("n",))
        .connect(rules.broadcast(FACTORS, order_by=("version",)))
        .process(Gather(), output="bucket bigint, amount bigint, what string, at bigint", uid="gather")
    )
    tallied = gathered.key_by("bucket", order_by=("amount", "what", "at")).process(
        Tally(), output="bucket bigint, total bigint, what string, more bigint", uid="tally"
    )
    gathered.sink("gathered", ParquetSink(f"{lake}/gathered"))
    gathered.side_output(UNKNOWN).sink("unknown", ParquetSink(f"{lake}/unknown"))
    gathered.side_output(FLUSHED).sink("flushed", ParquetSink(f"{lake}/flushed"))
    # A full disk is met by these, a storage that fails by those above.
    tallied.sink("tallied", ParquetSink(f"{disk}/tallied"))
    tallied.side_output(LATE).sink("late", ParquetSink(f"{disk}/late"))
    visited = records.key_by("k", order_by=("n",)).process(
        visits(), output="k string, start bigint, end bigint, seen string", uid="visits"
    )
    visited.sink("visits", ParquetSink(f"{lake}/visits"))
    visited.side_output(MISSED).sink("missed", ParquetSink(f"{lake}/missed"))
    summed = records.key_by("k").process(sums(), output="k string, start bigint, end bigint, added bigint", uid="sums")
    summed.sink("sums", ParquetSink(f"{lake}/sums"))
    summed.side_output(TARDY).sink("tardy", ParquetSink(f"{lake}/tardy"))
    attended = (
        records.key_by("k", order_by=("n",))
        .connect(visited.key_by("k", order_by=("start", "seen")))
        .process(Attend(), output="k string, at bigint, what string, taken bigint, waiting bigint", uid="attend")
    )
    attended.sink("attended", ParquetSink(f"{lake}/attended"))
    weighed = gathered.filter("what = 'record'").key_by("bucket")
    near = (
        records.with_column("bucket", f"n % {BUCKETS}")
        .key_by("bucket")
        .interval_join(weighed)
        .between(*NEAR)
        .process(Near(), output="bucket bigint, n bigint, amount bigint, at bigint", uid="near", left_late=STRAY)
    )
    near.sink("near", ParquetSink(f"{lake}/near"))
    near.side_output(STRAY).sink("stray", ParquetSink(f"{lake}/stray"))
