"""Outputs that classes declare, through two operators into Parquet and a Delta table, each row once."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.support.bench import Bench
from tests.support.jobs import declared
from tests.support.published import published_files


def expected(epochs: list[list[tuple[str, int]]]) -> Counter[tuple[Any, ...]]:
    sums: dict[str, int] = defaultdict(int)
    rows: Counter[tuple[Any, ...]] = Counter()
    for epoch in epochs:
        for k, n in sorted(epoch, key=lambda record: record[1]):
            sums[k] += n
            rows[k, sums[k], None if n % 3 else n] += 1
    return rows


def table(bench: Bench) -> Counter[tuple[Any, ...]]:
    found = DeltaTable(str(bench.output / "totals")).to_pyarrow_table().to_pylist()
    return Counter((row["k"], row["sum"], row["latest"] and row["latest"]["n"]) for row in found)


def test_declared_outputs_arrive_once_through_several_drivers(bench: Bench) -> None:
    bench.register(artifact=Path(declared.__file__))
    with bench.running(2):
        bench.feed(60)
        bench.feed(60)
        bench.wait_done()
        bench.feed(60)
        bench.wait_done()
    # As if the driver had died between the table's commit and its own marker.
    for marker in (bench.store / "_published" / "totals").iterdir():
        marker.unlink()
    epochs = [bench.fed[start : start + 60] for start in (0, 60, 120)]
    with bench.running(3):
        bench.feed(60)
        bench.wait_done()
    epochs.append(bench.fed[180:])
    assert table(bench) == expected(epochs)
    odd = [row for file in published_files(bench.output / "odd") for row in pq.ParquetFile(file).read().to_pylist()]
    assert Counter((row["k"], row["n"]) for row in odd) == Counter((k, n) for k, n in bench.fed if n % 2)
    assert all(row["parts"] == [{"name": "whole", "n": row["n"]}, {"name": "none", "n": None}] for row in odd)
    assert all(row["at"].timestamp() == row["n"] for row in odd)


def test_an_output_that_its_class_does_not_fit_is_refused_with_its_field(bench: Bench) -> None:
    bench.register(artifact=Path(declared.__file__))
    bench.feed_table(pa.table({"k": pa.array([None], pa.string()), "n": pa.array([1], pa.int64())}))
    with bench.running(1):
        bench.wait_failed()
    error = bench.generation().error
    assert error is not None
    assert "field 'k': found None, expected string not null; expected the columns k string not null" in error
