"""Records Spark's progress reports of a query's batches."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from statecore.catalog import (
    DataflowNode,
    DataflowRecord,
    EpochRecord,
    Epochs,
    GenerationRecord,
    SourceBacklog,
    StateFigures,
)
from statecore.errors import StatecoreError
from statecore.queries.job.driver.backlog import QueryBacklog
from statecore.queries.job.driver.lifecycle import Batch, QueryLifecycle
from statecore.redaction import redacted

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
_NAMED = 200


class Figures(StreamingQueryListener):
    """Listens to Spark's progress reports of the session's only query, and records them in the catalog.

    Args:
        epochs: Where the figures go.
        generation: The generation that runs.
        lineage: Lineage of its batches.
        lifecycle: Receives the newest batch.
        backlog: Receives Spark's progress reports.
        ui_url: Address of Spark's pages about the application, if it serves some.

    Attributes:
        has_spoken: Whether anything was recorded for this generation.

    """

    def __init__(
        self,
        epochs: Epochs,
        generation: GenerationRecord,
        lineage: int,
        lifecycle: QueryLifecycle,
        backlog: QueryBacklog,
        ui_url: str | None,
    ) -> None:
        self._epochs = epochs
        self._generation = generation
        self._lineage = lineage
        self._lifecycle = lifecycle
        self._backlog = backlog
        self._rows_total = _rows_before(epochs, generation.job)
        self._ui_url = ui_url
        self._dataflow_recorded = False
        self.has_spoken = False
        self._heard_all = threading.Event()

    def wait(self) -> None:
        """Wait for the report of the last batch: Spark reports the end of a query after it."""
        if not self._heard_all.wait(_LAST_WORD_S):
            log.warning("Spark has not told of the end of the query for %g s; figures may be missing", _LAST_WORD_S)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the driver itself started the query."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record a batch, or the backlog if the trigger ran none."""
        progress = json.loads(event.progress.json)
        try:
            self._record(progress)
        except StatecoreError as error:
            # Figures are informational: the query runs on without them.
            log.warning("the figures of batch %s are not recorded: %s", progress["batchId"], error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note that the query is idle."""
        self.note_idle()

    def note_idle(self) -> None:
        """Record that the sources have no new data; Spark reports nothing else here."""
        self.has_spoken = True
        try:
            self._backlog.idle()
            self._backlog.record()
        except StatecoreError as error:
            log.warning("it is not recorded that the query is idle: %s", error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that all reports have arrived."""
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
        backlog = self._backlog.now()
        self._epochs.record(_epoch(progress, batch, self._generation, self._rows_total, backlog))
        if not self._dataflow_recorded:
            sources = [each.name for each in backlog]
            self._epochs.record_dataflow(_dataflow(progress, self._generation, sources, self._ui_url))
            self._dataflow_recorded = True


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
        source_rows=dict(
            zip((each.name for each in backlog), (each["numInputRows"] for each in progress["sources"]), strict=False)
        ),
    )


def _dataflow(
    progress: Mapping[str, Any], generation: GenerationRecord, sources: Sequence[str], ui_url: str | None
) -> DataflowRecord:
    """Return a query's dataflow: Spark does not report how its stateful operators depend on each other."""
    query = DataflowNode(
        "operator",
        generation.job,
        ", ".join(each["operatorName"] for each in progress["stateOperators"]) or "no state",
        tuple(("source", name) for name in sources),
    )
    sink = DataflowNode("sink", redacted(progress["sink"]["description"])[:_NAMED], "", (("operator", query.name),))
    read = (DataflowNode("source", name, "") for name in sources)
    return DataflowRecord(generation.job, generation.generation, (*read, query, sink), ui_url)


def _watermark_ms(progress: Mapping[str, Any]) -> int | None:
    """Return the watermark; Spark reports 1970 before the first event time."""
    watermark = progress.get("eventTime", {}).get("watermark")
    return (None if watermark is None else _ms(watermark)) or None


def _phases(took_ms: Mapping[str, int]) -> dict[str, float]:
    """Return the phases of an epoch; Spark's own sinks publish within the batch."""
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
