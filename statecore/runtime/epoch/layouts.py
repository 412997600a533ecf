"""The layouts of a job's subtasks: one for the job's parallelism, and one per fixed parallelism of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from statecore.runtime.epoch.anchor import Anchor, active_executors, lay_anchor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Layouts:
    """Creates anchors on first use, and again when executors join or leave.

    Args:
        max_parallelism: Number of key groups.
        own: The fixed parallelism per operator uid; None for the job's.

    """

    def __init__(self, max_parallelism: int, own: Mapping[str, int | None]) -> None:
        self._max_parallelism = max_parallelism
        self._own = own
        # None is the key of the job's parallelism.
        self._anchors: dict[int | None, Anchor] = {}

    def all(self, spark: SparkSession, parallelism: int) -> dict[str, Anchor]:
        """Return the current layout of subtasks per operator uid.

        Args:
            spark: The session of the stream.
            parallelism: The job's parallelism.

        """
        executors = active_executors(spark)
        for own in dict.fromkeys(self._own.values()):
            anchor = self._anchors.get(own)
            if anchor is None or anchor.is_overtaken(executors):
                self._replace(own, lay_anchor(spark, own or parallelism, self._max_parallelism, anchor))
        return {uid: self._anchors[own] for uid, own in self._own.items()}

    def next(self, spark: SparkSession, parallelism: int) -> tuple[Anchor, list[int]]:
        """Return a layout for another parallelism of the job, and the subtasks whose state is on other executors."""
        before = self._anchors.get(None)
        anchor = lay_anchor(spark, parallelism, self._max_parallelism, before)
        return anchor, [] if before is None else anchor.moved(before, self._max_parallelism)

    def apply(self, anchor: Anchor) -> None:
        """Use the layout that ``next`` returned."""
        self._replace(None, anchor)

    def _replace(self, own: int | None, anchor: Anchor) -> None:
        before = self._anchors.get(own)
        self._anchors[own] = anchor
        if before is not None:
            before.close()
