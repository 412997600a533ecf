"""Places subtasks on the executors that hold their state in memory.

An anchor is a persisted table of one row per slot; a slot is a partition that one subtask runs in. Spark runs a task
where the persisted partition that it reads is stored. So rows joined to the anchor reach the same executor in every
epoch, and in an epoch without rows, the anchor's row is the subtask's marker.

Spark chooses the executor of each slot; this module chooses the slot of each subtask. When an anchor is replaced,
because the parallelism or the executors changed, a subtask moves to the executor with most of its key groups.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from statecore.model import KeyGroupRange, key_group_range
from statecore.runtime.messages import ANCHOR, KEY_GROUP, SLOT
from statecore.runtime.placement import column, key_group_of, subtask_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

_OWN_SLOT = "__statecore_anchor_slot"
# Spark gives a slot to the first free core, so the fastest executor gets too many of very short tasks. After an uneven
# attempt, the tasks sleep, longer each time.
_PAUSES_MS = (0, 100, 300, 1000)


@dataclass(frozen=True)
class Anchor:
    """One layout of subtasks.

    It keeps the expressions that every epoch needs: to make one costs up to milliseconds, which small epochs notice.

    Attributes:
        table: One row per slot, persisted in the partition of its number.
        slots: The slot of each subtask.
        homes: The executor of each subtask.
        executors: The executors that accepted tasks when the anchor was created.

    """

    table: DataFrame
    slots: tuple[int, ...]
    homes: tuple[str, ...]
    executors: frozenset[str]

    @property
    def parallelism(self) -> int:
        """Number of subtasks."""
        return len(self.slots)

    def join(self, rows: DataFrame) -> DataFrame:
        """Move rows, whose slot is in the column ``SLOT``, to their subtasks; a subtask without rows gets one row.

        The column ``ANCHOR`` holds the subtask's number.
        """
        placed = rows.repartitionById(_partitions(self.parallelism), SLOT)
        # The table must stay unchanged: with an added or renamed column, Spark would shuffle it.
        joined = placed.join(self._joined_table, self._same_slot, "full_outer")
        return joined.select(*(name for name in rows.columns if name != SLOT), self._subtask)

    def rows(self) -> DataFrame:
        """Return one row per subtask, on its executor, with its number in the column ``ANCHOR``."""
        return self.table.select(self._subtask)

    def placing(self, key_columns: tuple[str, ...], max_parallelism: int) -> tuple[Column, Column]:
        """Return the key group of a row, and the slot of the subtask that owns it."""
        if key_columns not in self._placing:
            group = key_group_of([column(name) for name in key_columns], max_parallelism)
            owner = subtask_of(group, max_parallelism, self.parallelism)
            self._placing[key_columns] = group.alias(KEY_GROUP), self.slot_of(owner).alias(SLOT)
        return self._placing[key_columns]

    @cached_property
    def _placing(self) -> dict[tuple[str, ...], tuple[Column, Column]]:
        return {}

    @cached_property
    def _joined_table(self) -> DataFrame:
        return self.table.hint("shuffle_hash")

    @cached_property
    def _same_slot(self) -> Column:
        return F.col(SLOT) == F.col(_OWN_SLOT)

    @cached_property
    def _subtask(self) -> Column:
        subtasks = sorted(range(self.parallelism), key=self.slots.__getitem__)
        return _looked_up(subtasks, F.col(_OWN_SLOT)).alias(ANCHOR)

    def slot_of(self, subtask: Column) -> Column:
        """Return the slot of a subtask."""
        return _looked_up(self.slots, subtask)

    def all_slots(self) -> Column:
        """Return an array of all slots."""
        return F.sequence(F.lit(0), F.lit(self.parallelism - 1))

    def is_overtaken(self, executors: frozenset[str]) -> bool:
        """Return whether to replace the anchor: an executor left, or new executors would relieve the fullest one."""
        if executors == self.executors:
            return False
        return not executors.issuperset(self.homes) or _fullest(self.homes) > _fair(self.parallelism, executors)

    def moved(self, before: Anchor, max_parallelism: int) -> list[int]:
        """Return the subtasks that have some key groups on another executor in the previous layout."""
        homes = _homes_of_groups(before, max_parallelism)
        return [
            subtask
            for subtask, home in enumerate(self.homes)
            if any(homes[group] != home for group in _groups(max_parallelism, self.parallelism, subtask))
        ]

    def close(self) -> None:
        """Unpersist the table."""
        self.table.unpersist()


def lay_anchor(spark: SparkSession, parallelism: int, max_parallelism: int, before: Anchor | None = None) -> Anchor:
    """Create an anchor over the executors that currently accept tasks.

    Args:
        spark: The session of the stream.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
        before: The layout that the key groups in memory follow.

    """
    executors = active_executors(spark)
    table, places = _spread(spark, parallelism, executors)
    slots = _assigned(places, max_parallelism, before)
    homes = tuple(places[slot] for slot in slots)
    log.info("subtasks per executor: %s", dict(Counter(homes)))
    return Anchor(table, slots, homes, executors)


def active_executors(spark: SparkSession) -> frozenset[str]:
    """Return the ids of executors that accept tasks, without decommissioning ones; none on a local master."""
    context = spark.sparkContext._jsc.sc()
    if context.isLocal():
        return frozenset()
    backend, ids = context.schedulerBackend(), context.getExecutorIds()
    names = [ids.apply(index) for index in range(ids.size())]
    return frozenset(name for name in names if backend.isExecutorActive(name))


def _spread(spark: SparkSession, parallelism: int, executors: frozenset[str]) -> tuple[DataFrame, list[str]]:
    """Persist the slots and return the executor of each; use the most even of a few attempts."""
    best: tuple[DataFrame, list[str]] | None = None
    for pause_ms in _PAUSES_MS:
        attempt = _persisted(spark, parallelism, pause_ms)
        if best is not None and _fullest(attempt[1]) >= _fullest(best[1]):
            attempt[0].unpersist()
        else:
            if best is not None:
                best[0].unpersist()
            best = attempt
        if not executors or _fullest(best[1]) <= _fair(parallelism, executors):
            break
    assert best is not None
    return best


def _persisted(spark: SparkSession, parallelism: int, pause_ms: int) -> tuple[DataFrame, list[str]]:
    # The mark distinguishes the table's blocks from those of other tables that this session persists.
    mark = uuid.uuid4().hex
    slots = spark.range(parallelism).select(F.col("id").cast("int").alias(_OWN_SLOT), F.lit(mark).alias("mark"))
    table = slots.repartitionById(_partitions(parallelism), _OWN_SLOT)
    if pause_ms:
        pause = F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(pause_ms).cast("long"))
        table = table.withColumn("pause", pause)
    table = table.persist()
    table.count()
    context = spark.sparkContext._jsc
    persisted = context.getPersistentRDDs()
    rdd = next(rdd for rdd in (persisted.get(id) for id in persisted.keySet()) if mark in str(rdd.name()))
    places = []
    for index in range(parallelism):
        locations = context.sc().getPreferredLocs(rdd.rdd(), index)
        # "executor_<host>_<id>"; empty when the block is already lost.
        places.append("" if locations.isEmpty() else str(locations.apply(0).toString()).rsplit("_", 1)[-1])
    return table, places


def _partitions(parallelism: int) -> int:
    # With a single partition, Spark cannot match an input that it knows to be empty: it would shuffle both sides again,
    # to the configured number of partitions.
    return max(parallelism, 2)


def _assigned(places: Sequence[str], max_parallelism: int, before: Anchor | None) -> tuple[int, ...]:
    """Return a slot per subtask, so that many key groups stay on their executor."""
    parallelism = len(places)
    if before is None:
        return tuple(range(parallelism))
    homes = _homes_of_groups(before, max_parallelism)
    held = [
        Counter(homes[group] for group in _groups(max_parallelism, parallelism, subtask))
        for subtask in range(parallelism)
    ]
    free: dict[str, list[int]] = {}
    for slot, place in enumerate(places):
        free.setdefault(place, []).append(slot)
    slots: dict[int, int] = {}
    # Subtasks with the most key groups to keep choose first.
    candidates = sorted(
        ((count, subtask, home) for subtask, counts in enumerate(held) for home, count in counts.items()),
        key=lambda candidate: (-candidate[0], candidate[1], candidate[2]),
    )
    for _, subtask, home in candidates:
        if subtask not in slots and free.get(home):
            slots[subtask] = free[home].pop(0)
    left = sorted(slot for of_place in free.values() for slot in of_place)
    return tuple(slots[subtask] if subtask in slots else left.pop(0) for subtask in range(parallelism))


def _homes_of_groups(anchor: Anchor, max_parallelism: int) -> list[str]:
    return [
        home for subtask, home in enumerate(anchor.homes) for _ in _groups(max_parallelism, anchor.parallelism, subtask)
    ]


def _groups(max_parallelism: int, parallelism: int, subtask: int) -> range:
    own: KeyGroupRange = key_group_range(max_parallelism, parallelism, subtask)
    return range(own.start, own.end + 1)


def _fullest(places: Sequence[str]) -> int:
    return max(Counter(places).values())


def _fair(parallelism: int, executors: frozenset[str]) -> int:
    """Return how many subtasks the fullest executor has in an even distribution."""
    return -(-parallelism // max(len(executors), 1))


def _looked_up(values: Sequence[int], index: Column) -> Column:
    if list(values) == list(range(len(values))):
        return index
    return F.element_at(F.array(*(F.lit(value) for value in values)), index + 1)
