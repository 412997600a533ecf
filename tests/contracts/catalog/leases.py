from __future__ import annotations

import dataclasses

import pytest

from statecore.catalog import Catalog, ClaimedSavepoint, GenerationRecord, TakenBackRecord
from statecore.catalog.audit import this_user
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
    catalog.set_desired(job, state="running")
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


@pytest.fixture
def running(catalog: Catalog, job: str) -> str:
    """A job with a cluster of two workers and a driver at parallelism 2, under a lease."""
    catalog.register_cluster("c", "standalone", {}, workers=2)
    catalog.register_job(
        job, artifact="/old.py", store="/s", master_url="local", cluster="c", parallelism=2, max_parallelism=128
    )
    claimed = ClaimedSavepoint("/first", "c0ffee")
    catalog.set_desired(job, state="running", start_from="/first", claims_savepoint=claimed)
    catalog.claim_generation(job, log_path="log")
    catalog.acquire_lease(job, "run-1", 5_000)
    return job


def _changed(catalog: Catalog, job: str) -> GenerationRecord:
    """Change all that a rescale or an upgrade changes, and return the driver that the change brought."""
    catalog.end_generation(job, 1, state="stopped")
    catalog.set_desired_workers("c", 4)
    catalog.set_desired(
        job, state="running", artifact="/new.py", parallelism=4, max_parallelism=256, start_from="/rescaled"
    )
    return catalog.claim_generation(job, log_path="log")


def test_a_roll_back_puts_back_all_that_the_lease_noted_and_ends_the_driver_of_the_change(
    catalog: Catalog, running: str
) -> None:
    before = catalog.job(running)
    new = _changed(catalog, running)
    asked = catalog.request(running, "stop_with_savepoint", {}, "k")
    for _ in range(2):
        lease = catalog.roll_back(running, "run-1", 9_000, "why")
        assert catalog.job(running) == dataclasses.replace(before, allow_non_restored_state=True)
        assert catalog.cluster("c").desired_workers == 2
        assert catalog.get_request(asked.id).error == "why"
        assert not catalog.heartbeat(running, new.generation)
        newest = catalog.newest_generation(running)
        assert newest is not None and newest.state == "stopped"
        assert catalog.lease(running) == lease


def test_a_roll_back_ends_a_driver_that_took_another_parallelism_up(catalog: Catalog, running: str) -> None:
    catalog.heartbeat(running, 1)
    asked = catalog.request(running, "rescale", {"parallelism": 4}, "k")
    assert catalog.apply_parallelism(running, 1, 4, asked.id, {})
    catalog.roll_back(running, "run-1", 9_000, "why")
    assert catalog.job(running).parallelism == 2
    assert not catalog.heartbeat(running, 1)


def test_a_roll_back_ends_a_driver_with_another_job_file_at_the_old_parallelism(catalog: Catalog, running: str) -> None:
    catalog.end_generation(running, 1, state="stopped")
    catalog.set_desired(running, artifact="/new.py")
    new = catalog.claim_generation(running, log_path="log")
    catalog.roll_back(running, "run-1", 9_000, "why")
    assert catalog.job(running).artifact == "/old.py" and not catalog.heartbeat(running, new.generation)


def test_a_job_file_that_comes_back_may_leave_behind_what_another_one_began(catalog: Catalog, running: str) -> None:
    catalog.end_generation(running, 1, state="stopped")
    catalog.set_desired(running, artifact="/new.py", allow_non_restored_state=False)
    catalog.claim_generation(running, log_path="log")
    for _ in range(2):
        catalog.roll_back(running, "run-1", 9_000, "why")
        assert catalog.job(running).allow_non_restored_state


@pytest.mark.parametrize("allowed", [False, True])
def test_a_job_file_that_comes_back_before_the_other_one_ran_may_leave_behind_what_it_might_before(
    catalog: Catalog, running: str, allowed: bool
) -> None:
    catalog.release_lease(running, "run-1")
    catalog.set_desired(running, allow_non_restored_state=allowed)
    catalog.acquire_lease(running, "run-1", 5_000)
    catalog.end_generation(running, 1, state="stopped")
    catalog.set_desired(running, artifact="/new.py", allow_non_restored_state=False)
    catalog.roll_back(running, "run-1", 9_000, "why")
    assert catalog.job(running).allow_non_restored_state == allowed


def test_a_roll_back_of_a_rescale_allows_no_state_to_be_left_behind(catalog: Catalog, running: str) -> None:
    catalog.end_generation(running, 1, state="stopped")
    catalog.set_desired(running, parallelism=4)
    catalog.claim_generation(running, log_path="log")
    catalog.roll_back(running, "run-1", 9_000, "why")
    assert not catalog.job(running).allow_non_restored_state


def test_a_roll_back_leaves_a_driver_alone_that_nothing_was_changed_for(catalog: Catalog, running: str) -> None:
    catalog.set_desired(running, state="stopped")
    catalog.roll_back(running, "run-1", 9_000, "why")
    assert catalog.job(running).desired_state == "running" and catalog.heartbeat(running, 1)


