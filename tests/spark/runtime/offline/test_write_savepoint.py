"""A savepoint of tables: what a job needs beside them follows, or is asked for; nothing stays in state for good."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from datetime import timedelta
from operator import add
from pathlib import Path
from secrets import randbelow
from typing import Any

import pytest
from pyspark.sql import functions as F

from statecore import (
    CoGroupFunction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessJoinFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    Window,
    WindowFunction,
)
from statecore.errors import ConfigurationError
from statecore.joins import Interval, IntervalJoinFunction
from statecore.runtime import Job, read_savepoint, read_timers, write_savepoint
from statecore.runtime.offline.tables import keyed_rows
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.keyed_files import VALUE, WINDOW_END, WINDOW_START
from statecore.state.contexts import WINDOW_TIMERS
from statecore.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from statecore.testing import KeyedOperatorHarness, TwoInputOperatorHarness, physical
from tests.spark.runtime.test_session_windows import LAST, expected
from tests.support.bench import Bench
from tests.support.jobs import visits
from tests.support.waiting import wait

MS = timedelta(milliseconds=1)
TEN = TumblingEventTimeWindows(10 * MS)
Event = namedtuple("Event", ["k", "n"])
COLUMNS = "k string, n bigint"
SUM = ReducingStateDescriptor("sum", "bigint", reduce=add)
ALL = ListStateDescriptor("all", "bigint")
TOTAL = ValueStateDescriptor("total", "bigint")
RECORD = "struct<k:string,n:bigint>"


class Sides(CoGroupFunction):
    def co_group(self, key: Any, context: Any, lefts: list[Any], rights: list[Any]) -> Iterator[Any]:
        yield *key, len(lefts) + len(rights)


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left.k, right.n


class Reminder(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        pass

    def on_timer(self, timestamp_ms: int, ctx: Any) -> None:
        pass


def of(function: Any) -> dict[str, Any]:
    """Return the arguments of a job with one operator."""

    def build(job: Job) -> None:
        def read(spark: Any) -> Any:
            return spark.readStream.schema(f"{COLUMNS}, at timestamp").parquet("nowhere")

        keyed = job.source("records", read=read, event_time="at").key_by("k")
        if isinstance(function, KeyedProcessFunction):
            keyed.process(function, uid="op", output=COLUMNS)
            return
        others = job.source("others", read=lambda spark: read(spark).withColumnRenamed("k", "key"), event_time="at")
        other = others.key_by("key")
        if isinstance(function, ProcessJoinFunction):
            keyed.interval_join(other).between(-5 * MS, 8 * MS).process(function, uid="op", output=COLUMNS)
        else:
            keyed.co_group(other).window(TEN).process(function, uid="op", output=COLUMNS)

    return {"job": build, "max_parallelism": 16, "parallelism": 3}


WINDOWS: dict[str, Callable[[], WindowFunction]] = {
    "tumbling": lambda: WindowFunction(TEN, SUM, value="n"),
    "sliding, with lateness": lambda: WindowFunction(
        SlidingEventTimeWindows(10 * MS, 5 * MS), ALL, value="n", allowed_lateness=20 * MS
    ),
    "counted": lambda: WindowFunction(
        TEN, SUM, value="n", trigger=PurgingTrigger(CountTrigger(3)), allowed_lateness=7 * MS
    ),
    "sessions": lambda: WindowFunction(EventTimeSessionWindows(10 * MS), SUM, value="n"),
    "sessions, not folded": lambda: WindowFunction(EventTimeSessionWindows(10 * MS), ALL, value="n"),
    "global": lambda: WindowFunction(GlobalWindows(), SUM, value="n", trigger=PurgingTrigger(CountTrigger(9))),
}


def written(spark: Any, made: str, state: str) -> dict[Any, Any]:
    """Return the rows of a state in a savepoint as a harness has them; none if there is no such state."""
    store, _, manifest = open_savepoint(made)
    (operator,) = manifest.operators
    found: dict[Any, Any] = {}
    for schema in operator.states:
        if schema.name == state:
            for row in keyed_rows(spark, store, manifest, operator, schema).collect():
                window = Window(row[WINDOW_START], row[WINDOW_END]) if schema.windowed else None
                found[(row.k,) if window is None else ((row.k,), window)] = row[VALUE]
    return found


def sets(timers: dict[Any, Any]) -> dict[Any, set[int]]:
    return {scope: set(times) for scope, times in timers.items()}


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_have_the_timers_and_sessions_that_records_would_have_made(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    function = WINDOWS[kind]()
    harness = KeyedOperatorHarness(WINDOWS[kind](), key=lambda event: (event.k,))
    # One record for each session: their state lies in the window that they have.
    for k, at in (("a", 3), ("a", 41), ("b", 17), ("c", -4)):
        harness.process(Event(k, at), timestamp_ms=at)
    backend = harness.keyed_backend
    contents = physical(backend, function.contents.name)
    rows = [(key[0], *window, value) for (key, window), value in contents.items()]
    value = "array<bigint>" if function.contents is ALL else "bigint"
    table = spark.createDataFrame(rows, f"k string, window_start bigint, window_end bigint, value {value}")
    if kind == "global":
        table = table.drop("window_start", "window_end")
    made = write_savepoint(tmp_path / "made", {"op": {function.contents: (table, ["k"])}}, **of(function))
    assert written(spark, made, function.contents.name) == contents
    timers = sets(written(spark, made, WINDOW_TIMERS))
    assert timers == sets(physical(backend, WINDOW_TIMERS))
    assert {k: [tuple(e) for e in held] for k, held in written(spark, made, "__sessions").items()} == {
        k: [tuple(e) for e in held] for k, held in physical(backend, "__sessions").items()
    }
    earliest = min((time for times in timers.values() for time in times), default=None)
    manifest = open_savepoint(made).manifest
    assert (manifest.next_event_timer_ms, manifest.next_processing_timer_ms) == (earliest, None)
    assert (earliest is None) == (kind == "global")


def test_joins_have_the_timers_that_records_would_have_made(spark: Any, tmp_path: Path) -> None:
    interval = Interval(-5 * MS, 8 * MS)
    harness = TwoInputOperatorHarness(
        IntervalJoinFunction(Pairs(), interval, COLUMNS, COLUMNS), key=lambda event: (event.k,)
    )
    for k, at in (("a", 3), ("a", 41), ("b", 17)):
        harness.process1(Event(k, at), timestamp_ms=at)
    for k, at in (("a", 1), ("c", 6)):
        harness.process2(Event(k, at), timestamp_ms=at)
    tables: dict[Any, Any] = {}
    for side in ("left", "right"):
        buffer = physical(harness.keyed_backend, side)
        rows = [(key[0], {at: [tuple(e) for e in held] for at, held in times.items()}) for key, times in buffer.items()]
        table = spark.createDataFrame(rows, f"k string, value map<bigint,array<{RECORD}>>")
        tables[MapStateDescriptor(side, "bigint", f"array<{RECORD}>")] = (table, ["k"])
    made = write_savepoint(tmp_path / "made", {"op": tables}, **of(Pairs()))
    assert open_savepoint(made).manifest.operators[0].second_key == ("key",)
    # Of a key's timers the first is enough: when it fires, the next is registered.
    first = {key: [min(times)] for key, times in physical(harness.keyed_backend, EVENT_TIMERS).items()}
    assert written(spark, made, EVENT_TIMERS) == first == {("a",): [6], ("b",): [25], ("c",): [11]}


def test_a_co_group_has_the_timers_of_its_windows(spark: Any, tmp_path: Path) -> None:
    records = ListStateDescriptor("records", f"struct<left:{RECORD},right:{RECORD}>")
    table = spark.sql(
        "SELECT 'a' AS k, 10L AS window_start, 20L AS window_end, "
        f"array(cast(struct(struct('a', 3L), null) AS struct<left:{RECORD},right:{RECORD}>)) AS value"
    )
    made = write_savepoint(tmp_path / "made", {"op": {records: (table, ["k"])}}, **of(Sides()))
    assert written(spark, made, WINDOW_TIMERS) == {(("a",), Window(10, 20)): [19]}


def test_timers_of_a_users_function_are_a_table(spark: Any, tmp_path: Path) -> None:
    state = spark.createDataFrame([("a", 1), ("b", 2)], "k string, value bigint")
    timers = spark.createDataFrame(
        [("a", 30, None), ("a", 10, 7), ("b", None, 5), ("c", 10, None)],
        "k string, event_time_ms bigint, processing_time_ms bigint",
    )
    made = write_savepoint(tmp_path / "made", {"op": {TOTAL: (state, ["k"])}}, timers={"op": timers}, **of(Reminder()))
    assert written(spark, made, EVENT_TIMERS) == {("a",): [10, 30], ("c",): [10]}
    assert written(spark, made, PROCESSING_TIMERS) == {("a",): [7], ("b",): [5]}
    manifest = open_savepoint(made).manifest
    assert (manifest.next_event_timer_ms, manifest.next_processing_timer_ms) == (10, 5)
    again = {(k, *at) for k, *at in read_timers(spark, made, "op").collect()}
    assert again == {("a", 30, None), ("a", 10, None), ("a", None, 7), ("b", None, 5), ("c", 10, None)}
    alone = write_savepoint(
        tmp_path / "alone", {}, timers={"op": timers.drop("event_time_ms").dropna()}, **of(Reminder())
    )
    assert written(spark, alone, PROCESSING_TIMERS) == {("a",): [7], ("b",): [5]}


PLAIN = "SELECT 'a' AS k, 1L AS value"
WINDOWED = "SELECT 'a' AS k, 10L AS window_start, 20L AS window_end, 1L AS value"
TIMED = "SELECT 'a' AS k, 1L AS event_time_ms"
LATER = WINDOWED.replace("10L", "20L").replace("20L AS window_end", "30L AS window_end")


class Counting(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        pass


def every_ten() -> WindowFunction:
    return WindowFunction(GlobalWindows(), SUM, value="n", trigger=ContinuousEventTimeTrigger(10 * MS))


@pytest.mark.parametrize(
    ("function", "state", "table", "timers", "message"),
    [
        (Reminder, TOTAL, PLAIN, None, r"found no table of timers for operator 'op'.*on_timer"),
        (Reminder, TOTAL, PLAIN, "SELECT 'a' AS k, 1 AS event_time_ms", r"of type bigint beside the key"),
        (Reminder, TOTAL, PLAIN, "SELECT 'a' AS key, 1L AS event_time_ms", r"\['key', 'event_time_ms'\].*'k'"),
        (Reminder, TOTAL, PLAIN, "SELECT 'a' AS k, cast(null AS bigint) AS event_time_ms", "a time in each row"),
        (Counting, TOTAL, PLAIN, TIMED, "found a table of timers for operator 'op'.*has no on_timer"),
        (Counting, TOTAL, WINDOWED, None, "'window_start', 'window_end'.*no window function"),
        (WINDOWS["tumbling"], SUM, WINDOWED, TIMED, "table of timers for operator 'op'.*one of windows or a join"),
        (WINDOWS["tumbling"], SUM, PLAIN, None, "of type bigint besides the key.*unix_millis"),
        (WINDOWS["tumbling"], SUM, WINDOWED.replace("20L AS window_end, ", ""), None, "of type bigint besides the key"),
        (
            WINDOWS["sessions"],
            SUM,
            WINDOWED.replace("10L", "timestamp '2024-01-01'").replace("20L", "timestamp '2024-01-02'"),
            None,
            r"'window_start timestamp'.*of type bigint.*unix_millis",
        ),
        (WINDOWS["sessions"], SUM, WINDOWED.replace("20L", "cast(null AS bigint)"), None, "a row without bounds"),
        (WINDOWS["tumbling"], TOTAL, WINDOWED, None, "the value state 'total'.*expected only its contents"),
        (
            WINDOWS["tumbling"],
            ReducingStateDescriptor("sum", "double", reduce=add),
            WINDOWED.replace("1L", "1D"),
            None,
            "as the job declares it",
        ),
        (WINDOWS["tumbling"], SUM, WINDOWED.replace("20L", "21L"), None, "the window 10 to 21.*never fall into"),
        (
            WINDOWS["sliding, with lateness"],
            ALL,
            WINDOWED.replace("10L", "11L").replace("20L", "21L").replace("1L AS value", "array(1L) AS value"),
            None,
            "the window 11 to 21.*never fall into",
        ),
        (WINDOWS["sessions"], SUM, f"{WINDOWED} UNION ALL {LATER}", None, "session 20 to 30.*merge those that touch"),
        (WINDOWS["sessions"], SUM, WINDOWED.replace("20L", "19L"), None, "the session 10 to 19.*at least 10 ms after"),
        (every_ten, SUM, PLAIN, None, "GlobalWindows that fire at intervals"),
        (Reminder, TOTAL, "SELECT 'a' AS k, 'b' AS j, 1L AS value", None, r"columns \['k', 'j'\].*expected \['k'\]"),
    ],
    ids=[
        "no timers", "timers of another type", "timers of another key", "a timer without a time",
        "timers of a function without", "windows of a function without", "timers of windows", "no windows", "no end",
        "timestamps", "null bounds", "another state", "another type", "a window that is none",
        "a sliding window that is none", "sessions that touch", "a session below the gap", "intervals without end",
        "keys",
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_and_nothing_is_written(
    spark: Any, tmp_path: Path, function: Any, state: Any, table: str, timers: str | None, message: str
) -> None:
    df = spark.sql(table)
    keys = [name for name in df.columns if name in ("k", "j")]
    with pytest.raises(ConfigurationError, match=message):
        write_savepoint(
            tmp_path / "made",
            {"op": {state: (df, keys)}},
            timers={} if timers is None else {"op": spark.sql(timers)},
            **of(function()),
        )
    assert not (tmp_path / "made").exists()


def test_a_key_and_a_value_may_have_a_column_with_the_name_of_a_bound(spark: Any, tmp_path: Path) -> None:
    bounds = ValueStateDescriptor("bounds", "struct<window_start:bigint>")
    table = spark.sql("SELECT 'a' AS k, 5L AS window_start")
    made = write_savepoint(tmp_path / "made", {"op": {bounds: (table, ["k"])}}, **of(Counting()))
    assert written(spark, made, "bounds") == {("a",): (5,)}


def test_timers_are_those_of_the_rows_that_are_written(spark: Any, tmp_path: Path) -> None:
    """Of a DataFrame that has other rows whenever it is read."""
    start = F.udf(lambda _: 10 * randbelow(1_000_000), "bigint").asNondeterministic()(F.col("id"))
    table = spark.range(50).select(F.col("id").cast("string").alias("k"), start.alias("window_start"))
    table = table.select(
        "k", "window_start", (F.col("window_start") + 10).alias("window_end"), F.lit(1).cast("bigint").alias("value")
    )
    made = write_savepoint(tmp_path / "made", {"op": {SUM: (table, ["k"])}}, **of(WINDOWS["tumbling"]()))
    windows = written(spark, made, "sum")
    assert written(spark, made, WINDOW_TIMERS) == {scope: [scope[1].end - 1] for scope in windows}
    earliest = min(window.end - 1 for _, window in windows)
    assert open_savepoint(made).manifest.next_event_timer_ms == earliest


def test_a_keyed_operator_needs_keyed_state(spark: Any, tmp_path: Path) -> None:
    waiting: Any = {ListStateDescriptor("waiting", "bigint"): (spark.range(3).select(F.col("id").alias("value")), ())}
    with pytest.raises(ConfigurationError, match=r"found no keyed state for operator 'op'.*which may be empty"):
        write_savepoint(tmp_path / "made", {"op": waiting}, **of(Counting()))


def test_a_job_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"found no job file s3://jobs/a.py; expected a local"):
        write_savepoint(tmp_path / "made", {}, 16, 2, job="s3://jobs/a.py")


def test_an_operator_that_the_job_has_not_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"for the operators \['sums'\]; expected some of \['op'\]"):
        write_savepoint(tmp_path / "made", {"sums": {TOTAL: (spark.sql(PLAIN), ["k"])}}, **of(Reminder()))


def test_sessions_of_keys_that_never_come_back_end(spark: Any, bench: Bench, tmp_path: Path) -> None:
    bench.register(artifact=Path(visits.__file__))
    ends = [1_000 * n for n in range(70, 100)]
    rows = [(f"gone-{end}", end - 70_000, end, 5) for end in ends]
    table = spark.createDataFrame(rows, "k string, window_start bigint, window_end bigint, value bigint")
    made = write_savepoint(
        tmp_path / "made",
        {"visits": {visits.SUM: (table, ["k"])}},
        max_parallelism=128,
        parallelism=4,
        job=visits.__file__,
        settings={"input": "", "output": ""},
    )
    with bench.running(2, start_from=made):
        bench.feed(numbers=[1_000_000])
        wait(lambda: bench.published("visits", ("total",)).total() == len(ends), "all sessions")
    assert bench.published("visits", ("k", "start", "end", "total")) == Counter(rows)


def test_sessions_that_are_read_and_written_again_go_on(spark: Any, bench: Bench, tmp_path: Path) -> None:
    """Most records joined a session, so its bounds are not those of the window that its state lies in."""
    bench.register(artifact=Path(visits.__file__))
    with bench.running(2):
        bench.feed(numbers=range(120))
        bench.wait_done()
        stopped = bench.stop("before")
    table = read_savepoint(spark, bench.store / str(stopped), "visits", visits.SUM.name)
    before = bench.fed
    bench.store, bench.input, bench.output = (tmp_path / "second" / name for name in ("store", "input", "output"))
    bench.input.mkdir(parents=True)
    bench.fed = []
    made = write_savepoint(
        tmp_path / "made",
        {"visits": {visits.SUM: (table, ["k"])}},
        max_parallelism=64,
        parallelism=3,
        job=visits.__file__,
        settings={"input": "", "output": ""},
    )
    bench.register(artifact=Path(visits.__file__))
    with bench.running(3, start_from=made, max_parallelism=64):
        bench.feed(numbers=range(120, 160))
        bench.wait_done()
        sessions = expected(before + bench.fed)
        bench.feed(numbers=[LAST])
        wait(lambda: bench.published("visits", ("total",)).total() == sessions.total(), "all sessions")
    assert bench.published("visits", ("k", "start", "end", "total")) == sessions
    assert sessions.total() == 40
