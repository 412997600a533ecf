"""Records what Spark says of each batch of a query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from statecore.catalog import Catalog, EpochRecord, GenerationRecord, SourceBacklog
from statecore.errors import StatecoreError
from statecore.queries.driver.lifecycle import Batch, QueryLifecycle
from statecore.runtime.backlog.meters import ProgressMeter

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)

_WHOLE = "triggerExecution"
_RUN = "addBatch"
_LAST_WORD_S = 10.0


class Figures(StreamingQueryListener):
    """Hears Spark's account of each batch of the session's one query, and tells the catalog.

    Args:
        catalog: Where the figures go.
        generation: The generation that runs.
        lineage: Lineage of its batches.
        lifecycle: Is told the newest batch.

    Attributes:
        has_spoken: Whether anything was recorded of this generation's query.

    """

    def __init__(self, catalog: Catalog, generation: GenerationRecord, lineage: int, lifecycle: QueryLifecycle) -> None:
        self._catalog = catalog
        self._generation = generation
        self._lineage = lineage
        self._lifecycle = lifecycle
        self._rows_total = _rows_before(catalog, generation.job)
        self.has_spoken = False
        self._sources: tuple[SourceBacklog, ...] = ()
        self._heard_all = threading.Event()

    def wait(self) -> None:
        """Wait until the account of the last batch was heard; Spark tells of a query's end after it."""
        if not self._heard_all.wait(_LAST_WORD_S):
            log.warning("Spark has not told of the end of the query for %g s; figures may be missing", _LAST_WORD_S)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the driver knows."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record a batch, or what waits while there is none."""
        progress = json.loads(event.progress.json)
        try:
            self._record(progress)
        except StatecoreError as error:
            # Figures are information only: the query goes on without.
            log.warning("the figures of batch %s are not recorded: %s", progress["batchId"], error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note that the query is idle."""
        self.note_idle()

    def note_idle(self) -> None:
        """Note that the sources have nothing that the query would take, which is all that Spark tells here."""
        self.has_spoken = True
        try:
            unknown = tuple(SourceBacklog(each.name) for each in self._sources)
            self._catalog.record_backlog(self._generation.job, self._generation.generation, unknown)
        except StatecoreError as error:
            log.warning("it is not recorded that the query is idle: %s", error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that all was heard."""
        self._heard_all.set()

    def _record(self, progress: Mapping[str, Any]) -> None:
        self._sources = backlog = tuple(_backlog(progress, self._catalog.now_ms()))
        if _RUN not in progress["durationMs"]:
            self._catalog.record_backlog(self._generation.job, self._generation.generation, backlog)
            return
        self.has_spoken = True
        batch = Batch(self._lineage, progress["batchId"])
        self._rows_total += progress["numInputRows"]
        self._lifecycle.newest, self._lifecycle.batch_s = batch, progress["durationMs"][_WHOLE] / 1000
        self._catalog.record_epoch(_epoch(progress, batch, self._generation, self._rows_total, backlog))


def _epoch(
    progress: Mapping[str, Any],
    batch: Batch,
    generation: GenerationRecord,
    rows_total: int,
    backlog: tuple[SourceBacklog, ...],
) -> EpochRecord:
    phases, operators = dict(progress["durationMs"]), progress["stateOperators"]
    duration_ms = phases.pop(_WHOLE)
    started_ms = _ms(progress["timestamp"])
    return EpochRecord(
        job=generation.job,
        lineage=batch.lineage,
        epoch=batch.epoch,
        generation=generation.generation,
        parallelism=generation.parallelism,
        rows=progress["numInputRows"],
        rows_total=rows_total,
        started_ms=started_ms,
        committed_ms=started_ms + duration_ms,
        duration_ms=duration_ms,
        phases={name: float(ms) for name, ms in phases.items()},
        backlog=backlog,
        late_rows=_late_rows(operators),
        # Sinks that do not count say -1.
        rows_out=max(0, progress["sink"].get("numOutputRows", 0)),
        state_rows=sum(each["numRowsTotal"] for each in operators),
        state_bytes=sum(each["memoryUsedBytes"] for each in operators),
    )


def _late_rows(operators: list[Mapping[str, Any]]) -> dict[str, int]:
    """Return the rows that each stateful operator dropped because of the watermark, as ``0 stateStoreSave``."""
    return {
        f"{number} {each['operatorName']}": each["numRowsDroppedByWatermark"]
        for number, each in enumerate(operators)
        if each["numRowsDroppedByWatermark"]
    }


def _backlog(progress: Mapping[str, Any], now_ms: int) -> Iterator[SourceBacklog]:
    newest = progress.get("eventTime", {}).get("max")
    lag_ms = None if newest is None else max(0, now_ms - _ms(newest))
    for number, source in enumerate(progress["sources"]):
        meter = ProgressMeter(lambda source=source: source)  # type: ignore[misc]
        meter.measure()
        pending = meter.pending()
        yield SourceBacklog(
            name=f"{number} {source['description']}"[:200],
            records=pending.records,
            bytes=pending.bytes,
            files=pending.files,
            partitions=pending.partitions,
            event_time_lag_ms=lag_ms,
        )


def _ms(timestamp: str) -> int:
    """Return Spark's ``2026-01-31T12:00:00.000Z`` in milliseconds since the epoch."""
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _rows_before(catalog: Catalog, job: str) -> int:
    newest = next(iter(catalog.epochs(job, limit=1)), None)
    return 0 if newest is None else newest.rows_total
