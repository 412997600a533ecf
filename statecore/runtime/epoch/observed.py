"""Counts the records of a source before they are transformed: a filter does not hold back event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from statecore.runtime.job import Source
from statecore.runtime.messages import StreamRead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Observed:
    """Records of a source in one epoch, counted while they are read.

    Args:
        records: The records.
        source: The source.

    Attributes:
        rows: The records, to read.

    """

    def __init__(self, records: DataFrame, source: Source) -> None:
        figures = [F.count(F.lit(1)).alias("rows")]
        if source.event_time is not None:
            newest = F.unix_micros(F.col(source.event_time).cast("timestamp"))
            figures.append(F.max(newest).alias("newest_us"))
        self._observation = Observation()
        self.rows = records.observe(self._observation, *figures)

    def read(self) -> StreamRead:
        """Return the figures, once the rows have been read."""
        figures = self._observation.get
        newest_us = figures.get("newest_us")
        newest_ms = None if newest_us is None else newest_us // 1000
        return StreamRead(rows=figures.get("rows", 0), max_event_time_ms=newest_ms)
