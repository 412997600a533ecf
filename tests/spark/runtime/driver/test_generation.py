"""How a driver runs its query: how Spark writes its log files, and when epochs start."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from statecore.snapshot.settings import DriverSettings
from tests.support.bench import Bench

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
USERS = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


@pytest.mark.parametrize("before", [None, USERS])
def test_spark_writes_a_jobs_log_files_the_quick_way_and_those_of_other_queries_as_before(
    spark: Any, bench: Bench, before: str | None
) -> None:
    if before is not None:
        spark.conf.set(MANAGER, before)
    try:
        for _ in range(2):
            # The second driver goes on from files that this package laid down.
            with bench.running(2):
                bench.feed()
                bench.wait_done()
                (query,) = spark.streams.active
                manager = query._jsq.streamingQuery().offsetLog().fileManager().getClass().getSimpleName()
                assert manager == "FileSystemBasedCheckpointFileManager"
            assert spark.conf.get(MANAGER, None) == before
    finally:
        spark.conf.unset(MANAGER)
    bench.assert_exact(spark)


def test_epochs_start_once_an_interval_of_the_trigger(spark: Any, bench: Bench) -> None:
    with bench.running(2, settings=DriverSettings(trigger_interval=timedelta(seconds=3))):
        for _ in range(3):
            # As soon as the file before is committed; by default an epoch would start within half a second.
            bench.feed(20)
            bench.wait_done()
    # Spark starts epochs at whole multiples of the interval, but the first at once.
    _, *started_ms = sorted(each.started_ms for each in bench.catalog.epochs("totals"))
    assert len(started_ms) >= 2
    assert min(later - earlier for earlier, later in pairwise(started_ms)) > 2000
