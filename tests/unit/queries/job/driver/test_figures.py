"""What Spark says of a batch, as the catalog has it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.catalog import Catalog
from statecore.catalog.figures import StateFigures
from statecore.catalog.records import GenerationRecord
from statecore.queries.job.driver.backlog import QueryBacklog
from statecore.queries.job.driver.figures import Figures
from statecore.queries.job.driver.lifecycle import Batch, QueryLifecycle

STARTED = "2026-01-31T12:00:00.500Z"
STARTED_MS = 1_769_860_800_500


def progress(batch: int, rows: int, **changes: Any) -> dict[str, Any]:
    """Return the account of a batch, in the form of Spark 4.3."""
    return {
        "name": "totals",
        "timestamp": STARTED,
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"addBatch": 700, "commitBatch": 40, "latestOffset": 10, "triggerExecution": 800},
        "eventTime": {"max": "2026-01-31T11:59:00.000Z", "watermark": "2026-01-31T11:58:00.000Z"},
        "stateOperators": [
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": 7,
                "memoryUsedBytes": 900,
                "numRowsDroppedByWatermark": 3,
            },
            {
                "operatorName": "dedupe",
                "numRowsTotal": 5,
                "memoryUsedBytes": 100,
                "numRowsDroppedByWatermark": 0,
                "customMetrics": {"rocksdbSstFileSize": 4_000},
            },
        ],
        "sources": [
            {
                "description": "KafkaV2[Subscribe[orders]]",
                "numInputRows": 8,
                "endOffset": {"orders": {"0": 10, "1": 20}},
                "latestOffset": {"orders": {"0": 15, "1": 22}},
                "metrics": {"maxOffsetsBehindLatest": "5"},
            },
            {
                "description": "FileStreamSource[file:/in]",
                "numInputRows": 2,
                "endOffset": {"logOffset": 1},
                "metrics": {},
            },
        ],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
        **changes,
    }


class Place:
    def __init__(self, catalog: Catalog) -> None:
        catalog.jobs.register(
            "totals", artifact="/q", store="/s", master_url="local", parallelism=2, max_parallelism=9, checkpoint="/c"
        )
        self.catalog, self.lifecycle = catalog, QueryLifecycle()
        self.generation: GenerationRecord = catalog.generations.claim("totals", log_path="/l")
        self.backlog = QueryBacklog(catalog, self.generation)
        self.figures = Figures(catalog.epochs, self.generation, 3, self.lifecycle, self.backlog, "http://driver:4040")

    def hear(self, account: dict[str, Any]) -> None:
        event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(account)))
        self.figures.onQueryProgress(event)


@pytest.fixture
def place(catalog_url: str) -> Place:
    return Place(Catalog(catalog_url))


def test_a_batch_is_an_epoch(place: Place) -> None:
    place.hear(progress(4, 100))
    place.hear(progress(5, 50))
    first, second = place.catalog.epochs.of("totals")
    assert (first.lineage, first.epoch, first.rows, first.rows_total, first.parallelism) == (3, 4, 100, 100, 2)
    assert (second.epoch, second.rows_total) == (5, 150)
    assert (first.started_ms, first.committed_ms, first.duration_ms) == (STARTED_MS, STARTED_MS + 800, 800)
    assert first.phases == {"run": 710.0, "read": 10.0, "commit": 90.0, "publish": 0.0}
    assert (first.state_rows, first.state_bytes, first.rows_out) == (12, 1000, 0)
    assert first.watermark_ms == STARTED_MS - 120_500
    assert first.state == (
        StateFigures("0 stateStoreSave", rows=7, memory_bytes=900, disk_bytes=None),
        StateFigures("1 dedupe", rows=5, memory_bytes=100, disk_bytes=4_000),
    )
    assert first.late_rows == {"0 stateStoreSave": 3}
    assert place.lifecycle.newest == Batch(3, 5)
    assert place.lifecycle.batch_s == 0.8


def test_what_waits_is_what_the_sources_report(place: Place) -> None:
    place.hear(progress(4, 100))
    kafka, files = place.catalog.epochs.of("totals")[0].backlog
    assert (kafka.name, kafka.records, kafka.partitions) == ("0 KafkaV2[Subscribe[orders]]", 7, 2)
    assert (files.records, files.files, files.bytes) == (None, None, None)
    assert kafka.event_time_lag_ms is not None
    assert kafka.event_time_lag_ms > 0


def test_what_a_query_reads_and_writes_is_known_from_its_first_batch(place: Place) -> None:
    place.hear(progress(4, 10))
    assert place.catalog.epochs.of("totals")[0].source_rows == {
        "0 KafkaV2[Subscribe[orders]]": 8,
        "1 FileStreamSource[file:/in]": 2,
    }
    dataflow = place.catalog.epochs.dataflow("totals")
    assert dataflow is not None
    assert (dataflow.generation, dataflow.ui_url) == (1, "http://driver:4040")
    *sources, query, sink = dataflow.nodes
    assert [each.name for each in sources] == ["0 KafkaV2[Subscribe[orders]]", "1 FileStreamSource[file:/in]"]
    assert (query.kind, query.does) == ("operator", "stateStoreSave, dedupe")
    assert query.inputs == tuple(("source", each.name) for each in sources)
    assert (sink.kind, sink.name, sink.inputs) == ("sink", "ForeachBatchSink", (("operator", "totals"),))


def test_an_idle_query_tells_what_waits_and_counts_no_batch(place: Place) -> None:
    place.hear(progress(6, 0, durationMs={"latestOffset": 3, "triggerExecution": 3}, eventTime={}))
    assert place.catalog.epochs.of("totals") == []
    (measured,) = place.catalog.epochs.backlogs("totals")
    assert [each.event_time_lag_ms for each in measured.sources] == [None, None]
    assert place.lifecycle.newest is None


def test_of_an_idle_query_spark_tells_nothing_but_that(place: Place) -> None:
    idle: Any = None
    place.figures.onQueryIdle(idle)
    place.hear(progress(4, 100))
    place.figures.onQueryIdle(idle)
    newest = place.catalog.epochs.backlogs("totals")[-1]
    assert [(each.name[0], each.records) for each in newest.sources] == [("0", None), ("1", None)]


def test_rows_are_counted_on_over_drivers(place: Place) -> None:
    place.hear(progress(4, 100))
    later = Figures(place.catalog.epochs, place.generation, 3, place.lifecycle, place.backlog, None)
    event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress(5, 1))))
    later.onQueryProgress(event)
    assert place.catalog.epochs.of("totals")[-1].rows_total == 101


def test_figures_that_cannot_be_recorded_do_not_end_the_query(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.figures = Figures(
        place.catalog.epochs, replace(place.generation, job="gone"), 3, place.lifecycle, place.backlog, None
    )
    place.hear(progress(4, 100))
    assert "the figures of batch 4 are not recorded" in caplog.text
    assert place.lifecycle.newest == Batch(3, 4)


def test_the_end_is_awaited(place: Place) -> None:
    ended: Any = None
    place.figures.onQueryTerminated(ended)
    place.figures.wait()
