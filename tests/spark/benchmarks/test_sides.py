"""Both sides of a comparison come to the same sums."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import peers
from benchmarks.epochs import seconds_of
from benchmarks.inputs import Input
from benchmarks.ours import OurJob
from tests.support.published import published_files


def test_all_sides_come_to_the_same_sums(spark: Any, tmp_path: Path) -> None:
    records = Input(tmp_path / "input")
    records.feed(400, 50, files=2)
    expected: dict[str, int] = defaultdict(int)
    for row in _rows(records.folder):
        expected[row["k"]] += row["n"]
    job = OurJob(spark, tmp_path / "ours", records.folder)
    with job.running() as query:
        assert len(seconds_of(query, 2)) == 2
    outputs = {"ours": job.folder / "output"}
    for operator in (peers.grouped_sum, peers.tws_row, peers.tws_pandas):
        folder = outputs[operator.__name__] = tmp_path / operator.__name__
        with peers.running(peers.peer_session(spark), operator, records.folder, folder) as query:
            assert len(seconds_of(query, 2)) == 2
    for side, folder in outputs.items():
        # Sums only grow, so the last one of a key is its largest.
        largest: dict[str, int] = defaultdict(int)
        for row in _rows(folder):
            largest[row["k"]] = max(largest[row["k"]], row["total"])
        assert largest == expected, side


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in published_files(folder) for row in pq.ParquetFile(file).read().to_pylist()]
