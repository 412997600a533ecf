"""The life of a function: which of its methods are called, when, and with what."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest

from statecore import (
    CheckpointedFunction,
    HeapKeyedStateBackend,
    KeyedProcessFunction,
    KeyGroupRange,
    ListStateDescriptor,
    OperatorStateBackend,
    OutputTag,
    ValueStateDescriptor,
)
from statecore.errors import NoCurrentKeyError, StateError
from statecore.state import ProcessOperator

Row = namedtuple("Row", "k n")
LATE = OutputTag("late", "k string")


class _Clock:
    def now_ms(self) -> int:
        return 1_234


class Recorder(KeyedProcessFunction, CheckpointedFunction):
    """Notes every call; sums ``n`` per key, buffers keys in operator state."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.buffer: list[str] = []

    def initialize_state(self, context: Any) -> None:
        self.calls.append(("initialize_state", context.is_restored()))
        self.waiting = context.operator_state_store.get_list_state(ListStateDescriptor("waiting", "string"))
        self.last = context.keyed_state_store.get_state(ValueStateDescriptor("last", "bigint"))

    def open(self, ctx: Any) -> None:
        self.calls.append(("open", ctx.subtask, ctx.parallelism))
        self.total = ctx.get_state(ValueStateDescriptor("total", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.calls.append(("process", value, ctx.get_current_key(), ctx.current_processing_time()))
        self.total.update((self.total.value() or 0) + value.n)
        self.last.update(value.n)
        self.buffer.append(value.k)
        if value.n < 0:
            ctx.output(LATE, (value.k,))
        yield (value.k, self.total.value())

    def snapshot_state(self, context: Any) -> None:
        self.calls.append(("snapshot_state", context.epoch))
        self.waiting.update(self.buffer)

    def close(self) -> None:
        self.calls.append("close")


class Bench:
    def __init__(self, function: KeyedProcessFunction) -> None:
        self.emitted: list[tuple[str, Any]] = []
        self.keyed = HeapKeyedStateBackend(128, KeyGroupRange(0, 127), _Clock())
        self.operator = OperatorStateBackend()
        self.process = ProcessOperator(
            function, self.keyed, self.operator, lambda tag, value: self.emitted.append((tag, value)),
            subtask=2, parallelism=5,
        )  # fmt: skip


def records(*rows: tuple[str, int]) -> list[tuple[tuple[str], int, Row]]:
    return [((k,), 3, Row(k, n)) for k, n in rows]


def test_state_is_initialised_then_opened_then_records_come_in_order_then_it_is_snapshot() -> None:
    function = Recorder()
    bench = Bench(function)
    bench.process.open(restored=False)
    bench.process.process(records(("a", 1), ("b", 2)))
    bench.process.snapshot(9)
    bench.process.close()

    assert function.calls == [
        ("initialize_state", False),
        ("open", 2, 5),
        ("process", Row("a", 1), ("a",), 1_234),
        ("process", Row("b", 2), ("b",), 1_234),
        ("snapshot_state", 9),
        "close",
    ]
    assert bench.operator.snapshot()["waiting"].elements == ("a", "b")


@pytest.mark.parametrize("restored", [True, False])
def test_a_function_is_told_whether_it_is_restored(restored: bool) -> None:
    function = Recorder()
    Bench(function).process.open(restored=restored)
    assert function.calls[0] == ("initialize_state", restored)


def test_outputs_go_to_the_main_output_and_side_outputs_to_their_tag_in_order() -> None:
    bench = Bench(Recorder())
    bench.process.open(restored=False)
    bench.process.process(records(("a", 1), ("a", -3), ("b", 5)))
    assert bench.emitted == [("", ("a", 1)), ("late", ("a",)), ("", ("a", -2)), ("", ("b", 5))]


class Silent(KeyedProcessFunction):
    """Returns None instead of a generator and has no operator state."""

    def process_element(self, value: Any, ctx: Any) -> None:
        return None


def test_a_function_may_return_nothing_and_needs_neither_open_nor_operator_state() -> None:
    bench = Bench(Silent())
    bench.process.open(restored=True)
    bench.process.process(records(("a", 1)))
    bench.process.snapshot(1)
    bench.process.close()
    assert bench.emitted == []


def test_keyed_state_is_out_of_reach_before_and_after_the_records() -> None:
    function = Recorder()
    bench = Bench(function)
    bench.process.open(restored=False)
    with pytest.raises(NoCurrentKeyError):
        function.total.value()
    bench.process.process(records(("a", 1)))
    with pytest.raises(NoCurrentKeyError):
        function.last.value()


class Failing(Recorder):
    """Fails at the second record, in the way it was told."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value.n == 2:
            raise self.error
        yield from super().process_element(value, ctx)


def test_an_error_of_this_library_names_the_record_and_anything_else_passes_as_it_is() -> None:
    for error in (StateError("found x; expected y; do z"), ZeroDivisionError("mine")):
        bench = Bench(Failing(error))
        bench.process.open(restored=False)
        with pytest.raises(type(error)) as raised:
            bench.process.process(records(("a", 1), ("a", 2), ("a", 3)))
        assert raised.value is error
        expected = ["while processing Row(k='a', n=2)"] if isinstance(error, StateError) else []
        assert getattr(error, "__notes__", []) == expected
        assert bench.emitted == [("", ("a", 1))]


def test_closing_after_a_failure_is_the_callers_to_do() -> None:
    function = Failing(ZeroDivisionError())
    bench = Bench(function)
    bench.process.open(restored=False)
    with pytest.raises(ZeroDivisionError):
        bench.process.process(records(("a", 2)))
    assert "close" not in function.calls
    bench.process.close()
    assert function.calls[-1] == "close"
