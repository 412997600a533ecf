from __future__ import annotations

from typing import Any

from statecore.catalog import Catalog


def test_savepoints_are_recorded_once_and_listed_newest_first(catalog: Catalog, job: str, clock) -> None:
    what: dict[str, Any] = {"job": job, "parallelism": 2, "reason": "rescale"}
    first = catalog.savepoints.record("/sp/1", lineage=1, epoch=3, **what)
    clock.advance(10)
    second = catalog.savepoints.record("/sp/2", lineage=1, epoch=9, **what)
    assert catalog.savepoints.record("/sp/1", lineage=1, epoch=3, **what) == first
    assert catalog.savepoints.of(job) == [second, first]


def test_another_savepoint_in_the_place_of_one_that_is_gone_replaces_it(catalog: Catalog, job: str, register) -> None:
    register(catalog, "other")
    catalog.savepoints.record("/sp/1", job=job, lineage=1, epoch=3, parallelism=2, reason="first")
    replaced = catalog.savepoints.record("/sp/1", job=job, lineage=1, epoch=4, parallelism=2, reason="second")
    assert (replaced.epoch, replaced.reason, catalog.savepoints.of(job)) == (4, "second", [replaced])
    moved = catalog.savepoints.record("/sp/1", job="other", lineage=1, epoch=4, parallelism=2, reason="third")
    assert (catalog.savepoints.of(job), catalog.savepoints.of("other")) == ([], [moved])


def test_a_savepoint_that_is_recorded_late_keeps_the_time_when_it_was_taken(catalog: Catalog, job: str, clock) -> None:
    what: dict[str, Any] = {"job": job, "lineage": 1, "parallelism": 2, "reason": ""}
    now = catalog.savepoints.record("/sp/now", epoch=5, **what)
    clock.advance(10)
    late = catalog.savepoints.record("/sp/late", epoch=3, created_ms=now.created_ms - 1, **what)
    assert catalog.savepoints.of(job) == [now, late]


def test_the_size_of_a_savepoint_and_how_long_it_took_are_kept_where_they_are_known(
    catalog: Catalog, job: str, clock
) -> None:
    what: dict[str, Any] = {"job": job, "lineage": 1, "parallelism": 2, "reason": ""}
    asked_ms = clock.now_ms()
    clock.advance(1_500)
    made = catalog.savepoints.record("/sp/1", epoch=3, bytes=70, asked_ms=asked_ms, **what)
    other = catalog.savepoints.record("/sp/2", epoch=4, **what)
    assert (made.bytes, made.took_ms, other.bytes, other.took_ms) == (70, 1_500, None, None)
    assert {each.path: each for each in catalog.savepoints.of(job)} == {"/sp/1": made, "/sp/2": other}


def test_a_savepoint_is_forgotten_under_any_of_the_paths_it_may_have(catalog: Catalog, job: str) -> None:
    what: dict[str, Any] = {"job": job, "lineage": 1, "epoch": 3, "parallelism": 2, "reason": ""}
    catalog.savepoints.record("/sp/1/manifest.json", **what)
    kept = catalog.savepoints.record("/sp/2", **what)
    assert catalog.savepoints.forget("/sp/1", "/sp/1/manifest.json")
    assert catalog.savepoints.of(job) == [kept]
    assert not catalog.savepoints.forget("/sp/1", "/sp/1/manifest.json")
