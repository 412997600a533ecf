"""Interval joins behave as Flink's did when they were recorded."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from statecore import OutputTag
from statecore.joins import Interval, IntervalJoinFunction, JoinContext, ProcessJoinFunction
from statecore.model.watermarks import StreamTime, combined_watermark
from statecore.testing import HarnessSnapshot, TwoInputOperatorHarness, physical
from tests.support.golden import golden

Element = namedtuple("Element", "k value")
COLUMNS = "k string, value bigint"
LATE = [OutputTag("left", COLUMNS), OutputTag("right", COLUMNS)]


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: JoinContext) -> Iterator[Any]:
        yield left.value, right.value, ctx.timestamp()


class Replay:
    """One join, and the watermarks of its two inputs."""

    def __init__(self, case: dict[str, Any]) -> None:
        lower, upper = (timedelta(milliseconds=case[name]) for name in ("lower_ms", "upper_ms"))
        exclusive = [not case[name] for name in ("lower_inclusive", "upper_inclusive")]
        self.interval = Interval(lower, upper, *exclusive)
        self.streams = {1: StreamTime(None), 2: StreamTime(None)}
        self.combined: int | None = None
        self.begin(())

    def begin(self, state: HarnessSnapshot | tuple[()]) -> None:
        join = IntervalJoinFunction(Pairs(), self.interval, COLUMNS, COLUMNS, left_late=LATE[0], right_late=LATE[1])
        self.harness = TwoInputOperatorHarness(join, restore_from=state)

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        harness = self.harness
        outputs, late = len(harness.output), [len(harness.side_output(tag)) for tag in LATE]
        match step["op"]:
            case "element":
                push = harness.process1 if step["input"] == 1 else harness.process2
                push(Element(step["key"], step["value"]), timestamp_ms=step["ts"])
            case "watermark":
                own = self.streams[step["input"]].watermark_ms
                self.streams[step["input"]] = StreamTime(step["ts"] if own is None else max(own, step["ts"]))
                before, self.combined = self.combined, combined_watermark(self.combined, list(self.streams.values()))
                if self.combined is not None and self.combined != before:
                    harness.watermark(self.combined)
            case "restore":
                self.begin(harness.snapshot())
                outputs, late = 0, [0, 0]
        found = {
            "out": sorted(map(list, self.harness.output[outputs:])),
            "late": [row.value for tag, start in zip(LATE, late, strict=True)
                     for row in self.harness.side_output(tag)[start:]],
        }  # fmt: skip
        if step["op"] != "element":
            found["buffered"] = [self.buffered(name) for name in ("left", "right")]
        return found

    def buffered(self, name: str) -> int:
        entries = physical(self.harness.keyed_backend, name).values()
        return sum(len(rows) for times in entries for rows in times.values())


@pytest.mark.parametrize("case", golden("interval_join"), ids=lambda case: case["id"])
def test_an_interval_join_gives_what_flink_gave(case: dict[str, Any]) -> None:
    replay = Replay(case)
    for step in case["steps"]:
        found = replay.step(step)
        assert found["out"] == sorted(step.get("out", [])), step
        assert found["late"] == step.get("late", []), step
        if "buffered" in found:
            assert found["buffered"] == step.get("buffered", [0, 0]), step
