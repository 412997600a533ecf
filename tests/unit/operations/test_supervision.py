"""A job is not stopped while nobody would start it again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import NoSupervisorError
from statecore.operations.changes import BeginRescale, Change, RescaleRequest, StopWithSavepoint, plan
from statecore.operations.changes.upgrade import BeginUpgrade
from statecore.snapshot.checkpoints import CheckpointStore
from tests.contracts.catalog.fixtures import ManualClock
from tests.support.shell import committed
from tests.support.supervised import supervise

SILENT_MS = 30_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def catalog(catalog_url: str, clock: ManualClock, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a job that runs and has committed an epoch."""
    store = CheckpointStore.at(str(tmp_path / "store"))
    committed(store)
    with Catalog(catalog_url, clock=clock) as catalog:
        catalog.jobs.register(
            "orders", artifact="/a", store=store.files.url, master_url="m", parallelism=2, max_parallelism=16
        )
        catalog.jobs.set_desired("orders", state="running")
        yield catalog


def change(catalog: Catalog) -> Change:
    return Change(catalog, "orders", "run-1", 60_000, logging.getLogger(__name__))


STOPPING = RescaleRequest(job="orders", parallelism=4, method="by_reference")

ACTS: list[Callable[[Catalog], object]] = [
    lambda catalog: plan(catalog, STOPPING),
    lambda catalog: BeginRescale(change=change(catalog), request=STOPPING).begin(),
    lambda catalog: BeginUpgrade(change=change(catalog), artifact="/b").begin(),
]


@pytest.mark.parametrize("act", ACTS, ids=["plan", "rescale", "upgrade"])
def test_it_is_refused_while_no_supervisor_lives(
    catalog: Catalog, clock: ManualClock, act: Callable[[Catalog], object]
) -> None:
    with pytest.raises(NoSupervisorError, match=r"no living supervisor; .*start `statecore supervisor --logs"):
        act(catalog)
    supervise(catalog)
    clock.advance(SILENT_MS)
    with pytest.raises(NoSupervisorError, match="the last one, pid 1 on tests, has been silent for 30 s"):
        act(catalog)
    assert catalog.leases.find("orders") is None
    supervise(catalog)
    act(catalog)


def test_a_supervisor_that_dies_before_the_stop_leaves_the_job_running(catalog: Catalog, clock: ManualClock) -> None:
    supervise(catalog)
    lease = BeginRescale(change=change(catalog), request=STOPPING)
    lease.begin()
    lease.ask()
    clock.advance(SILENT_MS)
    stop = StopWithSavepoint(change=change(catalog))
    with pytest.raises(NoSupervisorError, match="has been silent for 30 s"):
        stop.ask()
    assert catalog.jobs.get("orders").desired_state == "running" and stop.request_id is None
    supervise(catalog)
    stop.ask()
    assert catalog.jobs.get("orders").desired_state == "stopped" and stop.request_id is not None
    # A retry goes on with what was asked for: the job is stopping, whoever lives.
    clock.advance(SILENT_MS)
    StopWithSavepoint(change=change(catalog)).ask()


def test_a_job_is_stopped_for_good_without_a_supervisor(catalog: Catalog) -> None:
    catalog.leases.acquire("orders", "run-1", 60_000)
    StopWithSavepoint(change=change(catalog), for_good=True).ask()
    assert catalog.jobs.get("orders").desired_state == "stopped"


def test_a_live_rescale_stops_nothing(catalog: Catalog) -> None:
    catalog.generations.claim("orders", log_path="log")
    catalog.generations.heartbeat("orders", 1)
    request = RescaleRequest(job="orders", parallelism=4)
    assert request.checked(catalog).name == "orders"
