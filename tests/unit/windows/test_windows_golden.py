"""Windows do what Flink's window operator did with the same script, also across a change of parallelism."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest

from statecore import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ListStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowFunction,
)
from statecore.state.tables import GLOBAL_WINDOW
from statecore.windows import ContentsDescriptor, Trigger, WindowContext
from tests.support.paths import GOLDEN
from tests.support.subtasks import Subtasks

Script = dict[str, Any]
MS = timedelta(milliseconds=1)
LATE = OutputTag("late", "k string, value bigint, gap bigint")
Element = namedtuple("Element", ["k", "value", "gap"])
CONTENTS: dict[str, ContentsDescriptor] = {
    "sum": ReducingStateDescriptor("contents", "bigint", reduce=lambda a, b: a + b),
    "list": ListStateDescriptor("contents", "bigint"),
}


def scripts(name: str) -> list[Script]:
    return [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines()]


def named(script: Script) -> str:
    return f"{script['id']}-{script['tag']}"


class Bounds(ProcessWindowFunction):
    def __init__(self, *, summed: bool = False) -> None:
        self.summed = summed

    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        bounds = () if context.window == GLOBAL_WINDOW else context.window
        yield *key, *bounds, [sum(elements)] if self.summed else sorted(elements)


def windows_of(script: Script) -> Any:
    windows = script["windows"]
    if windows["type"] == "tumbling":
        return TumblingEventTimeWindows(windows["size_ms"] * MS)
    if windows["type"] == "sliding":
        return SlidingEventTimeWindows(windows["size_ms"] * MS, windows["slide_ms"] * MS)
    return EventTimeSessionWindows(windows["gap_ms"] * MS)


def trigger_of(script: Script) -> Trigger:
    trigger = script["trigger"]
    made: Any = EventTimeTrigger()
    if trigger["type"] == "count":
        made = CountTrigger(trigger["count"])
    elif trigger["type"] == "continuous_event_time":
        made = ContinuousEventTimeTrigger(trigger["interval_ms"] * MS)
    return PurgingTrigger(made) if trigger["purging"] else made


def expected(firings: list[Any]) -> list[Any]:
    return sorted(
        (*bounds, sorted(contents) if isinstance(contents, list) else [contents]) for *bounds, contents in firings
    )


def live(subtasks: Subtasks) -> list[list[Any]]:
    sessions = subtasks.physical("__sessions")
    if sessions:
        return sorted([k, session.start, session.end] for (k,), held in sessions.items() for session in held)
    return sorted([k, *window] for (k,), window in subtasks.physical("contents"))


def play(script: Script, subtasks: Subtasks) -> None:
    parallelisms = cycle((3, 2, 1))
    for step in script["steps"]:
        if step["op"] == "element":
            subtasks.process(Element(step["key"], step["value"], step.get("gap", 0)), step["ts"])
        elif step["op"] == "watermark":
            subtasks.watermark(step["ts"])
        elif step["op"] == "processing_time":
            subtasks.set_processing_time(step["ts"])
        else:
            subtasks.rescale(next(parallelisms))
        fired = subtasks.output()
        assert sorted(fired) == expected(step.get("out", [])), step
        assert [element.value for element in subtasks.side_output(LATE)] == step.get("late", []), step
        if step["op"] != "element" and "allowed_lateness_ms" in script:
            assert live(subtasks) == step.get("live", []), step


@pytest.mark.parametrize("script", scripts("session_windows"), ids=named)
def test_sessions(script: Script) -> None:
    gap = script.get("gap_ms")
    play(
        script,
        Subtasks(
            lambda: WindowFunction(
                EventTimeSessionWindows(gap * MS) if gap else DynamicEventTimeSessionWindows(lambda each: each.gap),
                CONTENTS[script["contents"]],
                process=Bounds(),
                value=lambda element: element.value,
                allowed_lateness=script["allowed_lateness_ms"] * MS,
                late_output=LATE,
            )
        ),
    )


# Ours fires once per epoch and at the end of a window; Flink's by its own timers, and never by the watermark.
TRIGGERS = [each for each in scripts("triggers") if each["trigger"]["type"] != "continuous_processing_time"]


@pytest.mark.parametrize("script", TRIGGERS, ids=named)
def test_triggers(script: Script) -> None:
    play(
        script,
        Subtasks(
            lambda: WindowFunction(
                windows_of(script),
                CONTENTS[script["contents"]],
                process=Bounds(),
                value=lambda element: element.value,
                allowed_lateness=script["allowed_lateness_ms"] * MS,
                late_output=LATE,
                trigger=trigger_of(script),
            )
        ),
    )


@pytest.mark.parametrize("script", scripts("count_windows"), ids=named)
def test_windows_of_a_number_of_records(script: Script) -> None:
    size, slide, contents = script["size"], script.get("slide"), script["contents"]
    play(
        script,
        Subtasks(
            lambda: WindowFunction(
                GlobalWindows(),
                # Elements leave a sliding window, so that it is a list in any case; in Flink, too.
                CONTENTS[contents if slide is None else "list"],
                process=Bounds(summed=contents == "sum"),
                value=lambda element: element.value,
                trigger=PurgingTrigger(CountTrigger(size)) if slide is None else CountTrigger(slide),
                evictor=None if slide is None else CountEvictor(size),
            )
        ),
    )
