"""How a generation stops: drained, closed, and only then is the query ended; heartbeats go on throughout."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from statecore.catalog import Catalog
from statecore.errors import CommitForbiddenError
from statecore.release import RELEASE
from statecore.runtime.driver import control as control_module
from statecore.runtime.driver.control import Control
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.generation import heartbeats as heartbeats_module
from statecore.runtime.generation.heartbeats import heartbeats
from tests.support.handmade import manifest
from tests.support.waiting import wait

JOB = "orders"


class Query:
    """Counts how often it was stopped; the first ``failures`` stops fail."""

    def __init__(self, failures: int = 0) -> None:
        self.stops = 0
        self._failures = failures

    def stop(self) -> None:
        self.stops += 1
        if self.stops <= self._failures:
            raise RuntimeError("py4j is busy")


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(heartbeats_module, "INTERVAL_S", 0.01)


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        opened.jobs.register(
            JOB, artifact="a.py", store=str(tmp_path), master_url="local", parallelism=2, max_parallelism=16
        )
        opened.jobs.set_desired(JOB, state="running")
        opened.generations.claim(JOB, log_path="")
        yield opened


@contextmanager
def controlled(catalog: Catalog, lifecycle: Lifecycle, query: Query, boundary: threading.Lock) -> Iterator[Control]:
    wired: Any = SimpleNamespace(runner=SimpleNamespace(boundary=boundary), side_jobs=SideJobs(cast(Any, None)))
    with Control(catalog.requests, JOB, cast(Any, query), lifecycle, wired) as control:
        yield control


def test_a_draining_generation_commits_the_epoch_in_flight_and_begins_no_other() -> None:
    lifecycle = Lifecycle()
    lifecycle.drain()
    with lifecycle.committing():
        pass
    with pytest.raises(CommitForbiddenError, match="the next driver runs this epoch first"):
        lifecycle.check_open()
    lifecycle.close("a test asks")
    with pytest.raises(CommitForbiddenError, match="epoch not committed: a test asks"), lifecycle.committing():
        pass


def test_the_query_is_stopped_after_the_epoch_in_flight_and_once(catalog: Catalog) -> None:
    lifecycle, query, boundary = Lifecycle(), Query(), threading.Lock()
    with controlled(catalog, lifecycle, query, boundary) as control:
        with boundary:
            asked = catalog.requests.send(JOB, "stop_with_savepoint", {"name": "end"}, "end")
            wait(lambda: control.request is not None, "the request to be accepted")
            assert not lifecycle.closed
            assert query.stops == 0
        wait(lambda: query.stops == 1, "the query to be stopped")
        assert lifecycle.closed
        assert control.request is not None
        assert control.request.id == asked.id
    assert query.stops == 1


def test_a_stop_of_the_query_that_fails_is_repeated(catalog: Catalog) -> None:
    lifecycle, query = Lifecycle(), Query(failures=2)
    lifecycle.close("a test asks")
    with controlled(catalog, lifecycle, query, threading.Lock()):
        wait(lambda: query.stops == 3, "the third try")


def test_heartbeats_report_the_newest_epoch_and_end_with_a_newer_generation(catalog: Catalog) -> None:
    lifecycle, query = Lifecycle(), Query()
    with heartbeats(catalog, JOB, 1, lifecycle):
        lifecycle.trigger_ms = 2_000
        lifecycle.started(manifest(lineage=2, epoch=7))
        wait(lambda: catalog.generations.of(JOB)[0].state == "running", "a heartbeat")
        assert (catalog.generations.of(JOB)[0].version, catalog.generations.of(JOB)[0].trigger_ms) == (RELEASE, 2_000)
        assert (catalog.generations.of(JOB)[0].lineage, catalog.generations.of(JOB)[0].epoch) == (2, 7)
        assert not lifecycle.superseded
        catalog.generations.end(JOB, 1, state="failed", error="lost")
        catalog.generations.claim(JOB, log_path="")
        wait(lambda: lifecycle.superseded, "the driver to notice")
    with pytest.raises(CommitForbiddenError, match="a newer generation runs the job"), lifecycle.committing():
        pass
    with controlled(catalog, lifecycle, query, threading.Lock()) as control:
        wait(lambda: query.stops == 1, "the query to be stopped")
        assert control.request is None


def test_a_driver_that_hung_commits_nothing_if_it_wakes_up(catalog: Catalog) -> None:
    lifecycle, killed = Lifecycle(), threading.Event()
    lifecycle.watchdog = cast(Any, SimpleNamespace(hang=lambda: "found no answer", kill=killed.set))
    with heartbeats(catalog, JOB, 1, lifecycle):
        wait(lambda: lifecycle.closed, "the end")
    newest = catalog.generations.newest(JOB)
    assert newest is not None and (newest.state, newest.error) == ("failed", "found no answer")
    assert killed.is_set()
    with (
        pytest.raises(CommitForbiddenError, match="epoch not committed: its generation has ended"),
        lifecycle.committing(),
    ):
        pass


def test_commits_are_forbidden_once_the_job_is_stopping() -> None:
    lifecycle = Lifecycle()
    inside, leave = threading.Event(), threading.Event()

    def commit() -> None:
        with lifecycle.committing():
            inside.set()
            leave.wait(10)

    committer = threading.Thread(target=commit, daemon=True)
    committer.start()
    inside.wait(10)
    stopper = threading.Thread(target=lifecycle.close, args=("a test asks",), daemon=True)
    stopper.start()
    stopper.join(0.3)
    assert stopper.is_alive(), "a stop waits for the manifest that is being written"
    leave.set()
    committer.join(10)
    stopper.join(10)
    with pytest.raises(Exception, match="a test asks"), lifecycle.committing():
        pass
