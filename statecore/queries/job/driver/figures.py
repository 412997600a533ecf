"""Records what Spark says of each batch of a query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from statecore.catalog import EpochRecord, Epochs, GenerationRecord, SourceBacklog, StateFigures
from statecore.errors import StatecoreError
from statecore.queries.job.driver.backlog import QueryBacklog
from statecore.queries.job.driver.lifecycle import Batch, QueryLifecycle

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
_READ = ("latestOffset", "getOffset", "getBatch", "queryPlanning")
_ON_DISK = "rocksdbSstFileSize"
_LAST_WORD_S = 10.0


class Figures(StreamingQueryListener):
    """Hears Spark's account of each batch of the session's one query, and tells the catalog.

    Args:
        epochs: Where the figures go.
        generation: The generation that runs.
        lineage: Lineage of its batches.
        lifecycle: Is told the newest batch.
        backlog: Is told what Spark says of the sources.

    Attributes:
        has_spoken: Whether anything was recorded of this generation's query.

    """

    def __init__(
        self,
        epochs: Epochs,
        generation: GenerationRecord,
        lineage: int,
        lifecycle: QueryLifecycle,
        backlog: QueryBacklog,
    ) -> None:
        self._epochs = epochs
        self._generation = generation
        self._lineage = lineage
        self._lifecycle = lifecycle
        self._backlog = backlog
        self._rows_total = _rows_before(epochs, generation.job)
        self.has_spoken = False
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
            self._backlog.idle()
            self._backlog.record()
        except StatecoreError as error:
            log.warning("it is not recorded that the query is idle: %s", error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that all was heard."""
        self._heard_all.set()

    def _record(self, progress: Mapping[str, Any]) -> None:
        self._backlog.heard(progress)
        if _RUN not in progress["durationMs"]:
            self._backlog.record()
            return
        self.has_spoken = True
        batch = Batch(self._lineage, progress["batchId"])
        self._rows_total += progress["numInputRows"]
        self._lifecycle.newest, self._lifecycle.batch_s = batch, progress["durationMs"][_WHOLE] / 1000
        self._epochs.record(_epoch(progress, batch, self._generation, self._rows_total, self._backlog.now()))


def _epoch(
    progress: Mapping[str, Any],
    batch: Batch,
    generation: GenerationRecord,
    rows_total: int,
    backlog: tuple[SourceBacklog, ...],
) -> EpochRecord:
    operators, duration_ms = progress["stateOperators"], progress["durationMs"][_WHOLE]
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
        phases=_phases(progress["durationMs"]),
        backlog=backlog,
        late_rows=_late_rows(operators),
        # Sinks that do not count say -1.
        rows_out=max(0, progress["sink"].get("numOutputRows", 0)),
        state_rows=sum(each["numRowsTotal"] for each in operators),
        state_bytes=sum(each["memoryUsedBytes"] for each in operators),
        state=tuple(_state(number, each) for number, each in enumerate(operators)),
        watermark_ms=_watermark_ms(progress),
    )


def _watermark_ms(progress: Mapping[str, Any]) -> int | None:
    """Return the watermark; Spark says 1970 before the first event time."""
    found = progress.get("eventTime", {}).get("watermark")
    return (None if found is None else _ms(found)) or None


def _phases(took_ms: Mapping[str, int]) -> dict[str, float]:
    """Return the phases of an epoch; a sink of Spark's own publishes within the batch."""
    read = float(sum(took_ms.get(name, 0) for name in _READ))
    run = read + took_ms[_RUN]
    return {"run": run, "read": read, "commit": max(0.0, took_ms[_WHOLE] - run), "publish": 0.0}


def _state(number: int, operator: Mapping[str, Any]) -> StateFigures:
    return StateFigures(
        operator=f"{number} {operator['operatorName']}",
        rows=operator["numRowsTotal"],
        memory_bytes=operator["memoryUsedBytes"],
        disk_bytes=operator.get("customMetrics", {}).get(_ON_DISK),
    )


def _late_rows(operators: list[Mapping[str, Any]]) -> dict[str, int]:
    """Return the rows that each stateful operator dropped because of the watermark, as ``0 stateStoreSave``."""
    return {
        f"{number} {each['operatorName']}": each["numRowsDroppedByWatermark"]
        for number, each in enumerate(operators)
        if each["numRowsDroppedByWatermark"]
    }


def _ms(timestamp: str) -> int:
    """Return Spark's ``2026-01-31T12:00:00.000Z`` in milliseconds since the epoch."""
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _rows_before(epochs: Epochs, job: str) -> int:
    newest = next(iter(epochs.of(job, limit=1)), None)
    return 0 if newest is None else newest.rows_total
