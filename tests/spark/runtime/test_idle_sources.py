"""Event time goes on without a source that has no records, though no record comes; its next record holds it again."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.alone import history
from tests.support.bench import JOB, Bench
from tests.support.jobs import idle
from tests.support.waiting import wait

OUTPUT = ("k", "n")


def offer(bench: Bench, folder: str, numbers: range) -> None:
    at = pa.array([datetime.fromtimestamp(n, UTC) for n in numbers], pa.timestamp("us", "UTC"))
    columns = {"k": [f"k{n % 7}" for n in numbers], "n": pa.array(list(numbers), pa.int64()), "at": at}
    bench.feed_table(pa.table(columns), folder=folder)


def due(*numbers: int) -> Counter[Any]:
    return Counter((f"k{n % 7}", n) for n in numbers if n % 2 == 0)


def test_timers_fire_past_an_idle_source_and_wait_for_one_that_has_records(spark: Any, bench: Bench) -> None:
    for name in ("busy", "quiet"):
        (bench.input.parent / name).mkdir()
    bench.register(artifact=Path(idle.__file__))
    offer(bench, "busy", range(100, 140))
    offer(bench, "quiet", range(40, 60))
    with bench.running(3):
        wait(lambda: bench.published("due", OUTPUT) == due(*range(40, 60), *range(100, 139)), "event time to go on")
        assert (bench.newest().rows, bench.newest().watermark_ms) == (0, 138_999)
        # No record is late when the idle source goes on where the others are.
        offer(bench, "quiet", range(139, 150))
        offer(bench, "busy", range(150, 170))
        wait(lambda: bench.published("due", OUTPUT) == due(*range(40, 60), *range(100, 169)), "it to go on again")
    held = [each.watermark_ms for each in history(bench) if each.rows_total >= 60]
    assert held[0] == 58_999, "a source with records holds event time back"
    # What people are shown: who held time back, and who was left out then.
    epochs = bench.catalog.epochs.of(JOB)
    assert epochs[0].held_by == "quiet" and not epochs[0].source_times["quiet"].idle
    left_out = next(each for each in epochs if each.source_times["quiet"].idle)
    assert (left_out.held_by, left_out.watermark_ms) == (None, 138_999)
    quiet, busy = left_out.source_times["quiet"], left_out.source_times["busy"]
    assert (quiet.watermark_ms, busy.watermark_ms) == (58_999, 138_999)
    assert quiet.moved_ms is not None and quiet.moved_ms < left_out.committed_ms
