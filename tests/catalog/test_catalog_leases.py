from __future__ import annotations

import pytest

from statecore.catalog import Catalog
from statecore.errors import LeaseHeldError, UnknownRecordError


def test_a_held_lease_is_refused_with_owner_and_expiry(catalog: Catalog, job: str, clock) -> None:
    lease = catalog.acquire_lease(job, "run-1", 5_000)
    assert catalog.lease(job) == lease
    with pytest.raises(LeaseHeldError, match=f"held by 'run-1' and expires at {clock.now_ms() + 5_000}"):
        catalog.acquire_lease(job, "run-2", 5_000)


def test_the_owner_renews_by_acquiring_or_renewing(catalog: Catalog, job: str, clock) -> None:
    first = catalog.acquire_lease(job, "run-1", 5_000)
    clock.advance(4_000)
    again = catalog.acquire_lease(job, "run-1", 5_000)
    assert (again.acquired_ms, again.expires_ms) == (first.acquired_ms, first.expires_ms + 4_000)
    clock.advance(5_000)
    assert catalog.expired_leases() == [again]
    assert catalog.renew_lease(job, "run-1", 5_000).expires_ms == clock.now_ms() + 5_000
    assert catalog.expired_leases() == []


def test_only_the_owner_renews_and_releases(catalog: Catalog, job: str) -> None:
    with pytest.raises(UnknownRecordError, match="no lease on job 'flights'"):
        catalog.renew_lease(job, "run-1", 5_000)
    lease = catalog.acquire_lease(job, "run-1", 5_000)
    with pytest.raises(LeaseHeldError):
        catalog.renew_lease(job, "run-2", 5_000)
    catalog.release_lease(job, "run-2")
    assert catalog.lease(job) == lease
    catalog.release_lease(job, "run-1")
    catalog.release_lease(job, "run-1")
    assert catalog.lease(job) is None


def test_an_expired_lease_brings_the_job_back_and_fails_its_rescale(catalog: Catalog, job: str, clock) -> None:
    catalog.acquire_lease(job, "run-1", 5_000)
    catalog.start_rescale_run("run-1", job, from_parallelism=2, to_parallelism=4)
    catalog.set_desired(job, state="stopped", start_from="/sp")
    clock.advance(4_999)
    assert catalog.recover_expired_lease(job) is None
    clock.advance(1)
    recovered = catalog.recover_expired_lease(job)
    assert recovered is not None and recovered.owner == "run-1"
    assert catalog.lease(job) is None
    record, run = catalog.job(job), catalog.rescale_run("run-1")
    assert (record.desired_state, record.start_from) == ("running", None)
    assert (run.state, run.error) == ("failed", "lease expired (owner run-1)")
    assert catalog.recover_expired_lease(job) is None


def test_an_expired_lease_can_be_taken_and_the_new_owners_run_goes_on(catalog: Catalog, job: str, clock) -> None:
    catalog.acquire_lease(job, "run-1", 5_000)
    catalog.start_rescale_run("run-1", job, from_parallelism=2, to_parallelism=4)
    clock.advance(5_000)
    catalog.start_rescale_run("run-2", job, from_parallelism=2, to_parallelism=3)
    assert catalog.acquire_lease(job, "run-2", 5_000).owner == "run-2"
    assert {run.run_id: run.state for run in catalog.rescale_runs(job)} == {"run-1": "failed", "run-2": "running"}
