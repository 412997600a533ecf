"""How jobs stand, many at once: each as its own parts say."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, text

from statecore.catalog import HISTORY, Catalog, SourceBacklog
from tests.contracts.catalog.epochs import EPOCH
from tests.contracts.catalog.fixtures import register

NAMES = ("clicks", "flights", "orders")


@pytest.fixture
def jobs(catalog: Catalog, clock: Any) -> list[str]:
    """Three jobs, one of which has everything, one little, and one nothing."""
    for name in NAMES:
        register(catalog, name)
    for name, count in (("clicks", HISTORY + 3), ("flights", 2)):
        catalog.jobs.set_desired(name, state="running")
        for number in range(1, count + 1):
            clock.advance(1_000)
            catalog.generations.claim(name, log_path="/l")
            catalog.generations.heartbeat(name, number)
            made = dataclasses.replace(EPOCH, job=name, epoch=number, generation=number, duration_ms=400, rows=30)
            catalog.epochs.record(
                dataclasses.replace(made, started_ms=clock.now_ms() - 400, committed_ms=clock.now_ms())
            )
            if number < count:
                catalog.generations.end(name, number, state="failed", error="x")
            clock.advance(100)
            catalog.epochs.record_backlog(name, number, [SourceBacklog("in", records=number)])
            catalog.savepoints.record(
                f"/{name}/{number}", job=name, lineage=1, epoch=number, parallelism=2, reason="", created_ms=number
            )
            catalog.runs.start(f"{name}-{number}", name, from_parallelism=2, to_parallelism=3)
            catalog.runs.finish(f"{name}-{number}", error="no quota")
    catalog.policies.set("clicks", {})
    catalog.leases.acquire("clicks", "run-9", ttl_ms=60_000)
    return list(NAMES)


def test_each_job_is_as_its_parts_say(catalog: Catalog, jobs: list[str]) -> None:
    found = {name: rows.overview() for name, rows in catalog.overviews.of().items()}
    assert list(found) == jobs
    for name, each in found.items():
        generations = catalog.generations.of(name, limit=HISTORY)
        assert each.job == catalog.jobs.get(name)
        assert each.generations == generations
        assert each.alive == catalog.generations.is_alive(next(iter(generations), None))
        assert each.figures == catalog.overviews.figures(name)
        assert each.figures.epoch == next(iter(catalog.epochs.of(name, limit=1)), None)
        assert each.lease == catalog.leases.find(name)
        assert each.taken_back == catalog.leases.taken_back(name)
        assert each.savepoint == next(iter(catalog.savepoints.of(name, limit=1)), None)
        assert each.policy == catalog.policies.find(name)
        limit = 50 if name == "clicks" else 1
        assert sorted(run.run_id for run in each.rescales) == sorted(
            run.run_id for run in catalog.runs.of(name, limit=limit)
        )
        assert each.topics == catalog.epochs.topics(name)
    assert len(found["clicks"].generations) == HISTORY and len(found["clicks"].rescales) == HISTORY + 3
    assert (found["orders"].generations, found["orders"].figures.rows_per_second) == ([], None)


def test_only_the_jobs_that_are_asked_for_are_found(catalog: Catalog, jobs: list[str]) -> None:
    assert list(catalog.overviews.of(["orders", "clicks", "nobody"])) == ["clicks", "orders"]
    assert catalog.overviews.of([]) == {}
    assert catalog.overviews.figures("nobody").epoch is None


def test_the_newest_measurement_counts_be_it_of_an_epoch_or_between_two(
    catalog: Catalog, jobs: list[str], clock: Any
) -> None:
    assert catalog.overviews.figures("flights").backlog == catalog.epochs.backlogs("flights")[-1]
    clock.advance(5_000)
    sources = (SourceBacklog("in", records=77),)
    newest = dataclasses.replace(EPOCH, job="flights", epoch=9, generation=2, backlog=sources)
    catalog.epochs.record(dataclasses.replace(newest, committed_ms=clock.now_ms(), started_ms=clock.now_ms() - 1))
    backlog = catalog.overviews.figures("flights").backlog
    assert backlog is not None and backlog.sources == sources


def test_a_job_whose_record_is_damaged_hides_no_other(catalog: Catalog, catalog_url: str, jobs: list[str]) -> None:
    engine = create_engine(catalog_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE generations SET state = 'damaged' WHERE job = 'clicks'"))
    engine.dispose()
    found = catalog.overviews.of()
    with pytest.raises(msgspec.ValidationError):
        found["clicks"].overview()
    assert found["flights"].overview().job.name == "flights"
