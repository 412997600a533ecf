"""Measures the backlog of a running job at intervals, even while no epoch ends.

It runs in a separate thread, because listing a folder can take longer than the heartbeat timeout.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from statecore.catalog import Epochs, SourceBacklog
from statecore.runtime.backlog.meters import Pending, SourceMeter, unreadable
from statecore.runtime.backlog.topics import TopicMeter, source_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
# Largest share of the time spent on measuring, for any number of files.
DUTY_CYCLE = 0.05
_JOIN_TIMEOUT_S = 2.0


class BacklogMonitor:
    """Measures every source at intervals and writes the backlog to the catalog."""

    def __init__(
        self,
        epochs: Epochs,
        job: str,
        generation: int,
        meters: Mapping[str, SourceMeter],
        resumed: Manifest | None,
    ) -> None:
        self._epochs = epochs
        self._job = job
        self._generation = generation
        self._meters = meters
        self._closed = threading.Event()
        self._newest_event_ms: dict[str, int | None] = {}
        self._thread = threading.Thread(target=self._run, name="statecore-backlog", daemon=True)
        self._measured = False
        self._topics_recorded = False
        self._failing: dict[str, str] = {}
        if resumed is not None:
            self._note(resumed)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; wait at most 2 seconds for a running measurement, then record the last offsets."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT_S)
            self._try("", self._record_topics)

    def committed(self, manifest: Manifest) -> tuple[SourceBacklog, ...]:
        """Return the backlog after a committed epoch; empty before the first measurement."""
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
                    # The backlog is information only: it must not fail the epoch.
                    log.exception("cannot read the committed offset of source %s; its backlog is unknown", source.name)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            pause_s = max(INTERVAL_S, self._measure() / DUTY_CYCLE)

    def _measure(self) -> float:
        """Measure each source; return the seconds that were spent on work, not on waiting for brokers."""
        spent_s = 0.0
        for name, meter in self._meters.items():
            started = time.monotonic()
            self._try(name, meter.measure)
            if not isinstance(meter, TopicMeter):
                spent_s += time.monotonic() - started
        self._measured = True
        self._try("", self._record)
        return spent_s

    def _record(self) -> None:
        self._epochs.record_backlog(self._job, self._generation, self._now())
        self._record_topics()

    def _record_topics(self) -> None:
        """Record the lag by partition; the supervisor measures on from it while no driver runs."""
        topics = source_topics(self._meters)
        # Once in any case: an earlier release of the job may have read topics that this one does not.
        if topics or not self._topics_recorded:
            self._epochs.record_topics(self._job, self._generation, topics)
            self._topics_recorded = True

    def _try(self, source: str, action: Callable[[], None]) -> None:
        """Run an action for a source ("" for the catalog); log only the first failure in a row, and continue."""
        try:
            action()
        except Exception as error:
            if self._closed.is_set():
                # While the query stops, its session may vanish during a measurement.
                return
            if source not in self._failing:
                log.warning("cannot measure or record the backlog of %s", source or self._job, exc_info=True)
            self._failing[source] = unreadable(error)
        else:
            self._failing.pop(source, None)

    def _now(self) -> tuple[SourceBacklog, ...]:
        return tuple(self._of(name, meter) for name, meter in self._meters.items())

    def _of(self, name: str, meter: SourceMeter) -> SourceBacklog:
        newest_ms = self._newest_event_ms.get(name)
        # After a failure the last measurement is stale.
        pending = Pending(problem=self._failing.get(name))
        if pending.problem is None:
            try:
                pending = meter.pending()
            except Exception:
                log.exception("cannot read the backlog that source %s reports", name)
        lag_ms = None if newest_ms is None else int(time.time() * 1000) - newest_ms
        return SourceBacklog(name, event_time_lag_ms=lag_ms, **dataclasses.asdict(pending))


class QueryProgress:
    """The newest progress of a query, found by its name, because the meters are created before it starts."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name

    def __call__(self) -> Mapping[str, Any] | None:
        """Return the progress as Spark writes it; None before the first."""
        query = next((each for each in self._spark.streams.active if each.name == self._name), None)
        progress = None if query is None else query.lastProgress
        return None if progress is None else json.loads(progress.json)
