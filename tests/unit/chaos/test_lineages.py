"""The truth of roll-backs: each lineage has published what its own epochs give, no row less and none twice."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, SourcePositions, SubtaskState
from tests.chaos.alone import SINKS, Fed, Record, Rows, Rule, replay
from tests.chaos.lineages import ForkError, Lineages, RollBack
from tests.chaos.outputs import Expected, Tally
from tests.chaos.truth import Kept, judge
from tests.support.handmade import manifest, operator

FILES = [[Record(f"k{n % 3}", n, datetime.fromtimestamp(n, UTC)) for n in range(10 * i, 10 * i + 12)] for i in range(5)]
FED = Fed(FILES, [[Rule("even", 2, 1), Rule("odd", 5, 2)]])
# What is committed in order: the first lineage was left behind after its epoch 1, the second after epoch 2 of it.
OLD, CUT, NEW = 1, 4, 9


def epoch(lineage: int, number: int, **changes: Any) -> Manifest:
    """Return an epoch that has read a file of records; the first has read the rules as well."""
    rows = sum(map(len, FILES[: number + 1])) + len(FED.rules[0])
    positions = [("records", number), ("rules", 0)]
    given = {
        "generation": lineage,
        "batch_timestamp_ms": 1_000_000 * lineage + 1000 * number,
        "watermark_ms": max(record.n for record in FILES[number]) * 1000 - 3001,
        "rows": len(FILES[number]) + (len(FED.rules[0]) if number == 0 else 0),
        "rows_total": rows,
        "sources": tuple(SourcePositions(name=name, positions=(f'{{"logOffset":{at}}}',)) for name, at in positions),
    }
    return manifest(lineage=lineage, epoch=number, **{**given, **changes})


def rolled_back(*, published: bool = True) -> Lineages:
    lineages = Lineages()
    lineages.add(epoch(OLD, number) for number in range(4))
    lineages.roll_back(RollBack(OLD, 1), published=True)
    lineages.add(epoch(CUT, number) for number in (2, 3))
    lineages.roll_back(RollBack(CUT, 2), published=published)
    lineages.add(epoch(NEW, number) for number in (3, 4))
    return lineages


def rows_of(lineages: Lineages, lineage: int) -> dict[int, dict[str, Rows]]:
    """Return what each epoch on the path of a lineage publishes."""
    before: dict[str, Rows] = {sink: Counter() for sink in SINKS}
    found = {}
    for made, alone in replay(lineages.path(lineage), FED):
        after = alone.published()
        found[made.epoch] = {sink: after[sink] - before[sink] for sink in SINKS}
        before = after
    return found


@cache
def history(published: bool) -> tuple[Lineages, dict[int, dict[int, dict[str, Rows]]], dict[int, Expected]]:
    """Return the lineages, what each epoch of each publishes, and what is expected of it; the same for all tests."""
    lineages = rolled_back(published=published)
    expected = {lineage: Expected(lineages, lineage) for lineage in lineages.numbers}
    for lineage, own in expected.items():
        for made, alone in replay(lineages.path(lineage), FED):
            own.after(made.epoch, alone)
    return lineages, {lineage: rows_of(lineages, lineage) for lineage in lineages.numbers}, expected


class Sinks:
    """Folders of all sinks, with the rows of every epoch of every lineage."""

    def __init__(self, folder: Path, *, published: bool = True) -> None:
        self.urls = {sink: f"{folder}/{sink}" for sink in SINKS}
        lineages, rows, self._expected = history(published)
        for lineage in lineages.numbers:
            for made in lineages.own(lineage):
                for sink, own in rows[lineage][made.epoch].items():
                    if own:
                        self.write(sink, lineage, made.epoch, list(own.elements()))

    def file(self, sink: str, lineage: int, number: int) -> Path:
        return Path(self.urls[sink]) / f"lineage={lineage}/epoch={number}/00000.parquet"

    def write(self, sink: str, lineage: int, number: int, rows: list[tuple[Any, ...]]) -> None:
        file = self.file(sink, lineage, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.table([list(column) for column in zip(*rows, strict=True)], list("abcd")[: len(rows[0])]), file
        )

    def rows(self, sink: str, lineage: int, number: int) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in pq.ParquetFile(self.file(sink, lineage, number)).read().to_pylist()]

    def compared(self) -> Tally:
        tally = Tally()
        tally.compare(self.urls, self._expected)
        return tally


@pytest.fixture
def sinks(tmp_path: Path) -> Sinks:
    return Sinks(tmp_path)


def test_a_run_whose_lineages_have_what_their_epochs_give_is_exact(sinks: Sinks) -> None:
    assert sinks.compared() == Tally()
    # The same input was read anew, at another time: not a row of the new epochs is expected in the old lineage.
    assert sinks.rows("tallied", OLD, 3) != sinks.rows("tallied", NEW, 3)


@pytest.mark.parametrize(("lineage", "number"), [(OLD, 1), (OLD, 3), (CUT, 2), (CUT, 3), (NEW, 4)])
def test_a_row_that_is_missing_in_its_lineage_is_lost(sinks: Sinks, lineage: int, number: int) -> None:
    rows = sinks.rows("gathered", lineage, number)
    sinks.write("gathered", lineage, number, rows[1:])
    tally = sinks.compared()
    assert (tally.lost, tally.doubled) == (1, 0)
    assert f"sink 'gathered', lineage {lineage}" in tally.differences[0]


@pytest.mark.parametrize(("lineage", "number"), [(OLD, 1), (OLD, 3), (CUT, 2), (CUT, 3), (NEW, 4)])
def test_a_row_that_is_there_twice_in_its_lineage_is_doubled(sinks: Sinks, lineage: int, number: int) -> None:
    rows = sinks.rows("gathered", lineage, number)
    sinks.write("gathered", lineage, number, [*rows, rows[0]])
    tally = sinks.compared()
    assert (tally.lost, tally.doubled) == (0, 1)
    assert f"sink 'gathered', lineage {lineage}" in tally.differences[0]


def test_an_epoch_that_went_into_the_lineage_that_was_left_behind_is_lost_there_and_doubled_here(sinks: Sinks) -> None:
    moved = sinks.rows("tallied", NEW, 4)
    sinks.file("tallied", NEW, 4).unlink()
    sinks.write("tallied", CUT, 4, moved)
    tally = sinks.compared()
    assert (tally.lost, tally.doubled) == (len(moved), len(moved))


def test_a_lineage_that_no_epoch_belongs_to_has_rows_too_many(sinks: Sinks) -> None:
    sinks.write("gathered", 7, 3, sinks.rows("gathered", OLD, 3)[:5])
    assert (sinks.compared().lost, sinks.compared().doubled) == (0, 5)


def test_an_epoch_left_behind_before_it_was_published_is_whole_or_not_there(tmp_path: Path) -> None:
    sinks = Sinks(tmp_path, published=False)
    assert sinks.compared() == Tally()
    rows = sinks.rows("gathered", CUT, 3)
    sinks.write("gathered", CUT, 3, rows[:-1])
    assert (sinks.compared().lost, sinks.compared().doubled) == (1, 0)
    sinks.file("gathered", CUT, 3).unlink()
    assert sinks.compared() == Tally()
    sinks.file("gathered", CUT, 2).unlink()
    assert sinks.compared().lost > 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch_timestamp_ms": 1000}, "before that of the epoch before"),
        ({"generation": 1}, "an older generation has committed"),
        ({"rows": 5}, "rows were read until epoch 4 of lineage 9"),
        ({"watermark_ms": 0}, "has the watermark 0"),
    ],
)
def test_a_history_that_cannot_be_is_a_difference(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    lineages = Lineages()
    lineages.add(epoch(OLD, number) for number in range(2))
    lineages.roll_back(RollBack(OLD, 1), published=True)
    lineages.add([epoch(NEW, 2), epoch(NEW, 3), epoch(NEW, 4, **changes)])
    verdict = judge(CheckpointStore.at(str(tmp_path)), lineages, FED, {}, [])
    assert any(told in difference for difference in verdict.differences)
    assert (verdict.lost, verdict.doubled) == (None, None)


def test_a_savepoint_of_an_epoch_that_nobody_has_seen_is_a_difference(tmp_path: Path) -> None:
    store, sinks = CheckpointStore.at(str(tmp_path / "store")), Sinks(tmp_path)
    operators = tuple(
        msgspec.structs.replace(operator([SubtaskState()], ()), uid=uid)
        for uid in ("gather", "tally", "visits", "sums", "attend", "near")
    )
    seen = Lineages()
    seen.add(epoch(OLD, number, operators=operators) for number in range(5))
    left, stray = epoch(OLD, 3, operators=operators), epoch(NEW, 3, operators=operators)
    kept = [
        Kept(store, store.write_savepoint(each, name, reason="", now_ms=1))
        for each, name in ((left, "seen"), (stray, "stray"))
    ]
    differences = judge(store, seen, FED, sinks.urls, kept).differences
    assert any("epoch 3 of lineage 9, which nobody has seen committed" in each for each in differences)
    assert not any("epoch 3 of lineage 1, which" in each for each in differences)


def test_a_roll_back_that_was_undone_is_seen_at_once() -> None:
    lineages = Lineages()
    lineages.add(epoch(OLD, number) for number in range(3))
    lineages.roll_back(RollBack(OLD, 1), published=True)
    assert (lineages.newest, lineages.head) == (None, 1)
    with pytest.raises(ForkError, match="epoch 3 of lineage 1, which was left behind"):
        lineages.add([epoch(OLD, 3)])


def test_a_late_epoch_of_a_lineage_that_was_left_behind_is_seen() -> None:
    with pytest.raises(ForkError, match="epoch 4 of lineage 4"):
        rolled_back().add([epoch(CUT, 4)])


def test_a_lineage_that_nobody_asked_for_is_seen() -> None:
    with pytest.raises(ForkError, match="lineage 12 was opened after 9"):
        rolled_back().add([epoch(12, 4)])
