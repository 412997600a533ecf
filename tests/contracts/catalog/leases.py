from __future__ import annotations

import dataclasses

import pytest

from statecore.catalog import Catalog, ClaimedSavepoint, GenerationRecord, TakenBackRecord
from statecore.catalog.audit import this_user
from statecore.errors import LeaseHeldError, UnknownRecordError


def test_a_held_lease_is_refused_with_owner_and_expiry(catalog: Catalog, job: str, clock) -> None:
    lease = catalog.leases.acquire(job, "run-1", 5_000)
    assert catalog.leases.find(job) == lease
    with pytest.raises(LeaseHeldError, match="held by 'run-1' and expires in 5 s unless it is renewed"):
        catalog.leases.acquire(job, "run-2", 5_000)


def test_the_owner_renews_by_acquiring_or_renewing(catalog: Catalog, job: str, clock) -> None:
    first = catalog.leases.acquire(job, "run-1", 5_000)
    clock.advance(4_000)
    again = catalog.leases.acquire(job, "run-1", 5_000)
    assert (again.acquired_ms, again.expires_ms) == (first.acquired_ms, first.expires_ms + 4_000)
    clock.advance(5_000)
    assert catalog.leases.expired() == [again]
    assert catalog.leases.renew(job, "run-1", 5_000).expires_ms == clock.now_ms() + 5_000
    assert catalog.leases.expired() == []


def test_only_the_owner_renews_and_releases(catalog: Catalog, job: str) -> None:
    with pytest.raises(UnknownRecordError, match="no lease on job 'flights'"):
        catalog.leases.renew(job, "run-1", 5_000)
    lease = catalog.leases.acquire(job, "run-1", 5_000)
    with pytest.raises(LeaseHeldError):
        catalog.leases.renew(job, "run-2", 5_000)
    catalog.leases.release(job, "run-2")
    assert catalog.leases.find(job) == lease
    catalog.leases.release(job, "run-1")
    catalog.leases.release(job, "run-1")
    assert catalog.leases.find(job) is None


def test_an_expired_lease_brings_the_job_back_and_fails_its_rescale(catalog: Catalog, job: str, clock) -> None:
    catalog.jobs.set_desired(job, state="running")
    catalog.leases.acquire(job, "run-1", 5_000)
    catalog.runs.start("run-1", job, from_parallelism=2, to_parallelism=4)
    catalog.jobs.set_desired(job, state="stopped", start_from="/sp")
    clock.advance(4_999)
    assert catalog.leases.recover_expired(job) is None
    clock.advance(1)
    recovered = catalog.leases.recover_expired(job)
    assert recovered is not None and recovered.owner == "run-1"
    assert catalog.leases.find(job) is None
    record, run = catalog.jobs.get(job), catalog.runs.get("run-1")
    assert (record.desired_state, record.start_from) == ("running", None)
    assert (run.state, run.error) == ("failed", "lease expired (owner run-1)")
    assert catalog.leases.recover_expired(job) is None


def test_an_expired_lease_can_be_taken_and_the_new_owners_run_goes_on(catalog: Catalog, job: str, clock) -> None:
    catalog.leases.acquire(job, "run-1", 5_000)
    catalog.runs.start("run-1", job, from_parallelism=2, to_parallelism=4)
    clock.advance(5_000)
    catalog.runs.start("run-2", job, from_parallelism=2, to_parallelism=3)
    assert catalog.leases.acquire(job, "run-2", 5_000).owner == "run-2"
    assert {run.run_id: run.state for run in catalog.runs.of(job)} == {"run-1": "failed", "run-2": "running"}


@pytest.fixture
def running(catalog: Catalog, job: str) -> str:
    """A job with a cluster of two workers and a driver at parallelism 2, under a lease."""
    catalog.clusters.register("c", "standalone", {}, workers=2)
    catalog.jobs.register(
        job, artifact="/old.py", store="/s", master_url="local", cluster="c", parallelism=2, max_parallelism=128
    )
    claimed = ClaimedSavepoint("/first", "c0ffee")
    catalog.jobs.set_desired(job, state="running", start_from="/first", claims_savepoint=claimed)
    catalog.generations.claim(job, log_path="log")
    catalog.leases.acquire(job, "run-1", 5_000)
    return job


