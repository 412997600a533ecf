"""Every subtask has its place and its marker, and stays where its state is."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import functions as F

from statecore.runtime.epoch import anchor as anchor_module
from statecore.runtime.epoch.anchor import Anchor, lay_anchor
from statecore.runtime.messages import ANCHOR, SLOT, SUBTASK


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("count", [0, 50])
@pytest.mark.parametrize("pause_ms", [0, 200])
def test_rows_and_markers_are_in_the_partition_of_their_subtask_alone(
    spark: Any, parallelism: int, count: int, pause_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchor_module, "_PAUSES_MS", (pause_ms,))
    began = time.monotonic()
    anchor = lay_anchor(spark, parallelism, 128)
    assert time.monotonic() - began >= pause_ms / 1000
    turned = Anchor(anchor.table, (*anchor.slots[1:], anchor.slots[0]), anchor.homes, anchor.executors)
    subtask = F.pmod("id", F.lit(parallelism)).cast("int")
    rows = spark.range(count).select(subtask.alias(SLOT), subtask.alias(SUBTASK))
    for layout in (anchor, turned):
        joined = layout.join(rows.withColumn(SLOT, layout.slot_of(F.col(SUBTASK))))
        # Laid out anew, it would have as many partitions as the session is configured for.
        spark.conf.set("spark.sql.shuffle.partitions", 7)
        try:
            assert joined.rdd.getNumPartitions() == max(parallelism, 2)
            found = joined.select(SUBTASK, ANCHOR, F.spark_partition_id().alias("partition")).collect()
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", 2)
        assert {row[ANCHOR]: row.partition for row in found} == dict(enumerate(layout.slots))
        if count:
            assert all(row[ANCHOR] == row[SUBTASK] for row in found) and len(found) == count
    anchor.close()
