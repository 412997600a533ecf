"""Unions and connections: what a job file may say, and what is refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from statecore import (
    BatchProcessFunction,
    CoGroupFunction,
    CoProcessFunction,
    CountTrigger,
    GlobalWindows,
    JoinFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    TumblingEventTimeWindows,
)
from statecore.errors import ConfigurationError, JobDefinitionError
from statecore.joins import CoGroupWindowFunction, IntervalJoinFunction
from statecore.model import Field, parse_row
from statecore.runtime import FunctionSink, Job, ParquetSink
from statecore.runtime.epoch.operator import operator_spec
from statecore.runtime.job import Source
from statecore.runtime.messages import MAIN, SECOND, InputSpec, OperatorSpec
from statecore.runtime.sinks.delta import DeltaSink
from statecore.runtime.sinks.kafka import KafkaSink
from statecore.runtime.sinks.postgres import PostgresSink
from statecore.snapshot.checkpoints import CheckpointStore

RULES = MapStateDescriptor("rules", "string", "int")


class Nothing(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return


class Both(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (value,)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (value,)


class KeyedBoth(Both, KeyedCoProcessFunction):
    pass


class Keyed(Nothing, KeyedProcessFunction):
    pass


class Batches(BatchProcessFunction):
    def process_batch(self, batch: Any, ctx: Any) -> None:
        return


def read(spark: Any) -> Any:
    raise AssertionError("a job only describes")


def spec_of(job: Job, folder: Path, **columns: str) -> OperatorSpec:
    def columns_of(origin: Any) -> tuple[Field, ...]:
        return parse_row(columns[origin.name])

    store = CheckpointStore.at(str(folder))
    return operator_spec(job.operators[0], job.operators, columns_of, store, 128, allow_non_restored_state=False)


def test_two_keyed_streams_share_a_key_of_other_column_names(tmp_path: Path) -> None:
    job = Job()
    orders = job.source("orders", read, event_time="at").key_by("id")
    paid = job.source("paid", read).key_by("order_id")
    orders.connect(paid).process(KeyedBoth(), output="n int", uid="both")
    spec = spec_of(job, tmp_path, orders="id bigint, at timestamp", paid="order_id bigint, n int")
    assert spec.inputs == (InputSpec(MAIN, ("at",), ("id",)), InputSpec(SECOND, (None,), ("order_id",)))
    assert [(field.name, field.type) for field in spec.key_fields] == [("id", "bigint")]
    assert (spec.has_two_inputs, spec.ordered, spec.merged) == (True, False, False)


@pytest.mark.parametrize(
    ("order", "other", "merged"),
    [(("at",), ("t",), True), (("at", "n"), ("t",), True), (("n", "at"), ("t",), False), (("at",), (), False)],
)
def test_two_streams_are_merged_where_both_are_ordered_by_event_time(
    tmp_path: Path, order: tuple[str, ...], other: tuple[str, ...], merged: bool
) -> None:
    job = Job()
    one = job.source("one", read, event_time="at").key_by("k", order_by=order)
    two = job.source("two", read, event_time="t").key_by("k", order_by=other)
    one.connect(two).process(KeyedBoth(), output="n int", uid="both")
    spec = spec_of(job, tmp_path, one="k int, n int, at timestamp", two="k int, t timestamp")
    assert (spec.ordered, spec.merged) == (True, merged)


def test_keys_of_other_types_are_refused_with_both(tmp_path: Path) -> None:
    job = Job()
    job.source("one", read).key_by("id").connect(job.source("two", read).key_by("other")).process(
        KeyedBoth(), output="n int", uid="both"
    )
    with pytest.raises(JobDefinitionError, match=r"keys \(id bigint\) and \(other string\) of the two inputs .*; cast"):
        spec_of(job, tmp_path, one="id bigint", two="other string")
    with pytest.raises(JobDefinitionError, match=r"no columns \['other'\] in the input of operator 'both'"):
        spec_of(job, tmp_path, one="id bigint", two="id bigint")


def test_a_union_has_the_same_columns_in_any_order(tmp_path: Path) -> None:
    job = Job()
    one, two = job.source("one", read, event_time="at"), job.source("two", read)
    one.union(two).key_by("k").process(Keyed(), output="n int", uid="sums")
    spec = spec_of(job, tmp_path, one="k string, at timestamp", two="at timestamp, k string")
    assert spec.inputs == (InputSpec(MAIN, ("at", None), ("k",)),)
    with pytest.raises(
        JobDefinitionError,
        match=r"k string, at timestamp of source 'one' and k int, at timestamp of source 'two' .* same names and types",
    ):
        spec_of(job, tmp_path, one="k string, at timestamp", two="k int, at timestamp")


def test_every_source_of_a_union_counts_as_read() -> None:
    job = Job()
    one, two = job.source("one", read), job.source("two", read)
    one.union(two).union().process(Nothing(), output="n int", uid="all")
    assert [origin.name for origin in job.validated().operators[0].origins] == ["one", "two"]  # type: ignore[union-attr]


def test_streams_that_do_not_fit_are_refused_by_name() -> None:
    job: Any = Job()
    plain, keyed = job.source("plain", read), job.source("keyed", read).key_by("k")
    broadcast = job.source("rules", read).broadcast(MapStateDescriptor("rules", "string", "int"))
    for attempt, found in (
        (lambda: plain.union(keyed), r"union\(.*KeyedStream.*\); expected streams without a key"),
        (lambda: plain.connect(keyed), r"connect\(a keyed stream\) on a stream without a key; .*call key_by\(\)"),
        (lambda: keyed.connect(plain), r"connect\(a stream without a key\) on a keyed stream"),
        (lambda: keyed.connect(keyed.connect(broadcast)), r"connect\(connected streams\)"),
        (lambda: plain.filter("n > 0").sink("out", None), r"sink 'out' on a source, .* expected it on an output"),
        (lambda: keyed.connect(None), r"connect\(None\)"),
        (lambda: keyed.connect(job.source("two", read).key_by("a", "b")), r"keys \('k',\) and \('a', 'b'\)"),
        (lambda: keyed.connect(keyed).process(Keyed(), output="n int", uid="x"), r"keyed stream connected to another"),
        (lambda: keyed.connect(keyed).process(Batches(), output="n int", uid="x"), r"expected a KeyedCoProcess"),
        (lambda: plain.connect(plain).process(KeyedBoth().__class__, output="n int", uid="x"), r"CoProcessFunction"),
        (
            lambda: keyed.connect(keyed).process(
                KeyedBoth(), output="n int", uid="x", late=OutputTag("late", "k string")
            ),
            r"late='late' for operator 'x' of two inputs",
        ),
    ):
        with pytest.raises(JobDefinitionError, match=found):
            attempt()


def test_late_needs_event_time_of_every_stream_of_a_union() -> None:
    job = Job()
    union = job.source("timed", read, event_time="at").union(job.source("timeless", read))
    with pytest.raises(JobDefinitionError, match="whose source 'timeless' has no event time"):
        union.process(Nothing(), output="n int", uid="x", late=OutputTag("late", "k string"))


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> None:
        return


def test_an_interval_join_knows_the_columns_of_its_streams(tmp_path: Path) -> None:
    job = Job()
    one = job.source("one", read, event_time="at").key_by("id")
    two = job.source("two", read, event_time="t").key_by("other")
    joined = one.interval_join(two).between(timedelta(0), timedelta(hours=1))
    joined.process(Pairs(), output="n int", uid="near", left_late=OutputTag("late", "id bigint, at timestamp"))
    columns = {"one": "id bigint, at timestamp", "two": "t timestamp, other bigint"}
    function = spec_of(job, tmp_path, **columns).function
    assert isinstance(function, IntervalJoinFunction)
    assert function.columns == ("id bigint, at timestamp", "t timestamp, other bigint")
    with pytest.raises(JobDefinitionError, match="found the late output 'late' of operator 'near'"):
        spec_of(job, tmp_path, **{**columns, "one": "id bigint, n int, at timestamp"})


def out(job: Any, **more: Any) -> Any:
    return job.source("in", read).key_by("k").process(Keyed(), **{"output": "k string", "uid": "u", **more})


def made(kind: Any, *arguments: Any) -> Any:
    return kind(*arguments)


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (lambda job: job.source(3, read), "the source 3; expected a name"),
        (lambda job: job.source("in", "orders"), "read='orders'; expected a function"),
        (lambda job: job.source("in", read, event_time=3), "event_time=3; expected the name of a column"),
        (lambda job: job.source("in", read, event_time="at", max_lateness=5), "max_lateness=5; expected a timedelta"),
        (lambda job: job.source("in", read, event_time="at", idle_after="5m"), "idle_after='5m'; expected a timedelta"),
        (lambda job: job.source("in", read).key_by(["k"]), "columns=.* expected each column as a string"),
        (lambda job: job.source("in", read).key_by("k", order_by="at"), r"order_by='at'; .*order_by=\[\"at\"\]"),
        (lambda job: job.source("in", read).key_by("k", order_by=iter(["at"])), "order_by=.*; expected a sequence"),
        (lambda job: job.source("in", read).key_by("k", renames=["a"]), "renames=.*; expected a mapping"),
        (lambda job: job.source("in", read).broadcast(RULES, order_by="at"), "order_by='at'; expected a sequence"),
        (lambda job: job.source("in", read).filter(3), "condition=3; expected SQL, or a function"),
        (lambda job: job.source("in", read).select(), "select.. without columns"),
        (lambda job: job.source("in", read).select(["k"]), "columns=.* expected each column as a string"),
        (lambda job: job.source("in", read).with_column(3, "k"), "name=3; expected the name of a column"),
        (lambda job: job.source("in", read).with_column("k", 3), "expression=3; expected SQL, or a function"),
        (lambda job: job.source("in", read).transform("k"), "function='k'; expected a function of a DataFrame"),
        (lambda job: out(job, uid=3), "the operator uid 3; expected a name"),
        (lambda job: out(job, parallelism="4"), "parallelism='4'; expected an integer"),
        (lambda job: out(job).side_output("late"), "tag='late'; expected an OutputTag"),
        (lambda job: out(job).sink("s", "/out"), "sink='/out'; expected a sink"),
        (lambda job: out(job).sink("s", ParquetSink), "sink=<class .*; expected a sink"),
        (lambda job: out(job).sink(ParquetSink("/out"), "s"), "sink='s'; expected a sink"),
        (lambda job: made(ParquetSink, 3), "path=3; expected a path or a URL"),
        (lambda job: made(ParquetSink, ""), "path=''; expected a path or a URL"),
        (lambda job: made(DeltaSink, None), "path=None; expected a path or a URL"),
        (lambda job: made(FunctionSink, "f"), "f='f'; expected a function"),
        (lambda job: made(KafkaSink, ["t"], "host:9092"), "topic=.*; expected the name of a topic"),
        (lambda job: made(PostgresSink, {"password": "secret"}, "t"), "a dsn of type dict; expected a connection"),
        (lambda job: made(PostgresSink, "", 3), "table=3; expected 'table'"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(attempt: Any, reason: str) -> None:
    with pytest.raises(JobDefinitionError, match=rf"^found {reason}.*; (correct|give|name|write) "):
        attempt(Job())


def test_parts_of_a_job_know_their_lines() -> None:
    job = Job()
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    stream = job.source("in", read)
    keyed = stream.filter("k > 0").key_by("k")
    keyed.process(Keyed(), output="k string", uid="u")
    operator = job.operators[0]
    (origin,) = operator.first.origins
    assert isinstance(origin, Source)
    lines = (origin.line, origin.transformations[0].line, operator.first.line, operator.line)
    assert lines == tuple(f"test_streams.py:{line + further}" for further in (1, 2, 2, 3))


def test_an_interval_join_that_cannot_be_is_refused() -> None:
    job: Any = Job()
    timed = job.source("timed", read, event_time="at").key_by("k")
    hour = timedelta(hours=1)
    for attempt, found in (
        (lambda: timed.interval_join(job.source("timeless", read).key_by("k")), "source 'timeless' without event time"),
        (lambda: timed.interval_join(job.source("plain", read, event_time="at")), "call key_by"),
        (lambda: timed.interval_join(timed).between(hour, -hour), "lower bound that is not above"),
        (lambda: timed.interval_join(timed).between(1, hour), "found lower=1 for an interval join"),
        (lambda: timed.interval_join(timed).between(-hour, timedelta(microseconds=5)), "whole milliseconds"),
        (
            lambda: timed.interval_join(timed).between(-hour, hour).process(KeyedBoth(), output="n int", uid="x"),
            "operator 'x': found .* expected a ProcessJoinFunction",
        ),
    ):
        with pytest.raises((JobDefinitionError, ConfigurationError), match=found):
            attempt()


class Sides(CoGroupFunction):
    def co_group(self, key: Any, context: Any, lefts: Any, rights: Any) -> None:
        return


class WindowPairs(JoinFunction):
    def join(self, left: Any, right: Any, context: Any) -> None:
        return


HOURS = TumblingEventTimeWindows(timedelta(hours=1))


def test_a_window_join_knows_the_columns_of_its_streams(tmp_path: Path) -> None:
    job = Job()
    one = job.source("one", read, event_time="at").key_by("id")
    two = job.source("two", read, event_time="t").key_by("other")
    late = OutputTag("late", "t timestamp, other bigint")
    one.join(two).window(HOURS).process(WindowPairs(), output="n int", uid="pairs", right_late=late)
    columns = {"one": "id bigint, at timestamp", "two": "t timestamp, other bigint"}
    function = spec_of(job, tmp_path, **columns).function
    assert isinstance(function, CoGroupWindowFunction)
    assert function.columns == ("id bigint, at timestamp", "t timestamp, other bigint")
    with pytest.raises(JobDefinitionError, match="found the late output 'late' of operator 'pairs'"):
        spec_of(job, tmp_path, **{**columns, "two": "other bigint, t timestamp"})


def test_only_windows_without_an_end_take_streams_without_event_time() -> None:
    job = Job()
    timed, timeless = job.source("timed", read, event_time="at").key_by("k"), job.source("timeless", read).key_by("k")
    with pytest.raises(JobDefinitionError, match="source 'timeless' without event time in a join or co-group over win"):
        timed.co_group(timeless).window(HOURS)
    counted = timed.co_group(timeless).window(GlobalWindows(), trigger=CountTrigger(3))
    counted.process(Sides(), output="n int", uid="counted")
    assert job.fires_timers


def test_a_window_join_that_cannot_be_is_refused() -> None:
    job: Any = Job()
    timed = job.source("timed", read, event_time="at").key_by("k")
    join, co_group = timed.join(timed).window(HOURS), timed.co_group(timed).window(HOURS)
    hour = timedelta(hours=1)
    for attempt, found in (
        (lambda: timed.join(job.source("plain", read, event_time="at")), "call key_by"),
        (lambda: timed.co_group(timed).window(hour).process(Sides(), "n int", "x"), "operator 'x': .* window assigner"),
        (
            lambda: timed.join(timed).window(HOURS, allowed_lateness=-hour).process(WindowPairs(), "n int", "x"),
            "operator 'x': found an allowed lateness of -1 day",
        ),
        (
            lambda: join.process(Sides(), "n int", "x"),
            "operator 'x': found .*Sides.* expected a JoinFunction; subclass",
        ),
        (lambda: co_group.process(Pairs(), "n int", "x"), "operator 'x': found .*Pairs.* expected a CoGroupFunction;"),
        (lambda: co_group.process(Sides(), "n int", "x", left_late="late"), "operator 'x': found 'late' as the late"),
    ):
        with pytest.raises(JobDefinitionError, match=found):
            attempt()


@pytest.mark.parametrize("renames", [{"old": "other"}, {"k": "k"}])
def test_a_rename_of_a_key_column_that_does_not_fit_is_refused(renames: dict[str, str]) -> None:
    with pytest.raises(JobDefinitionError, match=r"found renames=.* for the key columns \('k',\); expected"):
        Job().source("one", read).key_by("k", renames=renames)
