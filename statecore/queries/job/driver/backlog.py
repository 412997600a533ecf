"""Backlog of a query's sources: measured at intervals, and as Spark reports it after a batch."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from statecore.catalog import Catalog, GenerationRecord, JobRecord, SourceBacklog
from statecore.queries.reading.checkpoint import newest_batches, read_offsets
from statecore.queries.reading.files import is_local, local_path
from statecore.redaction import redacted
from statecore.repeating import Repeating
from statecore.runtime.backlog.detection import source_meters, streaming_leaves
from statecore.runtime.backlog.meters import UNKNOWN, Pending, ProgressMeter, SourceMeter, unreadable
from statecore.runtime.backlog.monitor import DUTY_CYCLE, INTERVAL_S
from statecore.runtime.backlog.topics import TopicMeter, source_topics
from statecore.storage import open_store
from statecore.storage.urls import normal_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_NOTHING_YET = "-"


class QueryBacklog:
    """The backlog of one generation's query.

    Args:
        catalog: Where measurements go.
        generation: The generation that runs.

    """

    def __init__(self, catalog: Catalog, generation: GenerationRecord) -> None:
        self._catalog = catalog
        self._generation = generation
        self._meters: Sequence[SourceMeter] = ()
        self._progress: Mapping[str, Any] | None = None
        self._names: Sequence[str] = ()
        self._failing: dict[int, str] = {}
        self._due_s = 0.0
        self._topics_recorded = False
        # Stopped, not closed: a listing that takes minutes must not hold up the end of the query.
        self.measuring = Repeating("measurement of what waits", self._measure, INTERVAL_S, is_due=self._is_due)

    def watch(self, df: DataFrame, job: JobRecord) -> None:
        """Find a meter for each source of a query that is about to start; without one, the backlog is unknown.

        Spark itself reports the backlog of some sources. The backlog of a file source is computed from its folder and
        the checkpoint, if both can be read here.
        """
        try:
            self._watch(df, job)
        except Exception:
            log.warning("what waits in the sources cannot be measured", exc_info=True)
            self._meters = ()

    def _watch(self, df: DataFrame, job: JobRecord) -> None:
        assert job.checkpoint is not None
        leaves = streaming_leaves(df._jdf.queryExecution().analyzed())
        self._names = [redacted(f"{number} {leaf.sourceName()}") for number, leaf in enumerate(leaves)]
        if not is_local(job.checkpoint):
            return
        meters = source_meters(
            df, list(map(str, range(len(leaves)))), local_path(job.checkpoint), lambda: self._progress
        )
        self._meters = list(meters.values())
        store = open_store(normal_url(job.checkpoint))
        batch, _ = newest_batches(store)
        if batch is not None:
            for number, offset in enumerate(read_offsets(store, batch).sources[: len(self._meters)]):
                if offset != _NOTHING_YET:
                    self._try(number, lambda meter=self._meters[number], at=offset: meter.committed(at))

    def heard(self, progress: Mapping[str, Any]) -> None:
        """Record Spark's progress report of a batch, or of a trigger without one."""
        sources = progress["sources"]
        if len(sources) != len(self._meters):
            # A source that the query reads twice is one source, with one number.
            self._meters = [ProgressMeter(lambda number=number: self._of(number)) for number in range(len(sources))]  # type: ignore[misc]
        self._progress = progress
        self._names = [redacted(f"{number} {each['description']}")[:200] for number, each in enumerate(sources)]
        for number, (source, meter) in enumerate(zip(sources, self._meters, strict=True)):
            if isinstance(meter, ProgressMeter):
                self._try(number, meter.measure)
            if source.get("endOffset") is not None:
                at = json.dumps(source["endOffset"])
                self._try(number, lambda meter=meter, at=at: meter.committed(at))

    def idle(self) -> None:
        """Discard Spark's report of the last batch: the backlog of an idle query may have changed since."""
        self._progress = None
        for number, meter in enumerate(self._meters):
            if isinstance(meter, ProgressMeter):
                self._try(number, meter.measure)

    def now(self) -> tuple[SourceBacklog, ...]:
        """Return the backlog of each source."""
        lag_ms = None if self._progress is None else _lag_ms(self._progress, self._catalog.now_ms())
        return tuple(
            SourceBacklog(name=name, event_time_lag_ms=lag_ms, **dataclasses.asdict(self._pending(number)))
            for number, name in enumerate(self._names)
        )

    def record(self) -> None:
        """Record the backlog between batches.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        job, generation = self._generation.job, self._generation.generation
        self._catalog.epochs.record_backlog(job, generation, self.now())
        topics = source_topics(dict(zip(self._names, self._meters, strict=False)))
        # Once in any case: an earlier release of the query may have read topics that this one does not.
        if topics or not self._topics_recorded:
            self._catalog.epochs.record_topics(job, generation, topics)
            self._topics_recorded = True

    def _is_due(self) -> bool:
        return time.monotonic() >= self._due_s

    def _measure(self) -> None:
        began_s, took_s = time.monotonic(), 0.0
        measured = [
            (number, meter) for number, meter in enumerate(self._meters) if not isinstance(meter, ProgressMeter)
        ]
        for number, meter in measured:
            started_s = time.monotonic()
            self._try(number, meter.measure)
            # To wait for brokers is no work.
            took_s += 0.0 if isinstance(meter, TopicMeter) else time.monotonic() - started_s
        self._due_s = began_s + took_s + took_s / DUTY_CYCLE
        if measured:
            self.record()

    def _pending(self, number: int) -> Pending:
        if number in self._failing:
            return Pending(problem=self._failing[number])
        if number < len(self._meters):
            try:
                return self._meters[number].pending()
            except Exception:
                log.exception("the backlog of source %s cannot be read", self._names[number])
        return UNKNOWN

    def _of(self, number: int) -> Mapping[str, Any] | None:
        return None if self._progress is None else self._progress["sources"][number]

    def _try(self, number: int, action: Any) -> None:
        """Run an action for a source; log errors, because the backlog is informational and must not end the query."""
        try:
            action()
        except Exception as error:
            if number not in self._failing:
                log.warning("the backlog of source %s cannot be measured", self._names[number], exc_info=True)
            self._failing[number] = unreadable(error)
        else:
            self._failing.pop(number, None)


def _lag_ms(progress: Mapping[str, Any], now_ms: int) -> int | None:
    newest = progress.get("eventTime", {}).get("max")
    return None if newest is None else max(0, now_ms - round(datetime.fromisoformat(newest).timestamp() * 1000))
