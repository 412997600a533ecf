"""What waits in the sources of a query, by meters and by what Spark says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import Catalog
from statecore.queries.job.driver import backlog as module
from statecore.queries.job.driver.backlog import QueryBacklog
from statecore.runtime.backlog.meters import Pending
from tests.support.waiting import wait
from tests.unit.queries.handmade import Operator, make

FILES = {"description": "FileStreamSource[file:/in]", "endOffset": {"logOffset": 3}, "metrics": {}}
KAFKA = {
    "description": "KafkaV2[Subscribe[orders]]",
    "endOffset": {"orders": {"0": 10}},
    "latestOffset": {"orders": {"0": 15}},
    "metrics": {"maxOffsetsBehindLatest": "5"},
}


class Folder:
    """A meter of a folder of ten files."""

    def __init__(self) -> None:
        self.measured, self.read, self.fails = 0, 0, False

    def measure(self) -> None:
        self.measured += 1
        if self.fails:
            raise OSError("the folder is away")

    def committed(self, position: str) -> None:
        self.read = int(position.removeprefix('{"logOffset":').removesuffix("}")) + 1

    def pending(self) -> Pending:
        return Pending(files=10 - self.read)


class Leaf:
    def sourceName(self) -> str:
        return "FileSource[/in]"


class Frame:
    """Stands for a DataFrame whose plan nobody looks into."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    @property
    def _jdf(self) -> Any:
        if self._error is not None:
            raise self._error
        return self

    def queryExecution(self) -> Any:
        return self

    def analyzed(self) -> None:
        return None


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        make(tmp_path / "checkpoint", Operator(), batches=3)
        opened.jobs.register(
            "totals", artifact="/q", store="/s", master_url="local", parallelism=2, max_parallelism=9,
            checkpoint=str(tmp_path / "checkpoint"),
        )  # fmt: skip
        yield opened


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Folder:
    made = Folder()
    monkeypatch.setattr(module, "streaming_leaves", lambda _: [Leaf()])
    monkeypatch.setattr(module, "source_meters", lambda *_: {"0": made})
    return made


def watched(catalog: Catalog, frame: Any = None) -> QueryBacklog:
    made = QueryBacklog(catalog, catalog.generations.claim("totals", log_path="/l"))
    given: Any = frame or Frame()
    made.watch(given, catalog.jobs.get("totals"))
    return made


def test_a_folder_is_measured_from_where_the_checkpoint_stands_on(catalog: Catalog, folder: Folder) -> None:
    backlog = watched(catalog)
    (before,) = backlog.now()
    assert (before.name, before.files) == ("0 FileSource[/in]", 7)
    backlog.heard({"sources": [FILES]})
    (after,) = backlog.now()
    assert (after.name, after.files) == ("0 FileStreamSource[file:/in]", 6)


def test_it_is_measured_again_and_again_and_a_failure_makes_it_unknown(
    catalog: Catalog, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.02)
    backlog = watched(catalog)
    with backlog.measuring:
        wait(lambda: folder.measured > 2 and catalog.epochs.backlogs("totals"), "measurements")
        folder.fails = True
        wait(lambda: catalog.epochs.backlogs("totals")[-1].sources[0].files is None, "one that fails")


def test_what_spark_reports_is_unknown_once_the_query_idles(catalog: Catalog, folder: Folder) -> None:
    backlog = watched(catalog)
    # Another number of sources than the plan has: one is read twice.
    backlog.heard({"sources": [KAFKA, FILES], "eventTime": {"max": "2026-01-31T11:59:00.000Z"}})
    kafka, files = backlog.now()
    assert (kafka.records, files.files) == (5, None)
    assert kafka.event_time_lag_ms is not None
    backlog.idle()
    assert [each.records for each in backlog.now()] == [None, None]


def test_a_plan_that_cannot_be_read_does_not_keep_the_query_from_starting(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    backlog = watched(catalog, Frame(RuntimeError("no such method")))
    assert backlog.now() == ()
    assert "what waits in the sources cannot be measured" in caplog.text
