"""A driver that takes up another parallelism: catalog, generation and request change together or not at all."""

from __future__ import annotations

import pytest

from statecore.catalog import Catalog, RequestRecord


@pytest.fixture
def asked(catalog: Catalog, job: str) -> RequestRecord:
    catalog.jobs.set_desired(job, state="running", parallelism=2)
    catalog.generations.claim(job, log_path="/l")
    return catalog.requests.send(job, "rescale", {"parallelism": 4}, "live")


def parallelisms(catalog: Catalog, job: str) -> tuple[int, int]:
    newest = catalog.generations.newest(job)
    assert newest is not None
    return catalog.jobs.get(job).parallelism, newest.parallelism


def test_job_generation_and_request_change_together(catalog: Catalog, job: str, asked: RequestRecord) -> None:
    assert catalog.generations.apply_parallelism(job, 1, 4, asked.id, {"after_epoch": 7})
    assert parallelisms(catalog, job) == (4, 4)
    done = catalog.requests.get(asked.id)
    assert (done.state, done.result) == ("done", {"after_epoch": 7})
    assert not catalog.generations.apply_parallelism(job, 1, 3, asked.id, {})
    assert parallelisms(catalog, job) == (4, 4)


def test_a_driver_that_was_replaced_changes_nothing(catalog: Catalog, job: str, asked: RequestRecord, clock) -> None:
    clock.advance(90_000)
    catalog.generations.claim(job, log_path="/l")
    assert not catalog.generations.apply_parallelism(job, 1, 4, asked.id, {})
    assert parallelisms(catalog, job) == (2, 2)
    overtaken = catalog.requests.get(asked.id)
    assert overtaken.state == "failed"
    assert "the driver ended before it applied the parallelism" in str(overtaken.error)


def test_a_job_that_is_to_stop_stays_as_it_is(catalog: Catalog, job: str, asked: RequestRecord) -> None:
    catalog.jobs.set_desired(job, state="stopped")
    assert not catalog.generations.apply_parallelism(job, 1, 4, asked.id, {})
    assert parallelisms(catalog, job) == (2, 2)
    assert catalog.requests.get(asked.id).state == "pending"
