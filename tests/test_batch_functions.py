"""A function over batches leaves what one over records leaves: state, outputs and errors, however rows are cut."""

from __future__ import annotations

import math
import operator
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BatchProcessFunction,
    KeyedProcessFunction,
    ReducingStateDescriptor,
    StateTtlConfig,
    key_group_for,
    subtask_for_key_group,
)
from statecore.errors import StateTypeError
from statecore.model import StateDescriptor, canonical_key, parse_type
from statecore.model.arrow_values import to_arrow
from statecore.testing import BatchOperatorHarness, KeyedOperatorHarness, physical

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


@settings(max_examples=400, deadline=None)
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


def _refused(push: Callable[[], None]) -> bool:
    try:
        push()
    except StateTypeError:
        return True
    return False
