"""A record that a function fails on leaves nothing but its dead letter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    AggregatingStateDescriptor,
    BatchProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ReducingStateDescriptor,
    StateTtlConfig,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WindowFunction,
    key_group_for,
)
from statecore.errors import ConfigurationError, JobDefinitionError
from statecore.model import UpdateType
from statecore.runtime import Job
from statecore.testing import BatchOperatorHarness, KeyedOperatorHarness, physical
from tests.unit.state.test_incremental_cleanup import Sum

BAD = OutputTag("bad", "error string, uid string, key string, epoch bigint, timestamp_ms bigint, record string")
SIDE = OutputTag("side", "n bigint")
TTL = StateTtlConfig(
    ttl=timedelta(milliseconds=40), update_type=UpdateType.ON_READ_AND_WRITE, cleanup_incremental=(2, True)
)


def plus(one: int, other: int) -> int:
    return one + other


class Record(NamedTuple):
    k: str
    steps: tuple[tuple[str, int], ...]
    fails: bool


class EveryState(KeyedProcessFunction):
    """Does to every kind of state what a record says, and then fails if it says so."""

    def open(self, ctx: Any) -> None:
        self.states: dict[str, Any] = {}
        for ttl in (None, TTL):
            suffix = "" if ttl is None else "_ttl"
            self.states |= {
                f"value{suffix}": ctx.get_state(ValueStateDescriptor(f"value{suffix}", "bigint", ttl=ttl)),
                f"list{suffix}": ctx.get_list_state(ListStateDescriptor(f"list{suffix}", "bigint", ttl=ttl)),
                f"map{suffix}": ctx.get_map_state(MapStateDescriptor(f"map{suffix}", "bigint", "bigint", ttl=ttl)),
                f"sum{suffix}": ctx.get_reducing_state(
                    ReducingStateDescriptor(f"sum{suffix}", "bigint", reduce=plus, ttl=ttl)
                ),
                f"agg{suffix}": ctx.get_aggregating_state(
                    AggregatingStateDescriptor(f"agg{suffix}", "bigint", aggregate=Sum(), ttl=ttl)
                ),
            }

    def process_element(self, value: Record, ctx: Any) -> Iterator[tuple[str, int]]:
        timers = ctx.timer_service()
        for step, n in value.steps:
            name, _, verb = step.partition(".")
            if name == "out":
                yield value.k, n
            elif name == "side":
                ctx.output(SIDE, n)
            elif name == "timer":
                getattr(timers, verb)(n)
            else:
                state = self.states[name]
                if verb == "update" and name.startswith("list"):
                    state.update([n, n + 1])
                elif verb in ("put", "remove", "get"):
                    getattr(state, verb)(*((n, n) if verb == "put" else (n,)))
                elif verb in ("clear", "read"):
                    _ = state.clear() if verb == "clear" else _read(state)
                else:
                    getattr(state, verb)(n)
        if value.fails:
            raise ZeroDivisionError("poison")

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[tuple[str, int]]:
        yield f"{ctx.time_domain()} of {ctx.get_current_key()[0]}", timestamp_ms


def _read(state: Any) -> list[Any]:
    if hasattr(state, "items"):
        return list(state.items())
    if hasattr(state, "value"):
        return [state.value()]
    found = state.get()
    return list(found) if isinstance(found, Iterator) else [found]


def _verbs() -> list[str]:
    of = {"value": ("update",), "list": ("add", "update"), "map": ("put", "remove", "get"), "sum": ("add",)}
    of["agg"] = of["sum"]
    states = [
        f"{name}{ttl}.{v}" for name, verbs in of.items() for ttl in ("", "_ttl") for v in (*verbs, "clear", "read")
    ]
    timers = [f"timer.{do}_{domain}_time_timer" for do in ("register", "delete") for domain in ("event", "processing")]
    return [*states, *timers, "out", "side"]


STEPS = st.lists(st.tuples(st.sampled_from(_verbs()), st.integers(0, 5)), max_size=8).map(tuple)
RECORDS = st.builds(Record, st.sampled_from("ab"), STEPS, st.booleans())
TIME = st.integers(1, 60)


@given(st.lists(st.one_of(RECORDS, TIME), max_size=25))
def test_state_timers_and_outputs_are_as_if_the_record_had_not_been_there(events: list[Record | int]) -> None:
    guarded = KeyedOperatorHarness(EveryState(), on_error=BAD, output="k string, n bigint")
    untouched = KeyedOperatorHarness(EveryState(), output="k string, n bigint")
    for event in events:
        for harness in (guarded, untouched):
            if isinstance(event, int):
                harness.watermark(event // 10)
                harness.set_processing_time(max(event, harness.clock.now_ms()))
            elif harness is guarded or not event.fails:
                harness.process(event, 1)
            else:
                # The clean-up of other keys goes on with every record, whatever becomes of it.
                harness.keyed_backend.set_current_key((event.k,), key_group_for((event.k,), ["string"], 128))

    failed = [event for event in events if isinstance(event, Record) and event.fails]
    assert [json.loads(row[5])["k"] for row in guarded.side_output(BAD)] == [each.k for each in failed]
    for harness in (guarded, untouched):
        harness.watermark(100)
        harness.set_processing_time(10_000_000)
    assert guarded.output == untouched.output
    assert guarded.side_output(SIDE) == untouched.side_output(SIDE)


@given(st.lists(RECORDS, max_size=25))
def test_stored_state_is_that_of_a_run_without_the_record(records: list[Record]) -> None:
    guarded, untouched = KeyedOperatorHarness(EveryState(), on_error=BAD), KeyedOperatorHarness(EveryState())
    for record in records:
        guarded.process(record, 1)
        if not record.fails:
            untouched.process(record, 1)

    for name in {*guarded.keyed_backend.tables, *untouched.keyed_backend.tables}:
        found, expected = physical(guarded.keyed_backend, name), physical(untouched.keyed_backend, name)
        # As text, because the order of a map's entries is part of it.
        assert repr(sorted(found.items())) == repr(sorted(expected.items())), name


@pytest.mark.parametrize("name", ["map", "map_ttl"])
def test_the_changelog_replaces_what_a_record_touched_whole(name: str) -> None:
    harness = KeyedOperatorHarness(EveryState(), on_error=BAD)
    harness.process(Record("a", ((f"{name}.put", 1), (f"{name}.put", 2)), fails=False))
    harness.keyed_backend.clear_changes()
    harness.process(Record("a", ((f"{name}.remove", 1), (f"{name}.put", 1)), fails=True))

    table = harness.keyed_backend.tables[name]
    assert [dict(scopes) for scopes in table.changed.values()] == [{("a",): None}]
    assert not any(table.changed_entries.values())
    assert list(physical(harness.keyed_backend, name)["a",]) == [1, 2]


def test_a_dead_letter_names_error_uid_key_epoch_time_and_record() -> None:
    class Typed(NamedTuple):
        k: str
        at: datetime
        price: Decimal
        tags: list[str]
        raw: bytes
        counts: dict[str, int]
        inner: Any

    class Inner(NamedTuple):
        n: int | None

    class Fails(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            raise ValueError("not a price")

    harness = KeyedOperatorHarness(Fails(), on_error=BAD)
    harness.snapshot()
    harness.process(Typed("ä", datetime(2026, 1, 2), Decimal("1.50"), ["x"], b"\x00", {"n": 1}, Inner(None)), 7)

    (row,) = harness.side_output(BAD)
    assert row[:5] == ("ValueError: not a price", "Fails", '["ä"]', 1, 7)
    assert json.loads(row[5]) == {
        "k": "ä",
        "at": "2026-01-02T00:00:00",
        "price": "1.50",
        "tags": ["x"],
        "raw": "AA==",
        "counts": [["n", 1]],
        "inner": {"n": None},
    }


def test_a_function_without_keys_has_dead_letters_without_key() -> None:
    class Halves(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[float]]:
            ctx.output(SIDE, value.n)
            yield (10 / value.n,)

    class N(NamedTuple):
        n: int

    harness = KeyedOperatorHarness(Halves(), key=None, on_error=OutputTag("bad", "record string, key string"))
    for n in (5, 0, 2):
        harness.process(N(n))

    assert harness.output == [(2.0,), (5.0,)]
    assert harness.side_output(SIDE) == [5, 2]
    assert harness.side_output(OutputTag("bad", "record string")) == [('{"n":0}', None)]


def test_windows_forget_a_record_that_they_fail_on() -> None:
    class Order(NamedTuple):
        k: str
        cents: int

    def cents(value: Any) -> int:
        return 100 // value.cents

    window = WindowFunction(
        TumblingEventTimeWindows(timedelta(seconds=1)),
        ReducingStateDescriptor("sum", "bigint", reduce=plus),
        value=cents,
    )
    harness = KeyedOperatorHarness(window, on_error=BAD)
    harness.process(Order("a", 100), 10)
    harness.process(Order("a", 0), 20)
    harness.process(Order("b", 0), 30)
    harness.watermark(2_000)

    assert [row[2] for row in harness.side_output(BAD)] == ['["a"]', '["b"]']
    assert len(harness.output) == 1


def test_a_timer_that_fails_is_no_record() -> None:
    class FailsLater(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            ctx.timer_service().register_event_time_timer(5)

        def on_timer(self, timestamp_ms: int, ctx: Any) -> None:
            raise ValueError("later")

    harness = KeyedOperatorHarness(FailsLater(), on_error=BAD)
    harness.process(Record("a", (), fails=False), 1)
    with pytest.raises(ValueError, match="later"):
        harness.watermark(10)
    assert harness.side_output(BAD) == []


def test_a_lack_of_memory_is_no_fault_of_the_record() -> None:
    class Large(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            raise MemoryError

    harness = KeyedOperatorHarness(Large(), on_error=BAD)
    with pytest.raises(MemoryError):
        harness.process(Record("a", (), fails=False))
    assert harness.side_output(BAD) == []


@pytest.mark.parametrize("columns", ["error int", "errors string", "error string, why string"])
def test_a_tag_with_other_columns_is_refused(columns: str) -> None:
    with pytest.raises(ConfigurationError, match="expected some of the columns error string, uid string"):
        KeyedOperatorHarness(EveryState(), on_error=OutputTag("bad", columns))


def test_what_is_no_tag_and_functions_over_batches_are_refused_by_harness_and_job_alike() -> None:
    class Batches(BatchProcessFunction):
        def process_batch(self, batch: Any, ctx: Any) -> None:
            return None

    numbers = Job().source("numbers", read=lambda spark: spark.readStream.parquet("in"))
    for on_error, function, why in (
        ("bad", EveryState(), "expected an OutputTag"),
        (BAD, Batches(), "expected a function over records"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            harness = BatchOperatorHarness if isinstance(function, Batches) else KeyedOperatorHarness
            harness(function, on_error=on_error)  # type: ignore[arg-type]
        with pytest.raises(JobDefinitionError, match=f"operator 'it': found on_error=.*{why}"):
            numbers.key_by("k").process(function, output="n bigint", uid="it", on_error=on_error)  # type: ignore[arg-type]