def _changed(catalog: Catalog, job: str) -> GenerationRecord:
    """Change all that a rescale or an upgrade changes, and return the driver that the change brought."""
    catalog.generations.end(job, 1, state="stopped")
    catalog.clusters.set_desired_workers("c", 4)
    catalog.jobs.set_desired(
        job, state="running", artifact="/new.py", parallelism=4, max_parallelism=256, start_from="/rescaled"
    )
    return catalog.generations.claim(job, log_path="log")


def test_a_roll_back_puts_back_all_that_the_lease_noted_and_ends_the_driver_of_the_change(
    catalog: Catalog, running: str
) -> None:
    before = catalog.jobs.get(running)
    new = _changed(catalog, running)
    asked = catalog.requests.send(running, "stop_with_savepoint", {}, "k")
    for _ in range(2):
        lease = catalog.leases.roll_back(running, "run-1", 9_000, "why")
        assert catalog.jobs.get(running) == dataclasses.replace(before, allow_non_restored_state=True)
        assert catalog.clusters.get("c").desired_workers == 2
        assert catalog.requests.get(asked.id).error == "why"
        assert not catalog.generations.heartbeat(running, new.generation)
        newest = catalog.generations.newest(running)
        assert newest is not None and newest.state == "stopped"
        assert catalog.leases.find(running) == lease


def test_a_roll_back_ends_a_driver_that_took_another_parallelism_up(catalog: Catalog, running: str) -> None:
    catalog.generations.heartbeat(running, 1)
    asked = catalog.requests.send(running, "rescale", {"parallelism": 4}, "k")
    assert catalog.generations.apply_parallelism(running, 1, 4, asked.id, {})
    catalog.leases.roll_back(running, "run-1", 9_000, "why")
    assert catalog.jobs.get(running).parallelism == 2
    assert not catalog.generations.heartbeat(running, 1)


def test_a_roll_back_ends_a_driver_with_another_job_file_at_the_old_parallelism(catalog: Catalog, running: str) -> None:
    catalog.generations.end(running, 1, state="stopped")
    catalog.jobs.set_desired(running, artifact="/new.py")
    new = catalog.generations.claim(running, log_path="log")
    catalog.leases.roll_back(running, "run-1", 9_000, "why")
    assert catalog.jobs.get(running).artifact == "/old.py" and not catalog.generations.heartbeat(
        running, new.generation
    )


def test_a_job_file_that_comes_back_may_leave_behind_what_another_one_began(catalog: Catalog, running: str) -> None:
    catalog.generations.end(running, 1, state="stopped")
    catalog.jobs.set_desired(running, artifact="/new.py", allow_non_restored_state=False)
    catalog.generations.claim(running, log_path="log")
    for _ in range(2):
        catalog.leases.roll_back(running, "run-1", 9_000, "why")
        assert catalog.jobs.get(running).allow_non_restored_state


@pytest.mark.parametrize("allowed", [False, True])
def test_a_job_file_that_comes_back_before_the_other_one_ran_may_leave_behind_what_it_might_before(
    catalog: Catalog, running: str, allowed: bool
) -> None:
    catalog.leases.release(running, "run-1")
    catalog.jobs.set_desired(running, allow_non_restored_state=allowed)
    catalog.leases.acquire(running, "run-1", 5_000)
    catalog.generations.end(running, 1, state="stopped")
    catalog.jobs.set_desired(running, artifact="/new.py", allow_non_restored_state=False)
    catalog.leases.roll_back(running, "run-1", 9_000, "why")
    assert catalog.jobs.get(running).allow_non_restored_state == allowed


