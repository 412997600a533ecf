"""Session windows do what Flink's window operator did with the same script, also across a change of parallelism."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest

from statecore import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    ListStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    WindowFunction,
)
from statecore.windows import ContentsDescriptor, WindowContext
from tests.support.paths import GOLDEN
from tests.support.subtasks import Subtasks

SCRIPTS = [json.loads(line) for line in (GOLDEN / "session_windows.jsonl").read_text().splitlines()]
MS = timedelta(milliseconds=1)
LATE = OutputTag("late", "k string, value bigint, gap bigint")
Element = namedtuple("Element", ["k", "value", "gap"])
CONTENTS: dict[str, ContentsDescriptor] = {
    "sum": ReducingStateDescriptor("contents", "bigint", reduce=lambda a, b: a + b),
    "list": ListStateDescriptor("contents", "bigint"),
}


class Bounds(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        yield *key, *context.window, sorted(elements)


def started(script: dict[str, Any]) -> Subtasks:
    gap = script.get("gap_ms")

    def function() -> WindowFunction:
        return WindowFunction(
            EventTimeSessionWindows(gap * MS) if gap else DynamicEventTimeSessionWindows(lambda element: element.gap),
            CONTENTS[script["contents"]],
            process=Bounds(),
            value=lambda element: element.value,
            allowed_lateness=script["allowed_lateness_ms"] * MS,
            late_output=LATE,
        )

    return Subtasks(function)


def expected_firings(step: dict[str, Any]) -> list[Any]:
    firings = step.get("out", [])
    return [(*bounds, sorted(contents) if isinstance(contents, list) else [contents]) for *bounds, contents in firings]


def live(subtasks: Subtasks) -> list[list[Any]]:
    sessions = subtasks.physical("__sessions").items()
    return sorted([k, session.start, session.end] for (k,), held in sessions for session in held)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script['id']}-{script['tag']}")
def test_sessions_are_flinks(script: dict[str, Any]) -> None:
    subtasks, parallelisms = started(script), cycle((3, 2, 1))
    for step in script["steps"]:
        if step["op"] == "element":
            subtasks.process(Element(step["key"], step["value"], step.get("gap", 0)), step["ts"])
        elif step["op"] == "watermark":
            subtasks.watermark(step["ts"])
        else:
            subtasks.rescale(next(parallelisms))
        fired = subtasks.output()
        assert sorted(fired) == sorted(expected_firings(step)), step
        for key in {output[0] for output in fired}:
            ends = [end for k, _, end, _ in fired if k == key]
            assert ends == sorted(ends), step
        assert [element.value for element in subtasks.side_output(LATE)] == step.get("late", []), step
        if step["op"] != "element":
            assert live(subtasks) == step.get("live", []), step
            kept = {(k, *namespace) for (k,), namespace in subtasks.physical("contents")}
            assert len(kept) == len(live(subtasks)), step
