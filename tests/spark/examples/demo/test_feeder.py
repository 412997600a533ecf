"""What a streaming query sees of the feeder."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa

from examples import flight_delays
from examples.demo.feeder import Feeder
from statecore.runtime import Job


def test_the_jobs_source_reads_deliveries_in_order_and_in_bounded_epochs(
    spark: Any, flights_table: pa.Table, tmp_path: Path
) -> None:
    feeder = Feeder(tmp_path / "input")
    job = Job({"input": str(tmp_path / "input"), "output": str(tmp_path), "max_files_per_epoch": "2"})
    flight_delays.build(job)
    (source,) = job.sources
    epochs: list[tuple[Any, ...]] = []

    def take(frame: Any, epoch: int) -> None:
        epochs.append(frame.selectExpr("count(*)", "min(sched_dep)", "max(sched_dep)").first())

    query = source.read(spark).writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "ck")).start()
    try:
        query.processAllAvailable()
        assert epochs == []
        feeder.feed(flights_table.slice(0, 100))
        query.processAllAvailable()
        feeder.feed_backlog(flights_table.slice(100, 500), rows_per_file=100)
        query.processAllAvailable()
    finally:
        query.stop()
    assert [rows for rows, _, _ in epochs] == [100, 200, 200, 100]
    assert all(before[2] <= after[1] for before, after in itertools.pairwise(epochs))
