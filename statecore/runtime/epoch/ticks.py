"""Triggers epochs without records, for timers that are due while no record arrives.

Spark runs no epoch while its sources have no new data. So a query whose functions have timers reads an additional
source, a stream in the driver's memory without rows; a new batch in it makes Spark run an epoch::

    committed epoch ─► earliest timers in its manifest ─► due, at once or after a wait ─► tick ─► next epoch
                       a source that will be idle ───────┘

Ticks belong to a generation: no manifest contains them or their position (``runtime.epoch.progress``).
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

# threading.Timer refuses longer waits.
_LONGEST_WAIT_S = 3600.0


class Ticks:
    """Triggers an epoch when a timer is due.

    Args:
        spark: The session of the stream.

    Attributes:
        rows: The additional source; it never has a row.

    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        # The only source of Spark that costs nothing while idle, and keeps no log.
        memory_stream = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
        self._stream = memory_stream.apply(spark._jsparkSession, jvm.org.apache.spark.sql.Encoders.STRING())
        self._tick = jvm.PythonUtils.toSeq([])
        self._lock = threading.Lock()
        self._newest: Manifest | None = None
        self._next_idle_ms: int | None = None
        self._wait: threading.Timer | None = None
        self._closed = False
        self.rows = DataFrame(self._stream.toDF(), spark).where(F.lit(False))

    def committed(self, manifest: Manifest, next_idle_ms: int | None = None) -> None:
        """Trigger an epoch once a timer of this epoch's manifest is due; those of earlier epochs are obsolete.

        Args:
            manifest: The epoch.
            next_idle_ms: When a source will be idle, after which event time may go on; None if none will.

        """
        with self._lock:
            self._newest, self._next_idle_ms = manifest, next_idle_ms
            self._schedule()

    def close(self) -> None:
        """Stop triggering epochs."""
        with self._lock:
            self._closed = True
            self._cancel_wait()

    def _on_wait_over(self) -> None:
        with self._lock:
            self._schedule()

    def _schedule(self) -> None:
        self._cancel_wait()
        wait_s = None
        if self._newest is not None and not self._closed:
            wait_s = seconds_until_due(self._newest, time.time(), self._next_idle_ms)
        if wait_s == 0:
            self._stream.addData(self._tick)
        elif wait_s is not None:
            self._wait = threading.Timer(min(wait_s, _LONGEST_WAIT_S), self._on_wait_over)
            self._wait.daemon = True
            self._wait.start()

    def _cancel_wait(self) -> None:
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None


def seconds_until_due(manifest: Manifest, now_s: float, next_idle_ms: int | None = None) -> float | None:
    """Return the seconds until a timer in the manifest is due, or a source is idle that may hold one back."""
    event_ms, watermark_ms = manifest.next_event_timer_ms, manifest.watermark_ms
    if event_ms is not None and watermark_ms is not None and event_ms <= watermark_ms:
        return 0.0
    waits = [manifest.next_processing_timer_ms, None if event_ms is None else next_idle_ms]
    due_ms = min((each for each in waits if each is not None), default=None)
    if due_ms is None:
        return None
    # The next epoch's time is at least this one's, also when the clock is behind.
    if due_ms <= manifest.batch_timestamp_ms:
        return 0.0
    # The epoch's time is rounded down to milliseconds.
    return max(0.0, (due_ms - int(now_s * 1000)) / 1000)
