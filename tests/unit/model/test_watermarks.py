"""The watermark of several streams is Flink's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statecore.model.watermarks import StreamTime, combined_watermark
from tests.support.golden import golden

CASES = [case for case in golden("watermarks") if case["kind"] == "inputs"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_two_inputs_have_the_watermark_that_flink_gives_them(case: dict[str, Any]) -> None:
    streams = {number: StreamTime(None) for number in range(1, case["inputs"] + 1)}
    combined: int | None = None
    for step in case["steps"]:
        stream = streams[step["input"]]
        if step["op"] == "watermark":
            # A stream's own watermark does not move back either, and one that has records is not idle.
            newest = max(time for time in (stream.watermark_ms, step["ts"]) if time is not None)
            streams[step["input"]] = StreamTime(newest)
        else:
            streams[step["input"]] = replace(stream, idle=step["op"] == "idle")
        before, combined = combined, combined_watermark(combined, list(streams.values()))
        expected = [each for each in step.get("out", []) if isinstance(each, int)]
        assert ([combined] if combined != before else []) == expected, step


def test_without_streams_nothing_moves() -> None:
    assert combined_watermark(None, []) is None
    assert combined_watermark(7, []) == 7
