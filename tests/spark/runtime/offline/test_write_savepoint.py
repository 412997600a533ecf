"""A savepoint of tables: what a job needs beside them follows, or is asked for; nothing stays in state for good."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from datetime import timedelta
from operator import add
from pathlib import Path
from typing import Any

import pytest

from statecore import (
    CoGroupFunction,
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
from statecore.functions import UserFunction
from statecore.joins import CoGroupWindowFunction, Interval, IntervalJoinFunction
from statecore.runtime import Job, read_timers, write_savepoint
from statecore.runtime.offline.tables import keyed_rows
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.keyed_files import VALUE, WINDOW_END, WINDOW_START
from statecore.state.contexts import WINDOW_TIMERS
from statecore.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from statecore.testing import KeyedOperatorHarness, TwoInputOperatorHarness, physical
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


def of(function: UserFunction) -> dict[str, Any]:
    """Return the arguments of a job with one operator."""

    def build(job: Job) -> None:
        def read(spark: Any) -> Any:
            return spark.readStream.schema(f"{COLUMNS}, at timestamp").parquet("nowhere")

        keyed = job.source("records", read=read, event_time="at").key_by("k")
        if isinstance(function, IntervalJoinFunction | CoGroupWindowFunction):
            other = job.source("others", read=read, event_time="at").key_by("k")
            keyed.connect(other).process(function, uid="op", output=COLUMNS)
        else:
            keyed.process(function, uid="op", output=COLUMNS)

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
    function = IntervalJoinFunction(Pairs(), interval, COLUMNS, COLUMNS)
    tables: dict[Any, Any] = {}
    for side in ("left", "right"):
        buffer = physical(harness.keyed_backend, side)
        rows = [(key[0], {at: [tuple(e) for e in held] for at, held in times.items()}) for key, times in buffer.items()]
        table = spark.createDataFrame(rows, f"k string, value map<bigint,array<{RECORD}>>")
        tables[MapStateDescriptor(side, "bigint", f"array<{RECORD}>")] = (table, ["k"])
    made = write_savepoint(tmp_path / "made", {"op": tables}, **of(function))
    # Of a key's timers the first is enough: when it fires, the next is registered.
    first = {key: [min(times)] for key, times in physical(harness.keyed_backend, EVENT_TIMERS).items()}
    assert written(spark, made, EVENT_TIMERS) == first == {("a",): [6], ("b",): [25], ("c",): [11]}


def test_a_co_group_has_the_timers_of_its_windows(spark: Any, tmp_path: Path) -> None:
    function = CoGroupWindowFunction(Sides(), TEN, COLUMNS, COLUMNS)
    table = spark.sql(
        "SELECT 'a' AS k, 10L AS window_start, 20L AS window_end, "
        f"array(cast(struct(struct('a', 3L), null) AS struct<left:{RECORD},right:{RECORD}>)) AS value"
    )
    made = write_savepoint(tmp_path / "made", {"op": {function.both_sides.contents: (table, ["k"])}}, **of(function))
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
    alone = write_savepoint(tmp_path / "alone", {}, timers={"op": timers.drop("event_time_ms")}, **of(Reminder()))
    assert written(spark, alone, PROCESSING_TIMERS) == {("a",): [7], ("b",): [5]}


PLAIN = "SELECT 'a' AS k, 1L AS value"
WINDOWED = "SELECT 'a' AS k, 10L AS window_start, 20L AS window_end, 1L AS value"
TIMED = "SELECT 'a' AS k, 1L AS event_time_ms"


@pytest.mark.parametrize(
    ("function", "state", "table", "timers", "message"),
    [
        (Reminder, TOTAL, PLAIN, None, r"found no table of timers for operator 'op'.*on_timer"),
        (Reminder, TOTAL, PLAIN, "SELECT 'a' AS k, 1 AS event_time_ms", r"of type bigint beside the key"),
        (Reminder, TOTAL, PLAIN, "SELECT 'a' AS key, 1L AS event_time_ms", r"\['key', 'event_time_ms'\].*'k'"),
        (Reminder, TOTAL, WINDOWED, TIMED, "found windows for state 'total'.*no window function"),
        (WINDOWS["tumbling"], SUM, WINDOWED, TIMED, "table of timers for operator 'op', which has windows"),
        (WINDOWS["tumbling"], SUM, PLAIN, None, "found no windows for state 'sum'"),
        (WINDOWS["tumbling"], TOTAL, WINDOWED, None, "the value state 'total'.*expected only its contents"),
        (WINDOWS["tumbling"], SUM, WINDOWED.replace("20L", "21L"), None, "the window 10 to 21.*would get into another"),
        (
            WINDOWS["sessions"],
            SUM,
            f"{WINDOWED} UNION ALL {WINDOWED.replace('10L', '19L').replace('20L', '29L')}",
            None,
            r"the session 19 to 29 of the key \{'k': 'a'\}.*one after the other",
        ),
        (Reminder, TOTAL, "SELECT 'a' AS k, 'b' AS j, 1L AS value", None, r"columns \['k', 'j'\].*expected \['k'\]"),
    ],
    ids=[
        "no timers", "timers of another type", "timers of another key", "windows of a function without",
        "timers of windows", "no windows", "another state", "a window that is none", "overlapping sessions", "keys",
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
