"""Functions on two connected streams."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest

from statecore import CoProcessFunction, KeyedCoProcessFunction, OutputTag, ValueStateDescriptor
from statecore.errors import ConfigurationError, StateError
from statecore.testing import KeyedOperatorHarness, TwoInputOperatorHarness

Order = namedtuple("Order", "id amount")
Payment = namedtuple("Payment", "order_id paid")
BAD = OutputTag("bad", "error string, key string, record string")
OPEN = OutputTag("open", "id bigint, amount bigint")


class Match(KeyedCoProcessFunction):
    """Matches a payment with its order; an order that is not paid within 10 ms goes to the side output."""

    def open(self, ctx: Any) -> None:
        self.order = ctx.get_state(ValueStateDescriptor("order", "bigint"))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.order.update(value.amount)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key()[0], self.order.value(), value.paid
        self.order.clear()
        if value.paid < 0:
            raise ValueError("refund")

    def on_timer(self, timestamp_ms: int, ctx: Any) -> None:
        if self.order.value() is not None:
            ctx.output(OPEN, (ctx.get_current_key()[0], self.order.value()))


class Names(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield "one", value

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield "two", value
        with pytest.raises(StateError, match="no key"):
            ctx.timer_service().register_event_time_timer(1)


def harness(**options: Any) -> TwoInputOperatorHarness:
    return TwoInputOperatorHarness(Match(), key=lambda v: (v.id,), key2=lambda v: (v.order_id,), **options)


def test_both_streams_share_state_and_timers() -> None:
    one = harness()
    one.process1(Order(1, 50), timestamp_ms=100)
    one.process1(Order(2, 70), timestamp_ms=101)
    one.process2(Payment(1, 50), timestamp_ms=105)
    one.watermark(111)
    assert one.output == [(1, 50, 50)]
    assert one.side_output(OPEN) == [(2, 70)]


def test_state_of_both_streams_is_redistributed_together() -> None:
    old = [harness(parallelism=2, subtask=subtask) for subtask in range(2)]
    for order in range(20):
        for each in old:
            try:
                each.process1(Order(order, order * 10), timestamp_ms=order)
            except StateError:
                continue
    new = [harness(parallelism=3, subtask=n, restore_from=[each.snapshot() for each in old]) for n in range(3)]
    for order in range(10):
        for each in new:
            try:
                each.process2(Payment(order, 1), timestamp_ms=order)
            except StateError:
                continue
    for each in new:
        each.watermark(1_000)
    assert sorted(output for each in new for output in each.output) == [(n, n * 10, 1) for n in range(10)]
    assert sorted(row for each in new for row in each.side_output(OPEN)) == [(n, n * 10) for n in range(10, 20)]


def test_a_record_of_the_second_stream_that_fails_leaves_nothing() -> None:
    one = harness(on_error=BAD)
    one.process1(Order(1, 50), timestamp_ms=100)
    one.process2(Payment(1, -5), timestamp_ms=101)
    assert one.output == []
    assert one.side_output(BAD) == [("ValueError: refund", "[1]", '{"order_id":1,"paid":-5}')]
    one.process2(Payment(1, 5), timestamp_ms=102)
    assert one.output == [(1, 50, 5)]


def test_streams_without_a_key_have_no_timers() -> None:
    one = TwoInputOperatorHarness(Names(), key=None)
    one.process1(1)
    one.process2(2)
    assert one.output == [("one", 1), ("two", 2)]


def test_a_function_of_two_streams_on_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected a KeyedProcessFunction"):
        KeyedOperatorHarness(Match())
    with pytest.raises(ConfigurationError, match="keyed stream connected to another; expected a KeyedCoProcessFunct"):
        TwoInputOperatorHarness(Names())