def test_only_who_has_the_lease_rolls_back(catalog: Catalog, running: str, clock) -> None:
    with pytest.raises(LeaseHeldError):
        catalog.roll_back(running, "run-2", 9_000, "why")
    clock.advance(5_000)
    catalog.recover_expired_lease(running)
    with pytest.raises(UnknownRecordError):
        catalog.roll_back(running, "run-1", 9_000, "why")


def test_a_run_that_is_done_is_not_rolled_back_before_it_gives_its_lease_back(catalog: Catalog, running: str) -> None:
    catalog.start_rescale_run("run-1", running, from_parallelism=2, to_parallelism=4)
    new = _changed(catalog, running)
    catalog.finish_rescale_run("run-1")
    changed = catalog.job(running)
    with pytest.raises(UnknownRecordError, match="'run-1' of job 'flights' done; expected one to roll back"):
        catalog.roll_back(running, "run-1", 9_000, "why")
    assert catalog.job(running) == changed and catalog.cluster("c").desired_workers == 4
    assert catalog.heartbeat(running, new.generation)


@pytest.mark.parametrize("taken_by_another", [False, True])
def test_an_expired_lease_brings_back_parallelism_size_and_job_file_of_a_change_that_did_not_end(
    catalog: Catalog, running: str, clock, taken_by_another: bool
) -> None:
    before = catalog.job(running)
    catalog.start_rescale_run("run-1", running, from_parallelism=2, to_parallelism=4)
    catalog.update_rescale_run("run-1", error="step verify failed: slow")
    new = _changed(catalog, running)
    clock.advance(5_000)
    if taken_by_another:
        lease = catalog.acquire_lease(running, "run-2", 5_000)
        assert lease.before is not None and lease.before.parallelism == 2
    else:
        catalog.recover_expired_lease(running)
    found = catalog.job(running)
    assert (found.parallelism, found.max_parallelism, found.artifact) == (2, 128, before.artifact)
    assert (found.desired_state, found.start_from) == ("running", before.start_from)
    assert catalog.cluster("c").desired_workers == 2
    assert not catalog.heartbeat(running, new.generation)
    assert catalog.rescale_run("run-1").error == "step verify failed: slow; lease expired (owner run-1)"


def test_an_expired_lease_of_a_run_that_was_done_takes_nothing_back(catalog: Catalog, running: str, clock) -> None:
    catalog.start_rescale_run("run-1", running, from_parallelism=2, to_parallelism=4)
    new = _changed(catalog, running)
    catalog.finish_rescale_run("run-1")
    clock.advance(5_000)
    assert catalog.recover_expired_lease(running) is not None
    assert catalog.job(running).parallelism == 4 and catalog.heartbeat(running, new.generation)


def test_an_expired_lease_of_a_run_that_was_rolled_back_takes_nothing_back(
    catalog: Catalog, running: str, clock
) -> None:
    catalog.start_rescale_run("run-1", running, from_parallelism=2, to_parallelism=4)
    _changed(catalog, running)
    catalog.roll_back(running, "run-1", 5_000, "step verify failed")
    # Its process dies here, before it gives the lease back.
    catalog.finish_rescale_run("run-1", error="step verify failed")
    catalog.set_desired(running, state="stopped")
    clock.advance(5_000)
    assert catalog.recover_expired_lease(running) is not None
    assert catalog.job(running).desired_state == "stopped"


def test_a_lease_that_was_taken_back_is_known_until_the_job_is_changed_again(
    catalog: Catalog, running: str, clock
) -> None:
    assert catalog.taken_back(running) is None
    clock.advance(5_000)
    assert catalog.recover_expired_lease(running) is not None
    assert catalog.taken_back(running) == TakenBackRecord(running, "run-1", clock.now_ms())
    clock.advance(1)
    assert catalog.taken_back(running) is not None
    catalog.acquire_lease(running, "run-2", 5_000)
    assert catalog.taken_back(running) is None


def test_a_lease_of_a_run_that_had_ended_was_not_taken_back(catalog: Catalog, running: str, clock) -> None:
    catalog.start_rescale_run("run-1", running, from_parallelism=2, to_parallelism=4)
    catalog.finish_rescale_run("run-1")
    clock.advance(5_000)
    assert catalog.recover_expired_lease(running) is not None
    assert catalog.taken_back(running) is None


def test_the_audit_has_each_change_with_its_author_the_rollback_too(catalog: Catalog, job: str) -> None:
    first = len(catalog.audit(job))
    catalog.acquire_lease(job, "upgrade:1", 60_000)
    catalog.acquire_lease(job, "upgrade:1", 60_000)
    old = catalog.job(job)
    catalog.set_desired(job, artifact="/new.py", artifact_sha256="f" * 64)
    assert catalog.has_had_job_file(job, "f" * 64) and not catalog.has_had_job_file(job, "e" * 64)
    catalog.roll_back(job, "upgrade:1", 60_000, "it failed")
    assert (catalog.job(job).artifact, catalog.job(job).artifact_sha256) == (old.artifact, old.artifact_sha256)
    back, there, taken = catalog.audit(job, limit=len(catalog.audit(job)) - first)
    assert taken.change == {"run": "upgrade:1"} and taken.who == this_user()
    assert there.change == {"artifact": [old.artifact, "/new.py"], "artifact_sha256": [None, "f" * 64]}
    assert back.change["artifact"] == ["/new.py", old.artifact]
