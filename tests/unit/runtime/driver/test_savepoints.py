"""Savepoints that several drivers write for one request, on hosts whose clocks differ from the database's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import Catalog
from statecore.errors import ManifestError
from statecore.runtime.driver.savepoints import SavepointWriter
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.snapshot.checkpoints import CheckpointStore
from tests.contracts.catalog.fixtures import ManualClock
from tests.support.handmade import manifest
from tests.support.shell import register

NO_SPARK: Any = None
NOW_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    """The database's."""
    return ManualClock(NOW_MS)


@pytest.fixture(params=[-60, 60])
def driver_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the drivers' hosts, seconds ahead of the database's."""
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000 + request.param)


@pytest.fixture
def catalog(catalog_url: str, clock: ManualClock, store: CheckpointStore) -> Iterator[Catalog]:
    with Catalog(catalog_url, clock=clock) as opened:
        register(opened, store)
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "store"))


@pytest.mark.usefixtures("driver_clock")
def test_the_next_driver_copies_the_epoch_that_a_dead_one_has_pinned_for_the_request(
    catalog: Catalog, store: CheckpointStore, clock: ManualClock
) -> None:
    asked = catalog.requests.send("orders", "savepoint", {"name": "now", "target": "/copies/now"}, "now")
    for epoch in (7, 8):
        clock.advance(1_000)
        # Neither comes to the copy.
        side_jobs = SideJobs(NO_SPARK)
        side_jobs.close()
        SavepointWriter(catalog, "orders", store, NO_SPARK, side_jobs).write(asked, manifest(epoch=epoch))
        assert catalog.requests.get(asked.id).state == "pending"
    assert store.manifest(store.savepoint_path("now")).epoch == 7


@pytest.mark.usefixtures("driver_clock")
def test_a_later_request_for_the_name_of_a_savepoint_is_refused(
    catalog: Catalog, store: CheckpointStore, clock: ManualClock
) -> None:
    writer = SavepointWriter(catalog, "orders", store, NO_SPARK, SideJobs(NO_SPARK))
    first = catalog.requests.send("orders", "savepoint", {"name": "now"}, "first")
    writer.write(first, manifest(epoch=7))
    clock.advance(1_000)
    second = catalog.requests.send("orders", "savepoint", {"name": "now"}, "second")
    with pytest.raises(ManifestError, match=r"found savepoint 'now' of epoch 7 .* choose another name"):
        writer.write(second, manifest(epoch=8))
    assert [catalog.requests.get(each.id).state for each in (first, second)] == ["done", "failed"]
