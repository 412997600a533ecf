"""Records that event time has passed go to a side output if one is named, and are counted either way."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statecore import KeyedProcessFunction, OutputTag
from statecore.errors import JobDefinitionError, StatecoreError
from statecore.model import parse_row
from statecore.runtime import Job
from statecore.runtime.epoch.operator import operator_spec
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.testing import KeyedOperatorHarness
from tests.runtime.alone import history
from tests.runtime.conftest import JOB, Bench, wait
from tests.runtime.jobs import latecomers, two_clocks

Row = namedtuple("Row", ["k", "n", "at"])


@pytest.mark.spark
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
    assert [epoch.late_rows for epoch in bench.catalog.epochs(JOB)] == [{"records": count} for count in late]
    assert sum(late) == sum(count for (_, is_late), count in judged.items() if is_late)


@pytest.mark.spark
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
        wait(lambda: len(bench.catalog.epochs(JOB)) > newest.epoch, "its figures")
        return newest.watermark_ms, bench.catalog.epochs(JOB)[-1].late_rows

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


class Nothing(KeyedProcessFunction):
    """Does nothing."""

    def process_element(self, value: Any, ctx: Any) -> None:
        return None


def described(late: Any, event_time: str | None = "at") -> Job:
    job = Job()
    stream = job.source("in", read=lambda spark: spark, event_time=event_time)
    stream.key_by("k").process(Nothing(), output="n int", uid="op", late=late)
    return job


def specified(late: OutputTag, folder: Path) -> Any:
    (plan,) = described(late).operators
    schemas = {"in": parse_row("k string, at timestamp, m map<string,int>")}
    store = CheckpointStore.at(str(folder))
    return operator_spec(plan, [plan], schemas, store, 128, allow_non_restored_state=False)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no event time": (lambda: described(OutputTag("late", "k string"), None), "source 'in' has no event time"),
    "the name of a tag": (lambda: described("late"), "late='late' for operator 'op'; expected an OutputTag"),
    "columns that cannot be read": (lambda: described(OutputTag("late", "k strong")), "strong"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_late_records_that_cannot_be_told_are_refused_where_the_job_is_described(case: str) -> None:
    describe, message = REFUSED[case]
    with pytest.raises(StatecoreError, match=message):
        describe()


@pytest.mark.parametrize(
    "columns",
    ["k string", "at timestamp, k string, m map<string,int>", "k string, at timestamp_ntz, m map<string,int>"],
)
def test_the_columns_of_late_records_must_be_those_of_the_records(columns: str, tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match=r"late output 'late' of operator 'op' .* expected those of its input"):
        specified(OutputTag("late", columns), tmp_path)


def test_columns_may_be_written_in_any_way(tmp_path: Path) -> None:
    late = OutputTag("late", "struct<k: STRING, at: timestamp, m: MAP<string, integer>>")
    assert specified(late, tmp_path).late == late
