"""Hosts whose clocks differ share a catalog: its database's clock judges what they write."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from statecore.catalog import Catalog, SystemClock
from statecore.errors import LeaseHeldError
from statecore.operations.changes.change import require_free
from statecore.operations.status.job_status import job_status
from tests.support.postgres import Database

SKEW_MS = 21_000
"""More than a driver may be silent."""


@pytest.fixture
def catalog(catalog_url: str, register: Callable[[Catalog, str], str]) -> Iterator[Catalog]:
    """A catalog with a job; its clock is the database's."""
    with Catalog(catalog_url) as catalog:
        register(catalog, "flights")
        catalog.jobs.set_desired("flights", state="running")
        yield catalog


@pytest.fixture(params=[SKEW_MS, -SKEW_MS])
def skewed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the rest of the test run on a host whose clock is wrong."""
    honest = SystemClock.now_ms
    return lambda: monkeypatch.setattr(SystemClock, "now_ms", lambda self: honest(self) + request.param)


def test_a_host_whose_clock_is_wrong_sees_a_live_driver_alive(catalog: Catalog, skewed) -> None:
    catalog.generations.claim("flights", log_path="log")
    catalog.generations.heartbeat("flights", 1)
    skewed()
    assert catalog.generations.is_alive(catalog.generations.newest("flights"))
    assert catalog.generations.fail_lost("flights") is None
    assert job_status(catalog, catalog.jobs.get("flights")).driver == "running"


def test_a_heartbeat_from_a_host_whose_clock_is_wrong_counts(
    catalog: Catalog, skewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.generations.claim("flights", log_path="log")
    skewed()
    catalog.generations.heartbeat("flights", 1)
    monkeypatch.undo()
    assert catalog.generations.fail_lost("flights") is None
    newest = catalog.generations.newest("flights")
    assert newest is not None and 0 <= catalog.now_ms() - newest.heartbeat_ms < SKEW_MS


def test_a_lease_lasts_as_long_on_a_host_whose_clock_is_wrong(catalog: Catalog, skewed) -> None:
    catalog.leases.acquire("flights", "run-1", SKEW_MS // 2)
    skewed()
    assert catalog.leases.expired() == [] and catalog.leases.recover_expired("flights") is None
    with pytest.raises(LeaseHeldError):
        catalog.leases.acquire("flights", "run-2", 60_000)
    with pytest.raises(LeaseHeldError):
        require_free(catalog, "flights", "run-2")


def test_the_time_is_the_databases(catalog: Catalog, catalog_url: str, postgres_catalog: Database) -> None:
    seconds = "SELECT extract(epoch FROM clock_timestamp())"
    before, found, after = postgres_catalog(seconds)[0][0], catalog.now_ms(), postgres_catalog(seconds)[0][0]
    assert before * 1000 - 1 <= found <= after * 1000
