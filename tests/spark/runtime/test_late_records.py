"""Records that event time has passed go to a side output if one is named, and are counted either way."""

from __future__ import annotations

from collections import Counter, namedtuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from statecore.testing import KeyedOperatorHarness
from tests.support.alone import history
from tests.support.bench import JOB, Bench
from tests.support.jobs import latecomers, two_clocks
from tests.support.waiting import wait

Row = namedtuple("Row", ["k", "n", "at"])


def test_late_records_go_to_their_side_output_and_are_counted_per_source(spark: Any, bench: Bench) -> None:
    bench.register(artifact=Path(latecomers.__file__))
    with bench.running(3):
        for numbers in (range(100, 150), range(120, 160), range(50, 170), range(140, 145)):
            bench.feed(numbers=numbers)
        bench.wait_done()
    with bench.running(2):
        # Late by a watermark that a former driver has reached.
        bench.feed(numbers=range(160, 170))
        bench.wait_done()
    alone, judged, late = KeyedOperatorHarness(latecomers.Sum(), late=latecomers.LATE), Counter[Any](), []
    fed, watermark_ms = iter(bench.fed), None
    for manifest in history(bench):
        if watermark_ms is not None:
            alone.watermark(watermark_ms)
        before = len(alone.side_output(latecomers.LATE))
        for k, n in sorted((next(fed) for _ in range(manifest.rows)), key=lambda record: record[1]):
            at = n * 1000 if n % 7 else None
            is_late = at is not None and watermark_ms is not None and at <= watermark_ms
            judged[n, is_late] += 1
            alone.process(Row(k, n, None if at is None else datetime.fromtimestamp(n, UTC)), timestamp_ms=at)
        late.append(len(alone.side_output(latecomers.LATE)) - before)
        watermark_ms = manifest.watermark_ms
    assert late[0] == 0 and min(late[1:]) > 0
    assert bench.published("late", Row._fields) == Counter(map(tuple, alone.side_output(latecomers.LATE)))
    assert bench.published("late_for_batches", Row._fields) == bench.published("late", Row._fields)
    in_time = Counter((n,) for (n, is_late), count in judged.items() if not is_late for _ in range(count))
    assert bench.published("passed", ("n",)) == in_time
    assert bench.published("sums", ("k", "n", "sum")) == Counter(map(tuple, alone.output))
    # Without a side output the function gets them as ever.
    assert bench.published("judged", ("n", "late")) == judged
    assert [epoch.late_rows for epoch in bench.catalog.epochs.of(JOB)] == [{"records": count} for count in late]
    assert sum(late) == sum(count for (_, is_late), count in judged.items() if is_late)
    figures = [(epoch.rows_out, epoch.state_rows, epoch.state_bytes) for epoch in bench.catalog.epochs.of(JOB)]
    assert figures == [(each.rows_out, each.state_rows, each.state_bytes) for each in history(bench)]
    assert min(figures[-1]) > 0


def test_a_broadcast_source_has_a_part_in_event_time_and_lateness_is_known_further_down(bench: Bench) -> None:
    bench.register(artifact=Path(two_clocks.__file__))
    (bench.input.parent / "rules").mkdir()

    def deliver(source: str, seconds: int) -> tuple[int | None, dict[str, int]]:
        """Give the source a record of that event time; return the watermark after it, and what was late."""
        at = pa.array([seconds * 1_000_000], pa.timestamp("us", "UTC"))
        before = bench.rows_done()
        bench.feed_table(pa.table({"n": pa.array([seconds], pa.int64()), "at": at}), source)
        wait(lambda: bench.rows_done() > before, "the record")
        newest = bench.newest()
        wait(lambda: len(bench.catalog.epochs.of(JOB)) > newest.epoch, "its figures")
        return newest.watermark_ms, bench.catalog.epochs.of(JOB)[-1].late_rows

    with bench.running(2):
        # Nobody knows yet how far the other source is.
        assert deliver("rules", 10) == (None, {"records": 0, "rules": 0})
        assert deliver("input", 100) == (9_999, {"records": 0, "rules": 0})
        # Both subtasks get it; it is one record.
        assert deliver("rules", 5) == (9_999, {"records": 0, "rules": 1})
        assert deliver("input", 8) == (9_999, {"records": 1, "rules": 0})
    with bench.running(3):
        assert deliver("input", 50) == (9_999, {"records": 0, "rules": 0})
        assert deliver("rules", 60) == (59_999, {"records": 0, "rules": 0})
        assert deliver("input", 59) == (59_999, {"records": 1, "rules": 0})
    assert bench.published("passed", ("n",)) == Counter([(100,), (50,)])
    assert bench.published("late", ("n",)) == Counter([(8,), (59,)])
