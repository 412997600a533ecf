"""Two connected streams behave as Flink's operators did when they were recorded."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from statecore import CoProcessFunction, KeyedCoProcessFunction, OutputTag, TimeDomain, ValueStateDescriptor
from statecore.errors import StateError
from statecore.model import key_group_for, key_group_range
from statecore.model.watermarks import StreamTime, combined_watermark
from statecore.state import HeapKeyedStateBackend, OperatorStateBackend, ProcessOperator
from statecore.state.contexts import NO_WATERMARK
from statecore.state.process import TWO_INPUTS
from statecore.testing import ManualClock
from tests.support.golden import golden
from tests.support.timed_outputs import TimedOutputs

GROUPS = 128
SUM = ValueStateDescriptor("sum", "bigint")
SIDE = OutputTag("side", "input int, key string, number bigint")
Element = namedtuple("Element", "key command number")


class Commands(KeyedCoProcessFunction):
    """The recorded function; ``tests/golden/README.md`` describes it."""

    def open(self, ctx: Any) -> None:
        self.sum = ctx.get_state(SUM)

    def process_element1(self, value: Element, ctx: Any) -> Iterator[Any]:
        return self.obey(1, value, ctx)

    def process_element2(self, value: Element, ctx: Any) -> Iterator[Any]:
        return self.obey(2, value, ctx)

    def obey(self, number: int, value: Element, ctx: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        match value.command:
            case "add":
                self.sum.update((self.sum.value() or 0) + value.number)
            case "clear":
                self.sum.clear()
            case "side":
                ctx.output(SIDE, (number, value.key, value.number))
            case "event_timer":
                timers.register_event_time_timer(value.number)
            case "processing_timer":
                timers.register_processing_time_timer(value.number)
            case "delete_event_timer":
                timers.delete_event_time_timer(value.number)
            case "delete_processing_timer":
                timers.delete_processing_time_timer(value.number)
        yield self.told(f"element{number}", ctx.get_current_key()[0], self.sum.value(), ctx.timestamp(), ctx)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        is_event = ctx.time_domain() is TimeDomain.EVENT_TIME
        name, key = "event_timer" if is_event else "processing_timer", ctx.get_current_key()[0]
        found = self.sum.value()
        yield self.told(name, key, found, timestamp_ms, ctx)
        if found is not None and found >= 10:
            self.sum.update(found - 10)
            timers = ctx.timer_service()
            register = timers.register_event_time_timer if is_event else timers.register_processing_time_timer
            register(timestamp_ms + 5)

    @staticmethod
    def told(what: str, key: str, total: int | None, timestamp: int | None, ctx: Any) -> list[Any]:
        return [what, key, total, timestamp, ctx.current_watermark(), ctx.current_processing_time()]


class KeylessCommands(CoProcessFunction):
    def process_element1(self, value: Element, ctx: Any) -> Iterator[Any]:
        return self.obey(1, value, ctx)

    def process_element2(self, value: Element, ctx: Any) -> Iterator[Any]:
        return self.obey(2, value, ctx)

    def obey(self, number: int, value: Element, ctx: Any) -> Iterator[Any]:
        if value.command == "side":
            ctx.output(SIDE, (number, value.key, value.number))
        elif value.command != "read":
            ctx.timer_service().register_event_time_timer(value.number)
        yield Commands.told(f"element{number}", value.key, None, ctx.timestamp(), ctx)


class Replay:
    """One operator, and the watermarks of its two inputs."""

    def __init__(self, *, keyed: bool) -> None:
        self.keyed = keyed
        self.clock, self.outputs = ManualClock(), TimedOutputs()
        self.streams = {1: StreamTime(None), 2: StreamTime(None)}
        self.combined: int | None = None
        self.begin(None)

    def begin(self, state: Any) -> None:
        own = key_group_range(GROUPS, 1, 0)
        self.backend = HeapKeyedStateBackend(GROUPS, own, self.clock) if self.keyed else None
        if self.backend is not None and state is not None:
            self.backend.restore([state])
        self.operator = ProcessOperator(
            Commands() if self.keyed else KeylessCommands(), self.backend, OperatorStateBackend(), self.outputs,
            clock=self.clock, subtask=0, parallelism=1, two_inputs=True,
            watermark=NO_WATERMARK if self.combined is None else self.combined,
        )  # fmt: skip
        self.operator.open(restored=state is not None)

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        raises = False
        match step["op"]:
            case "element":
                key: tuple[Any, ...] = ()
                group = 0
                if self.keyed:
                    key, group = (step["key"],), key_group_for((step["key"],), ["string"], GROUPS)
                record = (key, group, Element(step["key"], step["command"], step["number"]), step["ts"])
                try:
                    self.operator.process([record], TWO_INPUTS[step["input"] - 1])
                except StateError:
                    raises = True
            case "watermark":
                before = self.streams[step["input"]].watermark_ms
                newest = step["ts"] if before is None else max(before, step["ts"])
                self.advance(step["input"], StreamTime(newest))
            case "idle" | "active":
                self.advance(step["input"], replace(self.streams[step["input"]], idle=step["op"] == "idle"))
            case "processing_time":
                self.clock.set(step["ts"])
                self.operator.fire_processing_time()
            case "restore":
                self.begin(None if self.backend is None else self.backend.snapshot())
        found = {"out": self.outputs.main, "side": self.outputs.side, "raises": raises}
        self.outputs.main, self.outputs.side = [], []
        return {name: value for name, value in found.items() if value}

    def advance(self, number: int, stream: StreamTime) -> None:
        self.streams[number] = stream
        before, self.combined = self.combined, combined_watermark(self.combined, list(self.streams.values()))
        if self.combined is not None and self.combined != before:
            self.operator.advance_watermark(self.combined)


def by_time(outputs: list[Any]) -> list[Any]:
    """Return the outputs of one step with timers of equal time in one order: Flink defines none."""
    return sorted(outputs, key=lambda row: (row[3], row[1], row[2] or 0))


@pytest.mark.parametrize("case", golden("co_process"), ids=lambda case: case["id"])
def test_two_connected_streams_give_what_flink_gave(case: dict[str, Any]) -> None:
    replay = Replay(keyed=case["keyed"])
    for step in case["steps"]:
        found = replay.step(step)
        assert by_time(found.get("out", [])) == by_time(step.get("out", [])), step
        assert (found.get("side"), found.get("raises")) == (step.get("side"), step.get("raises")), step
