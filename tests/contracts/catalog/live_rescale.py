"""A driver that takes up another parallelism: catalog, generation and request change together or not at all."""

from __future__ import annotations

import pytest

from statecore.catalog import Catalog, RequestRecord


@pytest.fixture
def asked(catalog: Catalog, job: str) -> RequestRecord:
    catalog.set_desired(job, state="running", parallelism=2)
    catalog.claim_generation(job, log_path="/l")
    return catalog.request(job, "rescale", {"parallelism": 4}, "live")


def parallelisms(catalog: Catalog, job: str) -> tuple[int, int]:
    newest = catalog.newest_generation(job)
    assert newest is not None
    return catalog.job(job).parallelism, newest.parallelism


def test_job_generation_and_request_change_together(catalog: Catalog, job: str, asked: RequestRecord) -> None:
    assert catalog.apply_parallelism(job, 1, 4, asked.id, {"after_epoch": 7})
    assert parallelisms(catalog, job) == (4, 4)
    done = catalog.get_request(asked.id)
    assert (done.state, done.result) == ("done", {"after_epoch": 7})
    assert not catalog.apply_parallelism(job, 1, 3, asked.id, {})
    assert parallelisms(catalog, job) == (4, 4)


def test_a_driver_that_was_replaced_changes_nothing(catalog: Catalog, job: str, asked: RequestRecord, clock) -> None:
    clock.advance(90_000)
    catalog.claim_generation(job, log_path="/l")
    assert not catalog.apply_parallelism(job, 1, 4, asked.id, {})
    assert parallelisms(catalog, job) == (2, 2)
    overtaken = catalog.get_request(asked.id)
    assert overtaken.state == "failed"
    assert "the driver ended before it applied the parallelism" in str(overtaken.error)


def test_a_job_that_is_to_stop_stays_as_it_is(catalog: Catalog, job: str, asked: RequestRecord) -> None:
    catalog.set_desired(job, state="stopped")
    assert not catalog.apply_parallelism(job, 1, 4, asked.id, {})
    assert parallelisms(catalog, job) == (2, 2)
    assert catalog.get_request(asked.id).state == "pending"
