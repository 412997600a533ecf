from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from statecore.catalog import Catalog, ToldAlertRecord
from tests.support.waiting import PATIENCE_S

KEY = ("supervisor", "flights", "crash_loop")


def test_a_change_is_claimed_by_one_and_told_once(catalog: Catalog, clock) -> None:
    assert catalog.alerts.told("supervisor") == []
    assert catalog.alerts.claim(*KEY, firing=True, ttl_ms=1_000)
    assert not catalog.alerts.claim(*KEY, firing=True, ttl_ms=1_000)
    catalog.alerts.confirm(*KEY, firing=True)
    assert catalog.alerts.told("supervisor") == [ToldAlertRecord(*KEY, True, clock.now_ms(), 0)]
    clock.advance(10_000)
    assert not catalog.alerts.claim(*KEY, firing=True, ttl_ms=1_000)
    assert catalog.alerts.claim(*KEY, firing=False, ttl_ms=1_000)


def test_a_claim_that_came_to_nothing_is_open_to_others_once_it_has_expired(catalog: Catalog, clock) -> None:
    assert catalog.alerts.claim(*KEY, firing=True, ttl_ms=1_000)
    clock.advance(999)
    assert not catalog.alerts.claim(*KEY, firing=True, ttl_ms=1_000)
    clock.advance(1)
    assert catalog.alerts.claim(*KEY, firing=True, ttl_ms=1_000)
    assert [each.firing for each in catalog.alerts.told("supervisor")] == [False]


def test_what_never_fired_is_not_resolved(catalog: Catalog) -> None:
    assert not catalog.alerts.claim(*KEY, firing=False, ttl_ms=1_000)


def test_each_channel_tells_each_change(catalog: Catalog) -> None:
    assert catalog.alerts.claim(*KEY, firing=True, ttl_ms=1_000)
    assert catalog.alerts.claim("airflow", *KEY[1:], firing=True, ttl_ms=1_000)
    catalog.alerts.confirm(*KEY, firing=True)
    assert [each.firing for each in catalog.alerts.told("airflow")] == [False]


def test_of_several_processes_at_once_one_claims_a_change(catalog: Catalog, catalog_url: str, clock) -> None:
    callers = 4
    together = Barrier(callers, timeout=PATIENCE_S)

    def claim(_: int) -> bool:
        with Catalog(catalog_url, clock=clock) as own:
            own.alerts.told("supervisor")
            together.wait()
            return own.alerts.claim(*KEY, firing=True, ttl_ms=60_000)

    with ThreadPoolExecutor(callers) as pool:
        assert sum(pool.map(claim, range(callers))) == 1
