"""Sources come, go and change places from one generation to the next: the others are read on where they were."""

from __future__ import annotations

import json
from collections import Counter, namedtuple
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from statecore.runtime import read_savepoint
from statecore.testing import KeyedOperatorHarness, physical
from tests.support.alone import history
from tests.support.bench import JOB, Bench
from tests.support.jobs import by_name
from tests.support.waiting import wait

Row = namedtuple("Row", ["k", "n"])
TICKS = 20


class Feeder:
    """Writes files of every format, and keeps what each operator is to have read."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.files = 0
        self.read: dict[str, list[Row]] = {}
        for name in ("parquet", "json", "csv"):
            (bench.input / name).mkdir()

    def feed(self, name: str, numbers: Iterable[int], uid: str | None) -> None:
        """Make one more file of a source visible; ``uid`` reads it, or nobody."""
        rows = [Row(f"k{n % 5}", n) for n in numbers]
        staged = self.bench.input.parent / "staged"
        table = pa.Table.from_pylist([row._asdict() for row in rows])
        if name == "parquet":
            pq.write_table(table, staged)
        elif name == "csv":
            pc.write_csv(table, staged, pc.WriteOptions(include_header=False))
        else:
            staged.write_text("\n".join(json.dumps(row._asdict()) for row in rows))
        staged.rename(self.bench.input / name / f"{self.files:03d}.{name}")
        self.files += 1
        if uid is not None:
            self.read.setdefault(uid, []).extend(rows)

    def wait_read(self) -> None:
        for uid, rows in self.read.items():
            wait(
                lambda uid=uid, rows=rows: self.published(uid) >= len(rows) or self.bench.generation().ended,  # type: ignore[misc]
                f"the records of {uid!r}",
            )
            assert self.published(uid) == len(rows), self.bench.generation().error

    def published(self, uid: str) -> int:
        return self.bench.published(uid, ("n",)).total()


def test_sources_are_resumed_by_name_over_upgrades_that_add_drop_and_move_them(spark: Any, bench: Bench) -> None:
    def upgrade(sources: str) -> None:
        bench.register(artifact=Path(by_name.__file__), settings={"sources": sources})

    feeder = Feeder(bench)
    upgrade("parquet:one")
    with bench.running(2):
        feeder.feed("parquet", range(100), "one")
        feeder.wait_read()
    assert bench.newest().watermark_ms == 98_999
    # From one source, whose records lie bare, to several; the one there was is the last now.
    upgrade("clock:clock,json:two,parquet:one")
    feeder.feed("parquet", range(100, 150), "one")
    with bench.running(3):
        feeder.feed("json", range(20), "two")
        feeder.wait_read()
        feeder.feed("parquet", range(150, 160), "one")
        feeder.wait_read()
    newest = bench.newest()
    assert [source.name for source in newest.sources] == ["clock", "json", "parquet"]
    assert [source.max_event_time_ms for source in newest.sources] == [None, 19_000, 159_000]
    # The source that came is far behind: event time stays, and does not go back.
    assert newest.watermark_ms == 98_999
    upgrade("json:one,csv:two,clock:clock")
    with bench.running(2):
        bench.wait_failed()
    assert "found the sources ['parquet']" in (bench.generation().error or "")
    assert bench.newest() == newest
    bench.catalog.jobs.set_desired(JOB, allow_non_restored_state=True)
    feeder.feed("parquet", range(1_000, 1_010), None)
    feeder.feed("json", range(200, 220), "one")
    with bench.running(3):
        feeder.feed("csv", range(300, 330), "two")
        feeder.wait_read()
    newest = bench.newest()
    assert [(source.name, source.max_event_time_ms) for source in newest.sources] == [
        ("json", 219_000), ("csv", 329_000), ("clock", None)
    ]  # fmt: skip
    # The one that is gone holds nobody back.
    assert newest.watermark_ms == 218_999
    bench.catalog.jobs.set_desired(JOB, allow_non_restored_state=False)
    upgrade("clock:clock,csv:two,json:one")
    with bench.running(2):
        feeder.feed("csv", range(330, 340), "two")
        feeder.wait_read()
        # It ticks by the wall clock: a quick machine is here before it has ticked often.
        wait(lambda: feeder.published("clock") > TICKS, "the ticks of the clock")
    assert_each_record_once(spark, bench, feeder)


def assert_each_record_once(spark: Any, bench: Bench, feeder: Feeder) -> None:
    manifests = history(bench)
    watermarks = [each.watermark_ms for each in manifests if each.watermark_ms is not None]
    assert watermarks == sorted(watermarks)
    path = bench.store / bench.checkpoints.manifest_path(1, manifests[-1].epoch)
    counted = sorted(row[0] for row in bench.published("clock", ("n",)).elements())
    assert counted == list(range(len(counted))) and len(counted) > TICKS
    feeder.read["clock"] = [Row("clock", n) for n in counted]
    for uid, rows in feeder.read.items():
        alone = KeyedOperatorHarness(by_name.Sum())
        for row in rows:
            alone.process(row)
        assert bench.published(uid, ("k", "n", "sum")) == Counter(map(tuple, alone.output)), uid
        sums = read_savepoint(spark, path, uid, "sum").collect()
        assert {row.k: row.value for row in sums} == {
            key[0]: value for key, value in physical(alone.keyed_backend, "sum").items()
        }
