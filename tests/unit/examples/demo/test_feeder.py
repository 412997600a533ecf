"""The feeder: order, atomic visibility, file times, and what a streaming query sees of it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from examples.demo import trickle
from examples.demo.feeder import ORDER, SCHEMA, Fed, Feeder, rows_fed_by


def files_by_time(input_dir: Path) -> list[Path]:
    return sorted(input_dir.glob("*/*"), key=lambda path: path.stat().st_mtime_ns)


def test_the_flights_are_complete_typed_and_totally_ordered(flights_table: pa.Table) -> None:
    assert flights_table.num_rows == 336_776
    assert flights_table.schema == SCHEMA
    in_order = pc.sort_indices(flights_table, [(name, "ascending") for name in ORDER])
    assert in_order.equals(pa.array(range(flights_table.num_rows), pa.uint64()))
    assert flights_table.group_by(ORDER).aggregate([]).num_rows == flights_table.num_rows
    nulls = {name: flights_table[name].null_count for name in SCHEMA.names if flights_table[name].null_count}
    assert nulls == {"tailnum": 2_512, "dep_time": 8_255, "arr_delay": 9_430}
    first = flights_table.slice(0, 1).to_pylist()[0]
    assert (first["sched_dep"].isoformat(), first["flight"]) == ("2013-01-01T05:15:00+00:00", 1545)


def test_files_read_by_time_give_the_flights_in_order(flights_table: pa.Table, tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "input")
    feeder.feed(flights_table.slice(0, 1_000))
    feeder.feed_backlog(flights_table.slice(1_000, 2_050), rows_per_file=100)
    feeder.feed(flights_table.slice(3_050, 50))
    files = files_by_time(tmp_path / "input")
    assert len(files) == 1 + 21 + 1
    assert pa.concat_tables(pq.read_table(file) for file in files) == flights_table.slice(0, 3_100)


def test_file_times_increase_strictly_in_the_milliseconds_a_source_compares(
    flights_table: pa.Table, tmp_path: Path
) -> None:
    feeder = Feeder(tmp_path / "input")
    for start in range(0, 500, 100):
        feeder.feed_backlog(flights_table.slice(start, 100), rows_per_file=5)
    times_ms = [path.stat().st_mtime_ns // 1_000_000 for path in sorted((tmp_path / "input").glob("*/*"))]
    assert len(times_ms) == 100
    assert all(a < b for a, b in itertools.pairwise(times_ms))


def test_a_delivery_that_fails_halfway_shows_nothing(
    flights_table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def fail_at_third(table: pa.Table, path: Path) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError("disk full")
        path.touch()

    feeder = Feeder(tmp_path / "input")
    monkeypatch.setattr(pq, "write_table", fail_at_third)
    with pytest.raises(OSError, match="disk full"):
        feeder.feed_backlog(flights_table.slice(0, 100), rows_per_file=10)
    assert list((tmp_path / "input").iterdir()) == []
    assert feeder.history == []


def test_a_feeder_goes_on_from_the_deliveries_of_another(flights_table: pa.Table, tmp_path: Path) -> None:
    first = Feeder(tmp_path / "input")
    first.feed_backlog(flights_table.slice(0, 40), rows_per_file=1)
    Feeder(tmp_path / "input").feed(flights_table.slice(40, 1))
    files = files_by_time(tmp_path / "input")
    assert pa.concat_tables(pq.read_table(file) for file in files) == flights_table.slice(0, 41)
    times_ms = [file.stat().st_mtime_ns // 1_000_000 for file in files]
    assert all(a < b for a, b in itertools.pairwise(times_ms))


def test_the_flights_that_trickle_in_are_later_than_all_before_them(
    flights_table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = pa.concat_tables([flights_table.slice(0, 3), flights_table.slice(flights_table.num_rows - 2)])
    monkeypatch.setattr(trickle, "ROWS", 2)
    fed = list(itertools.islice(trickle.later_flights(flights), 6))
    assert [table.num_rows for table in fed] == [2, 2, 1] * 2
    times = pa.concat_tables([flights, *fed])["sched_dep"].to_pylist()
    assert times == sorted(times)
    assert fed[0].schema == SCHEMA


def test_the_history_tells_how_many_rows_were_visible_when(flights_table: pa.Table, tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "input")
    feeder.feed(flights_table.slice(0, 10))
    feeder.feed(flights_table.slice(10, 5))
    assert [fed.rows_total for fed in feeder.history] == [10, 15]
    history = [Fed(visible_ms=100, rows_total=10), Fed(visible_ms=200, rows_total=15)]
    assert [rows_fed_by(history, at) for at in (99, 100, 199, 200)] == [0, 10, 10, 15]
