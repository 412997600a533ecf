"""Every subtask has its place and its marker, and stays where its state is."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F

from statecore.runtime.epoch import anchor as anchor_module
from statecore.runtime.epoch.anchor import Anchor, lay_anchor
from statecore.runtime.messages import ANCHOR, SLOT, SUBTASK


def laid(homes: str, slots: tuple[int, ...] | None = None) -> Anchor:
    """Return a layout over executors of one letter each, without a table."""
    table: Any = None
    return Anchor(table, slots or tuple(range(len(homes))), tuple(homes), frozenset(homes))


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


def test_a_layout_lasts_until_an_executor_leaves_or_one_that_came_takes_a_load_off() -> None:
    assert not laid("aabb").is_overtaken(frozenset("ab"))
    assert laid("aabb").is_overtaken(frozenset("a"))
    assert laid("aabb").is_overtaken(frozenset("abcd"))
    # With two of three, one still has two.
    assert not laid("aab").is_overtaken(frozenset("ab"))
    assert not laid("ab").is_overtaken(frozenset("abc"))


def test_only_subtasks_with_key_groups_from_elsewhere_have_moved() -> None:
    assert laid("aabb").moved(laid("ab"), 128) == []
    assert laid("abab").moved(laid("ab"), 128) == [1, 2]
    assert laid("ab").moved(laid("aab"), 126) == [1]


def test_a_subtask_takes_a_slot_where_its_key_groups_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from statecore.runtime.epoch import anchor

    def spread(*_: Any) -> tuple[None, list[str]]:
        return None, list("baba")

    monkeypatch.setattr(anchor, "active_executors", lambda _: frozenset("ab"))
    monkeypatch.setattr(anchor, "_spread", spread)
    found = lay_anchor(None, 4, 128, laid("ab"))  # type: ignore[arg-type]
    assert found.homes == tuple("aabb")
    assert Counter(found.slots) == Counter(range(4))
    assert found.moved(laid("ab"), 128) == []
