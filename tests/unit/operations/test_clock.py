"""Whoever judges a lease or a heartbeat asks the catalog for the time, not its own host."""

from __future__ import annotations

import pytest

from statecore.catalog import Catalog, SystemClock
from statecore.errors import LeaseHeldError
from statecore.operations.changes.change import require_free
from statecore.operations.status.job_status import job_status
from tests.contracts.catalog.fixtures import ManualClock, register


@pytest.fixture
def skewed(catalog_url: str) -> Catalog:
    """A catalog whose clock is 21 s behind this host's."""
    catalog = Catalog(catalog_url, clock=ManualClock(SystemClock().now_ms() - 21_000))
    register(catalog, "flights")
    catalog.jobs.set_desired("flights", state="running")
    return catalog


def test_a_live_driver_is_not_lost(skewed: Catalog) -> None:
    skewed.generations.claim("flights", log_path="log")
    skewed.generations.heartbeat("flights", 1)
    found = job_status(skewed, skewed.jobs.get("flights"))
    assert found.driver == "running" and found.now_ms == skewed.now_ms()


def test_a_lease_that_has_not_expired_is_respected(skewed: Catalog) -> None:
    skewed.leases.acquire("flights", "run-1", 20_000)
    with pytest.raises(LeaseHeldError):
        require_free(skewed, "flights", "run-2")