def test_a_roll_back_of_a_rescale_allows_no_state_to_be_left_behind(catalog: Catalog, running: str) -> None:
    catalog.generations.end(running, 1, state="stopped")
    catalog.jobs.set_desired(running, parallelism=4)
    catalog.generations.claim(running, log_path="log")
    catalog.leases.roll_back(running, "run-1", 9_000, "why")
    assert not catalog.jobs.get(running).allow_non_restored_state


def test_a_roll_back_leaves_a_driver_alone_that_nothing_was_changed_for(catalog: Catalog, running: str) -> None:
    catalog.jobs.set_desired(running, state="stopped")
    catalog.leases.roll_back(running, "run-1", 9_000, "why")
    assert catalog.jobs.get(running).desired_state == "running" and catalog.generations.heartbeat(running, 1)


def test_only_who_has_the_lease_rolls_back(catalog: Catalog, running: str, clock) -> None:
    with pytest.raises(LeaseHeldError):
        catalog.leases.roll_back(running, "run-2", 9_000, "why")
    clock.advance(5_000)
    catalog.leases.recover_expired(running)
    with pytest.raises(UnknownRecordError):
        catalog.leases.roll_back(running, "run-1", 9_000, "why")


def test_a_run_that_is_done_is_not_rolled_back_before_it_gives_its_lease_back(catalog: Catalog, running: str) -> None:
    catalog.runs.start("run-1", running, from_parallelism=2, to_parallelism=4)
    new = _changed(catalog, running)
    catalog.runs.finish("run-1")
    changed = catalog.jobs.get(running)
    with pytest.raises(UnknownRecordError, match="'run-1' of job 'flights' done; expected one to roll back"):
        catalog.leases.roll_back(running, "run-1", 9_000, "why")
    assert catalog.jobs.get(running) == changed and catalog.clusters.get("c").desired_workers == 4
    assert catalog.generations.heartbeat(running, new.generation)


@pytest.mark.parametrize("taken_by_another", [False, True])
def test_an_expired_lease_brings_back_parallelism_size_and_job_file_of_a_change_that_did_not_end(
    catalog: Catalog, running: str, clock, taken_by_another: bool
) -> None:
    before = catalog.jobs.get(running)
    catalog.runs.start("run-1", running, from_parallelism=2, to_parallelism=4)
    catalog.runs.update("run-1", error="step verify failed: slow")
    new = _changed(catalog, running)
    clock.advance(5_000)
    if taken_by_another:
        lease = catalog.leases.acquire(running, "run-2", 5_000)
        assert lease.before.job.parallelism == 2
    else:
        catalog.leases.recover_expired(running)
    found = catalog.jobs.get(running)
    assert (found.parallelism, found.max_parallelism, found.artifact) == (2, 128, before.artifact)
    assert (found.desired_state, found.start_from) == ("running", before.start_from)
    assert catalog.clusters.get("c").desired_workers == 2
    assert not catalog.generations.heartbeat(running, new.generation)
    assert catalog.runs.get("run-1").error == "step verify failed: slow; lease expired (owner run-1)"


def test_a_definition_is_registered_and_its_lease_released_at_once(catalog: Catalog, job: str, clock) -> None:
    before = catalog.jobs.get(job)
    catalog.leases.acquire(job, "shell-1", 5_000)
    definition = {
        "artifact": before.artifact, "store": before.store, "master_url": "local[9]", "parallelism": before.parallelism,
        "max_parallelism": before.max_parallelism,
    }  # fmt: skip
    registered = catalog.jobs.register(job, **definition, settings={"c": "d"}, owner="shell-1")
    assert catalog.leases.find(job) is None
    clock.advance(5_000)
    assert catalog.leases.recover_expired(job) is None
    assert catalog.jobs.get(job) == registered != before


