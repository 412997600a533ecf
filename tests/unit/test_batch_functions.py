"""A function over batches leaves what one over records leaves: state, outputs and errors, however rows are cut."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BatchProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
    key_group_for,
    subtask_for_key_group,
)
from statecore.errors import ConfigurationError, NoCurrentKeyError, StateError, StateTypeError
from statecore.model import StateDescriptor, canonical_key, parse_type
from statecore.model.arrow_values import to_arrow
from statecore.state import batch_adds
from statecore.testing import BatchOperatorHarness, KeyedOperatorHarness, physical
from tests.support.examples import examples

GROUPS = 16
Row = namedtuple("Row", ["k", "n"])
TTL = StateTtlConfig(timedelta(milliseconds=100))


def concatenated(a: Any, b: Any) -> Any:
    return a + b


class Mean(AggregateFunction):
    """Sum and count, value by value."""

    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class MeanOfColumns(Mean):
    """The same over columns; where the sum would not fit, value by value."""

    def add_batch(self, values: Any, accumulators: Any, index: Any) -> Any:
        sums, counts = (accumulators.field(name).to_numpy().copy() for name in ("sum", "count"))
        if max(map(abs, [*values.to_pylist(), *sums.tolist()])) > 2**40:
            return None
        np.add.at(sums, index.to_numpy(), values.to_numpy())
        np.add.at(counts, index.to_numpy(), 1)
        return pa.StructArray.from_arrays([pa.array(sums), pa.array(counts)], names=["sum", "count"])


class Records(KeyedProcessFunction):
    def __init__(self, descriptor: StateDescriptor) -> None:
        self.descriptor = descriptor

    def open(self, ctx: Any) -> None:
        aggregating = isinstance(self.descriptor, AggregatingStateDescriptor)
        self.state = (ctx.get_aggregating_state if aggregating else ctx.get_reducing_state)(self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.state.add(value.n)
        yield *ctx.get_current_key(), self.state.get()


class Batches(BatchProcessFunction):
    def __init__(self, descriptor: StateDescriptor) -> None:
        self.descriptor = descriptor

    def open(self, ctx: Any) -> None:
        aggregating = isinstance(self.descriptor, AggregatingStateDescriptor)
        self.state = (ctx.get_aggregating_state if aggregating else ctx.get_reducing_state)(self.descriptor)

    def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.keys().append_column("state", self.state.add_batch(batch["n"]))


def reducing(ddl: str, reduce: Callable[[Any, Any], Any], ttl: Any = None) -> ReducingStateDescriptor:
    return ReducingStateDescriptor("state", ddl, reduce=reduce, ttl=ttl)


def aggregating(function: AggregateFunction, ttl: Any = None) -> AggregatingStateDescriptor:
    return AggregatingStateDescriptor("state", "struct<sum:bigint,count:bigint>", aggregate=function, ttl=ttl)


def near(bound: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(-9, 9), st.sampled_from([bound - 1, -bound, bound // 2, -(bound // 2) - 1]))


DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 1e308, -1e308]), st.floats())
KINDS: list[tuple[StateDescriptor, str, st.SearchStrategy[Any]]] = [
    *((reducing("bigint", f, ttl), "bigint", near(2**63)) for f in (operator.add, min, max) for ttl in (None, TTL)),
    *((reducing("int", f), "bigint", near(2**31)) for f in (operator.add, min)),
    *((reducing("double", f), "double", DOUBLES) for f in (operator.add, min, max)),
    (reducing("double", operator.add, TTL), "double", DOUBLES),
    (reducing("float", operator.add), "double", st.floats(width=32)),
    (reducing("double", operator.add), "bigint", near(2**63)),
    (reducing("bigint", concatenated), "bigint", near(2**63)),
    (reducing("string", max), "string", st.text(max_size=2)),
    (reducing("array<bigint>", concatenated), "array<bigint>", st.lists(st.integers(0, 9), max_size=2)),
    (reducing("decimal(6,2)", operator.add), "decimal(6,2)", st.decimals(-9999, 9999, places=2)),
    *((aggregating(f, ttl), "bigint", near(2**63)) for f in (Mean(), MeanOfColumns()) for ttl in (None, TTL)),
]
KEYS: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("string", st.sampled_from(["a", "b", "c", "ü", None])),
    ("bigint", st.sampled_from([0, 1, 2**62, -5, None])),
    ("double", st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5, None])),
    ("decimal(5,1)", st.sampled_from([Decimal("1.0"), Decimal("-2.5"), None])),
    ("timestamp", st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)])),
    ("struct<a:int,b:string>", st.sampled_from([(1, "x"), (1, None), (2, "x")])),
    ("array<double>", st.sampled_from([[0.0], [-0.0], [math.nan], []])),
]


@dataclass
class Side:
    """The subtasks of one function, and all that came out of them per key."""

    make: Callable[..., Any]
    key_type: str
    subtasks: list[Any] = field(default_factory=list)
    newest: dict[str, str] = field(default_factory=dict)

    def start(self, parallelism: int, now_ms: int) -> None:
        taken = [subtask.snapshot() for subtask in self.subtasks]
        self.subtasks = [
            self.make(max_parallelism=GROUPS, parallelism=parallelism, subtask=i, restore_from=taken)
            for i in range(parallelism)
        ]
        self.at(now_ms)

    def at(self, now_ms: int) -> None:
        for subtask in self.subtasks:
            subtask.set_processing_time(now_ms)

    def push(self, rows: list[Row], value_type: str) -> None:
        """Push rows; each subtask gets its own."""
        for index, subtask in enumerate(self.subtasks):
            own = [row for row in rows if self._owner(row) == index]
            if isinstance(subtask, BatchOperatorHarness):
                columns = zip(*own, strict=True) if own else ([], [])
                types = [parse_type(self.key_type).arrow(), parse_type(value_type).arrow()]
                arrays = list(map(to_arrow, columns, types))
                subtask.process_batch(pa.RecordBatch.from_arrays(arrays, names=["k", "n"]))
            else:
                for row in own:
                    subtask.process(row)
            for *key, value in subtask.output:
                self.newest[repr(canonical_key(tuple(key), [self.key_type]))] = repr(value)

    def stored(self) -> Counter[str]:
        return Counter(
            repr(item) for subtask in self.subtasks for item in physical(subtask.keyed_backend, "state").items()
        )

    def _owner(self, row: Row) -> int:
        group = key_group_for((row.k,), [self.key_type], GROUPS)
        return subtask_for_key_group(GROUPS, len(self.subtasks), group)


@examples(400)
@given(st.data())
def test_batches_leave_what_records_leave(data: st.DataObject) -> None:
    descriptor, value_type, values = data.draw(st.sampled_from(KINDS))
    key_type, keys = data.draw(st.sampled_from(KEYS))
    nulls = st.none() if data.draw(st.booleans()) else values
    records = Side(lambda **where: KeyedOperatorHarness(Records(descriptor), key_types=[key_type], **where), key_type)
    batches = Side(lambda **where: BatchOperatorHarness(Batches(descriptor), key_types=[key_type], **where), key_type)
    now_ms = 0
    for _ in range(data.draw(st.integers(1, 4))):
        parallelism = data.draw(st.integers(1, 3))
        records.start(parallelism, now_ms)
        batches.start(parallelism, now_ms)
        for _ in range(data.draw(st.integers(1, 3))):
            row = st.builds(Row, keys, st.one_of(values, values, nulls))
            rows = data.draw(st.lists(row, max_size=12))
            refused = _refused(lambda: records.push(rows, value_type))  # noqa: B023 - called at once
            assert _refused(lambda: batches.push(rows, value_type)) == refused  # noqa: B023
            if refused:
                return
            assert batches.stored() == records.stored()
            now_ms += data.draw(st.sampled_from([0, 60, 100]))
            records.at(now_ms)
            batches.at(now_ms)
    assert batches.newest == records.newest


@pytest.mark.parametrize("value_type", ["int", "bigint", "double"])
@pytest.mark.parametrize("reduce", [operator.add, min, max])
def test_a_column_that_numpy_can_fold_is_never_added_row_by_row(
    reduce: Callable[..., Any], value_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_adds, "_add_by_row", lambda *_: pytest.fail("rows were added one by one"))
    harness = BatchOperatorHarness(Batches(reducing(value_type, reduce)))
    as_value = float if value_type == "double" else int
    for numbers in ([3, 1], [2]):
        harness.process_batch(batch(*(("a", as_value(n)) for n in numbers)))
    assert physical(harness.keyed_backend, "state") == {("a",): functools.reduce(reduce, [3, 1, 2])}


ODD = [0.0, -0.0, math.nan, math.inf, 1.0]


@pytest.mark.parametrize("reduce", [operator.add, min, max])
def test_doubles_with_two_zeros_and_none_at_all_are_folded_as_python_folds_them(reduce: Callable[..., Any]) -> None:
    sequences = [list(sequence) for length in (1, 2, 3) for sequence in product(ODD, repeat=length)]
    rows = [(str(sequence), n) for place in range(3) for sequence in sequences for n in sequence[place : place + 1]]
    for cut in (0, len(sequences)):
        harness = BatchOperatorHarness(Batches(reducing("double", reduce)))
        harness.process_batch(batch(*rows[:cut]))
        harness.process_batch(batch(*rows[cut:]))
        found = {key: repr(value) for (key,), value in physical(harness.keyed_backend, "state").items()}
        assert found == {str(sequence): repr(functools.reduce(reduce, sequence)) for sequence in sequences}


def _refused(push: Callable[[], None]) -> bool:
    try:
        push()
    except StateTypeError:
        return True
    return False


TOTAL = reducing("bigint", operator.add)
BIG = OutputTag("big", "k string, n bigint")


def batch(*rows: tuple[Any, float]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([k for k, _ in rows]), pa.array([n for _, n in rows])], ["k", "n"])


class Function(BatchProcessFunction):
    """Does what it is told."""

    def __init__(self, process: Callable[..., Any], descriptor: StateDescriptor = TOTAL) -> None:
        self.process, self.descriptor = process, descriptor

    def open(self, ctx: Any) -> None:
        aggregating = isinstance(self.descriptor, AggregatingStateDescriptor)
        self.state = (ctx.get_aggregating_state if aggregating else ctx.get_reducing_state)(self.descriptor)
        self.value = ctx.get_state(ValueStateDescriptor("value", "bigint"))

    def process_batch(self, batch: Any, ctx: Any) -> Any:
        return self.process(self, batch, ctx)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield *ctx.get_current_key(), self.state.get(), timestamp_ms, str(ctx.time_domain())


def run(process: Callable[..., Any], *rows: tuple[Any, int], **options: Any) -> BatchOperatorHarness:
    harness = BatchOperatorHarness(Function(process), **options)
    harness.process_batch(batch(*rows))
    return harness


def test_a_program_goes_from_records_to_batches_and_back_with_its_state() -> None:
    first = KeyedOperatorHarness(Records(TOTAL))
    first.process(Row("a", 1))
    second = BatchOperatorHarness(Batches(TOTAL), restore_from=first.snapshot())
    second.process_batch(batch(("a", 2), ("b", 5), ("a", 3)))
    assert sorted(second.output) == [("a", 6), ("b", 5)]
    third = KeyedOperatorHarness(Records(TOTAL), restore_from=second.snapshot())
    third.process(Row("a", 4))
    assert third.output == [("a", 10)]


def test_keys_of_several_columns_are_told_apart_and_returned_under_their_names() -> None:
    def counted(self: Function, rows: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.keys().append_column("total", self.state.add_batch(rows["n"]))

    harness = BatchOperatorHarness(Function(counted), key=("n", "k", "m"))
    columns = {"k": ["a", "b", "a", "a", None], "m": [True, True, False, True, None], "n": [1, 1, 1, 1, 2]}
    harness.process_batch(pa.RecordBatch.from_pydict(columns))
    found = Counter(harness.output)
    assert found == Counter([(1, "a", True, 2), (1, "b", True, 1), (1, "a", False, 1), (2, None, None, 2)])
    assert harness.output[0]._fields == ("n", "k", "m", "total")


def test_each_key_scopes_state_and_timers_to_one_key_after_the_other() -> None:
    def remind(self: Function, rows: Any, ctx: Any) -> None:
        self.state.add_batch(rows["n"])
        for (key,) in ctx.each_key():
            self.value.update(len(key))
            ctx.timer_service().register_event_time_timer(1_000)
            ctx.timer_service().register_processing_time_timer(50)
        with pytest.raises(NoCurrentKeyError, match="without a current key"):
            self.value.value()

    harness = run(remind, ("a", 1), ("bb", 2), ("a", 3))
    assert physical(harness.keyed_backend, "value") == {("a",): 1, ("bb",): 2}
    harness.watermark(1_000)
    harness.set_processing_time(50)
    expected = [
        (k, n, at, what)
        for k, n in [("a", 4), ("bb", 2)]
        for at, what in [(50, "processing_time"), (1_000, "event_time")]
    ]
    assert sorted(harness.output) == expected


def test_event_times_are_those_of_the_rows_and_the_newest_of_all() -> None:
    seen: list[Any] = []

    def look(self: Function, rows: Any, ctx: Any) -> None:
        times = ctx.timestamps()
        seen.append((None if times is None else times.to_pylist(), ctx.timestamp(), ctx.current_watermark()))

    harness = run(look, ("a", 1))
    harness.watermark(7)
    harness.process_batch(batch(("a", 1), ("b", 2), ("c", 3)), timestamps_ms=[5, None, 4])
    harness.process_batch(batch(("a", 1)), timestamps_ms=[None])
    assert seen == [(None, None, -(2**63)), ([5, None, 4], 5, 7), ([None], None, 7)]


def test_late_rows_go_to_their_side_output_and_leave_no_key_behind() -> None:
    harness = BatchOperatorHarness(Batches(TOTAL), late=BIG)
    harness.watermark(10)
    harness.process_batch(batch(("a", 1), ("b", 2), ("a", 3), ("c", 4)), timestamps_ms=[11, 10, 9, None])
    harness.process_batch(batch(("a", 5)), timestamps_ms=[10])
    assert sorted(harness.output) == [("a", 1), ("c", 4)]
    assert harness.side_output(BIG) == [("b", 2), ("a", 3), ("a", 5)]
    assert physical(harness.keyed_backend, "state") == {("a",): 1, ("c",): 4}


def test_rows_go_to_side_outputs_as_columns() -> None:
    def split(self: Function, rows: Any, ctx: Any) -> None:
        ctx.output(BIG, rows.filter(pa.array([n > 9 for n in rows["n"].to_pylist()])))

    harness = run(split, ("a", 1), ("b", 10), ("c", 11))
    assert harness.side_output(BIG) == [("b", 10), ("c", 11)]
    assert harness.output == []


def test_a_function_without_keys_gets_batches_too() -> None:
    class Doubled(BatchProcessFunction):
        def process_batch(self, rows: Any, ctx: Any) -> Any:
            with pytest.raises(NoCurrentKeyError, match="key the stream"):
                ctx.keys()
            return [pa.RecordBatch.from_arrays([pa.array([2 * n for n in rows["n"].to_pylist()])], ["n"])]

    harness = BatchOperatorHarness(Doubled(), key=())
    harness.process_batch(batch(("a", 1), ("b", 2)))
    assert harness.output == [(2,), (4,)]


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (lambda self, rows, ctx: self.state.add_batch([1, 2]), "found list in add_batch; expected an Arrow array"),
        (lambda self, rows, ctx: self.state.add_batch(pa.array([1])), "found 1 values .* one for each of the 2 rows"),
        (lambda self, rows, ctx: [("a", 1)], "found 'a' emitted by process_batch; expected a pyarrow"),
        (lambda self, rows, ctx: [pa.table({"k": ["a"]})], "emitted by process_batch; .* a table's to_batches"),
        (lambda self, rows, ctx: [(rows, pa.array([1]))], "found 1 timestamps for 2 rows"),
        (lambda self, rows, ctx: rows, "returned by process_batch; expected an iterable of outputs"),
        (lambda self, rows, ctx: ctx.output("big", rows), "expected an OutputTag"),
        (lambda self, rows, ctx: self.state.add_batch(pa.array(["x", "y"])), "found 'x' for state 'state' under key"),
        (lambda self, rows, ctx: self.state.add_batch(pa.array([2**63 - 1, 1])), "found 9223372036854775808 for state"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(process: Callable[..., Any], message: str) -> None:
    with pytest.raises(StateError, match=message):
        run(process, ("a", 1), ("a", 2))


@pytest.mark.parametrize(("reduce", "value"), [(min, 2**31), (max, -(2**31) - 1)])
def test_a_value_beyond_the_type_is_refused_though_another_one_wins(reduce: Callable[..., Any], value: int) -> None:
    harness = BatchOperatorHarness(Batches(reducing("int", reduce)))
    with pytest.raises(StateTypeError, match=f"found {value} for state 'state'"):
        harness.process_batch(batch(("a", value), ("a", 0)))


def test_a_column_is_added_in_process_batch_alone() -> None:
    kept: list[Any] = []

    harness = run(lambda self, rows, ctx: kept.append(self.state), ("a", 1))
    with pytest.raises(StateError, match=r"found add_batch\(\) on state 'state' while no batch is processed"):
        kept[0].add_batch(pa.array([1]))
    assert physical(harness.keyed_backend, "state") == {}


def test_a_key_of_another_subtask_is_refused() -> None:
    with pytest.raises(StateError, match="expected a key group of this subtask"):
        run(lambda self, rows, ctx: None, *((f"k{n}", n) for n in range(20)), parallelism=2)


def test_a_single_record_for_a_function_over_batches_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"found a single record for Batches; .* use BatchOperat"):
        KeyedOperatorHarness(Batches(TOTAL)).process(Row("a", 1))


@pytest.mark.parametrize(
    "folded",
    [pa.array([1, 2, 3]), pa.array([1, 2]), pa.nulls(1, pa.struct([("other", pa.int64())])), [(1, 1), (1, 1)]],
    ids=["too many", "another type", "other fields", "too many tuples"],
)
def test_accumulators_of_another_number_or_type_are_refused(folded: Any) -> None:
    class Wrong(Mean):
        def add_batch(self, values: Any, accumulators: Any, index: Any) -> Any:
            return folded

    harness = BatchOperatorHarness(Batches(aggregating(Wrong())))
    with pytest.raises(StateTypeError, match="expected 2 accumulators of type struct<sum: int64, count: int64>"):
        harness.process_batch(batch(("a", 1), ("b", 2)))
    assert physical(harness.keyed_backend, "state") == {}


def test_a_null_accumulator_clears_its_key() -> None:
    class Cleared(Mean):
        def add_batch(self, values: Any, accumulators: Any, index: Any) -> Any:
            return pa.array([None if row["sum"] else row for row in accumulators.to_pylist()], accumulators.type)

    first = KeyedOperatorHarness(Records(aggregating(Mean())))
    first.process(Row("a", 1))
    second = BatchOperatorHarness(Batches(aggregating(Cleared())), restore_from=first.snapshot())
    second.process_batch(batch(("a", 1), ("b", 2)))
    assert sorted(second.output) == [("a", None), ("b", (0, 0))]
    assert physical(second.keyed_backend, "state") == {("b",): (0, 0)}


def test_an_incremental_clean_up_takes_each_key_of_a_batch_for_one_access() -> None:
    ttl = StateTtlConfig(timedelta(milliseconds=100), cleanup_incremental=(1, False))
    first = BatchOperatorHarness(Batches(reducing("bigint", operator.add, ttl)))
    first.process_batch(batch(*((f"k{n}", n) for n in range(10))))
    first.set_processing_time(100)
    first.process_batch(batch(*((f"new{n}", n) for n in range(10))))
    assert {key[0][:3] for key in physical(first.keyed_backend, "state")} == {"new"}
