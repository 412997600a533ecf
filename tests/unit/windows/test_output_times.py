"""Outputs of windows have the window's time, whatever makes it fire."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from statecore import (
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    HeapKeyedStateBackend,
    OperatorStateBackend,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    TumblingEventTimeWindows,
    WindowFunction,
    key_group_for,
    key_group_range,
)
from statecore.state import ProcessOperator
from statecore.testing import ManualClock
from tests.support.timed_outputs import TimedOutputs

Row = namedtuple("Row", "k n")
SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
TUMBLING = TumblingEventTimeWindows(timedelta(milliseconds=10))


class Totals(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield from ((total,) for total in elements)


@pytest.mark.parametrize(
    ("windows", "trigger", "fired"),
    [
        (TUMBLING, EventTimeTrigger(), [(1, 9), (3, 9)]),
        (TUMBLING, CountTrigger(1), [(1, 9), (3, 9)]),
        (TUMBLING, ContinuousProcessingTimeTrigger(timedelta(milliseconds=5)), [(1, 9), (3, 9)]),
        (EventTimeSessionWindows(timedelta(milliseconds=10)), EventTimeTrigger(), [(1, 13), (3, 14)]),
    ],
    ids=["late", "on count", "by the clock", "a session that grew"],
)
def test_every_firing_has_the_last_millisecond_of_its_window(
    windows: Any, trigger: Any, fired: list[tuple[int, int]]
) -> None:
    clock, outputs = ManualClock(), TimedOutputs()
    backend = HeapKeyedStateBackend(128, key_group_range(128, 1, 0), clock)
    function = WindowFunction(
        windows, SUM, value=lambda row: row.n, trigger=trigger, allowed_lateness=timedelta(milliseconds=50),
        process=Totals(),
    )  # fmt: skip
    operator = ProcessOperator(
        function, backend, OperatorStateBackend(), outputs, clock=clock, subtask=0, parallelism=1
    )
    operator.open(restored=False)
    group = key_group_for(("a",), ["string"], 128)
    operator.process([(("a",), group, Row("a", 1), 4)])
    clock.set(6)
    operator.fire_processing_time()
    operator.advance_watermark(20)
    operator.process([(("a",), group, Row("a", 2), 5)])
    clock.set(12)
    operator.fire_processing_time()
    assert sorted(set(map(tuple, outputs.main))) == fired