def test_an_expired_lease_brings_every_field_of_the_job_back(catalog: Catalog, running: str, clock) -> None:
    before = catalog.jobs.get(running)
    other = {"artifact": "/other.py", "artifact_sha256": "0" * 64, "store": "/other", "master_url": "local[9]"}
    catalog.jobs.register(
        running, **other, cluster=None, parallelism=5, max_parallelism=before.max_parallelism, conf={"a": "b"},
        settings={"c": "d"},
    )  # fmt: skip
    claimed = ClaimedSavepoint("/other", "f")
    catalog.jobs.set_desired(
        running, state="stopped", max_parallelism=64, start_from="/other", roll_back=True, claims_savepoint=claimed,
        allow_non_restored_state=True, start_after=99,
    )  # fmt: skip
    changed = catalog.jobs.get(running)
    clock.advance(5_000)
    catalog.leases.recover_expired(running)
    restored = catalog.jobs.get(running)
    of_drivers = {"checkpoint", "accept_lost_records"}
    for field in {field.name for field in dataclasses.fields(before)} - {"name", "updated_ms", *of_drivers}:
        assert getattr(restored, field) == getattr(before, field) != getattr(changed, field), field


def test_an_expired_lease_of_a_run_that_was_done_takes_nothing_back(catalog: Catalog, running: str, clock) -> None:
    catalog.runs.start("run-1", running, from_parallelism=2, to_parallelism=4)
    new = _changed(catalog, running)
    catalog.runs.finish("run-1")
    clock.advance(5_000)
    assert catalog.leases.recover_expired(running) is not None
    assert catalog.jobs.get(running).parallelism == 4 and catalog.generations.heartbeat(running, new.generation)


def test_an_expired_lease_of_a_run_that_was_rolled_back_takes_nothing_back(
    catalog: Catalog, running: str, clock
) -> None:
    catalog.runs.start("run-1", running, from_parallelism=2, to_parallelism=4)
    _changed(catalog, running)
    catalog.leases.roll_back(running, "run-1", 5_000, "step verify failed")
    # Its process dies here, before it gives the lease back.
    catalog.runs.finish("run-1", error="step verify failed")
    catalog.jobs.set_desired(running, state="stopped")
    clock.advance(5_000)
    assert catalog.leases.recover_expired(running) is not None
    assert catalog.jobs.get(running).desired_state == "stopped"


def test_a_lease_that_was_taken_back_is_known_until_the_job_is_changed_again(
    catalog: Catalog, running: str, clock
) -> None:
    assert catalog.leases.taken_back(running) is None
    clock.advance(5_000)
    assert catalog.leases.recover_expired(running) is not None
    assert catalog.leases.taken_back(running) == TakenBackRecord(running, "run-1", clock.now_ms())
    clock.advance(1)
    assert catalog.leases.taken_back(running) is not None
    catalog.leases.acquire(running, "run-2", 5_000)
    assert catalog.leases.taken_back(running) is None


def test_a_lease_of_a_run_that_had_ended_was_not_taken_back(catalog: Catalog, running: str, clock) -> None:
    catalog.runs.start("run-1", running, from_parallelism=2, to_parallelism=4)
    catalog.runs.finish("run-1")
    clock.advance(5_000)
    assert catalog.leases.recover_expired(running) is not None
    assert catalog.leases.taken_back(running) is None


def test_the_audit_has_each_change_with_its_author_the_rollback_too(catalog: Catalog, job: str) -> None:
    first = len(catalog.jobs.audit(job))
    catalog.leases.acquire(job, "upgrade:1", 60_000)
    catalog.leases.acquire(job, "upgrade:1", 60_000)
    old = catalog.jobs.get(job)
    catalog.jobs.set_desired(job, artifact="/new.py", artifact_sha256="f" * 64)
    catalog.leases.roll_back(job, "upgrade:1", 60_000, "it failed")
    assert (catalog.jobs.get(job).artifact, catalog.jobs.get(job).artifact_sha256) == (
        old.artifact,
        old.artifact_sha256,
    )
    back, there, taken = catalog.jobs.audit(job, limit=len(catalog.jobs.audit(job)) - first)
    assert taken.change == {"run": "upgrade:1"} and taken.on_behalf_of == this_user()
    assert there.change == {"artifact": [old.artifact, "/new.py"], "artifact_sha256": [None, "f" * 64]}
    assert back.change["artifact"] == ["/new.py", old.artifact]
