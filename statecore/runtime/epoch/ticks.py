"""Epochs without records, for timers that are due while no record comes.

Spark runs no epoch while its sources have nothing new. So a query whose functions have timers reads one source more, a
stream in the driver's memory that gives no rows; something new in it makes Spark run an epoch::

    committed epoch ─► earliest timers in its manifest ─► due, at once or when an alarm rings ─► tick ─► next epoch

Ticks belong to a generation: no manifest mentions them, and where they stood is forgotten (``runtime.epoch.progress``).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statecore.snapshot.manifest import Manifest

# A timer may be so far away that no alarm can be set for it.
_LONGEST_WAIT_S = 3600.0


class Ticks:
    """Has the query run an epoch when a timer is due.

    Args:
        spark: The session of the stream.

    Attributes:
        rows: The source to read beside the others; it never has a row.

    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        # Of Spark's sources the one that costs nothing while it is quiet, and that keeps no log of what it gave.
        memory_stream = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
        self._stream = memory_stream.apply(spark._jsparkSession, jvm.org.apache.spark.sql.Encoders.STRING())
        self._tick = jvm.PythonUtils.toSeq([])
        self._lock = threading.Lock()
        self._newest: Manifest | None = None
        self._alarm: threading.Timer | None = None
        self._closed = False
        self.rows = DataFrame(self._stream.toDF(), spark).where(F.lit(False))

    def committed(self, manifest: Manifest) -> None:
        """Have an epoch run once a timer that this epoch has left is due; of former epochs none counts any more."""
        with self._lock:
            self._newest = manifest
            self._look()

    def close(self) -> None:
        """Let no epoch run any more."""
        with self._lock:
            self._closed = True
            self._silence()

    def _ring(self) -> None:
        with self._lock:
            self._look()

    def _look(self) -> None:
        self._silence()
        wait_s = None if self._newest is None or self._closed else seconds_until_due(self._newest, time.time())
        if wait_s == 0:
            self._stream.addData(self._tick)
        elif wait_s is not None:
            self._alarm = threading.Timer(min(wait_s, _LONGEST_WAIT_S), self._ring)
            self._alarm.daemon = True
            self._alarm.start()

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def seconds_until_due(manifest: Manifest, now_s: float) -> float | None:
    """Return how long after an epoch the next one has a timer to fire, from now; None when it has none in sight."""
    event_ms, watermark_ms = manifest.next_event_timer_ms, manifest.watermark_ms
    if event_ms is not None and watermark_ms is not None and event_ms <= watermark_ms:
        return 0.0
    if manifest.next_processing_timer_ms is None:
        return None
    # The epoch's time is in whole milliseconds, cut off.
    return max(0.0, (manifest.next_processing_timer_ms - int(now_s * 1000)) / 1000)
