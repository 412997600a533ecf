"""What waits in the sources of a running job, also while no epoch ends.

Measured in a thread of its own: to list a folder may take longer than a heartbeat may be late.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from statecore.catalog import Catalog, SourceBacklog
from statecore.runtime.backlog.meters import UNKNOWN, SourceMeter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
# To measure takes at most this part of the time, however many files there are.
_COST = 0.05
_JOIN_TIMEOUT_S = 2.0


class BacklogMonitor:
    """Measures now and then, and writes what it finds to the catalog.

    Args:
        catalog: Takes the measurements.
        job: Name of the job.
        generation: The driver's.
        meters: By name of the source.
        resumed: What the driver goes on from.

    """

    def __init__(
        self,
        catalog: Catalog,
        job: str,
        generation: int,
        meters: Mapping[str, SourceMeter],
        resumed: Manifest | None,
    ) -> None:
        self._catalog = catalog
        self._job = job
        self._generation = generation
        self._meters = meters
        self._ended = threading.Event()
        self._newest_event_ms: dict[str, int | None] = {}
        self._thread = threading.Thread(target=self._run, name="statecore-backlog", daemon=True)
        self._measured = False
        self._failing: set[str] = set()
        if resumed is not None:
            self._note(resumed)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; a measurement that is under way is not waited for."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT_S)

    def committed(self, manifest: Manifest) -> tuple[SourceBacklog, ...]:
        """Return what is known to wait after an epoch; nothing before the first measurement."""
        self._note(manifest)
        return self._now() if self._measured else ()

    def _note(self, manifest: Manifest) -> None:
        for source in manifest.sources:
            self._newest_event_ms[source.name] = source.max_event_time_ms
            meter = self._meters.get(source.name)
            if meter is not None and source.positions:
                try:
                    meter.committed(source.positions[0])
                except Exception:
                    # Figures are for people: no epoch fails for them.
                    log.exception("how far source %s was read cannot be told", source.name)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            began = time.monotonic()
            self._measure()
            pause_s = max(INTERVAL_S, (time.monotonic() - began) / _COST)

    def _measure(self) -> None:
        for name, meter in self._meters.items():
            self._try(name, meter.measure)
        self._measured = True
        self._try("", lambda: self._catalog.record_backlog(self._job, self._generation, self._now()))

    def _try(self, source: str, act: Callable[[], None]) -> None:
        """Do something for a source, or without its name for the catalog; a failure is told once, and stops nothing."""
        try:
            act()
        except Exception:
            # A query that is being stopped takes its session away from under a measurement.
            if source not in self._failing and not self._ended.is_set():
                log.warning("the backlog of %s cannot be known", source or self._job, exc_info=True)
            self._failing.add(source)
        else:
            self._failing.discard(source)

    def _now(self) -> tuple[SourceBacklog, ...]:
        return tuple(self._of(name, meter) for name, meter in self._meters.items())

    def _of(self, name: str, meter: SourceMeter) -> SourceBacklog:
        newest_ms = self._newest_event_ms.get(name)
        waiting = UNKNOWN
        # What was found before a failure is no answer any more.
        if name not in self._failing:
            try:
                waiting = meter.pending()
            except Exception:
                log.exception("what source %s says of itself cannot be read", name)
        return SourceBacklog(
            name=name,
            records=waiting.records,
            bytes=waiting.bytes,
            files=waiting.files,
            event_time_lag_ms=None if newest_ms is None else int(time.time() * 1000) - newest_ms,
            files_read=waiting.files_read,
        )


class QueryProgress:
    """The newest progress of a query, found by its name: the meters are made before it starts."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name

    def __call__(self) -> Mapping[str, Any] | None:
        """Return it as Spark writes it; None before the first."""
        query = next((each for each in self._spark.streams.active if each.name == self._name), None)
        progress = None if query is None else query.lastProgress
        return None if progress is None else json.loads(progress.json)
