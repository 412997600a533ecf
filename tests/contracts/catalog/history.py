from __future__ import annotations

from typing import Any

import pytest

from statecore.catalog import Catalog, StepTimes
from statecore.catalog.retention import KEPT_MS, KEPT_NEWEST
from statecore.errors import CatalogError, UnknownRecordError


def test_savepoints_are_recorded_once_and_listed_newest_first(catalog: Catalog, job: str, clock) -> None:
    what: dict[str, Any] = {"job": job, "parallelism": 2, "reason": "rescale"}
    first = catalog.record_savepoint("/sp/1", lineage=1, epoch=3, **what)
    clock.advance(10)
    second = catalog.record_savepoint("/sp/2", lineage=1, epoch=9, **what)
    assert catalog.record_savepoint("/sp/1", lineage=1, epoch=3, **what) == first
    assert catalog.savepoints(job) == [second, first]


def test_another_savepoint_in_the_place_of_one_that_is_gone_replaces_it(catalog: Catalog, job: str, register) -> None:
    register(catalog, "other")
    catalog.record_savepoint("/sp/1", job=job, lineage=1, epoch=3, parallelism=2, reason="first")
    replaced = catalog.record_savepoint("/sp/1", job=job, lineage=1, epoch=4, parallelism=2, reason="second")
    assert (replaced.epoch, replaced.reason, catalog.savepoints(job)) == (4, "second", [replaced])
    moved = catalog.record_savepoint("/sp/1", job="other", lineage=1, epoch=4, parallelism=2, reason="third")
    assert (catalog.savepoints(job), catalog.savepoints("other")) == ([], [moved])


def test_a_savepoint_that_is_recorded_late_keeps_the_time_when_it_was_taken(catalog: Catalog, job: str, clock) -> None:
    what: dict[str, Any] = {"job": job, "lineage": 1, "parallelism": 2, "reason": ""}
    now = catalog.record_savepoint("/sp/now", epoch=5, **what)
    clock.advance(10)
    late = catalog.record_savepoint("/sp/late", epoch=3, created_ms=now.created_ms - 1, **what)
    assert catalog.savepoints(job) == [now, late]


def test_a_savepoint_is_forgotten_under_any_of_the_paths_it_may_have(catalog: Catalog, job: str) -> None:
    what: dict[str, Any] = {"job": job, "lineage": 1, "epoch": 3, "parallelism": 2, "reason": ""}
    catalog.record_savepoint("/sp/1/manifest.json", **what)
    kept = catalog.record_savepoint("/sp/2", **what)
    assert catalog.forget_savepoint("/sp/1", "/sp/1/manifest.json")
    assert catalog.savepoints(job) == [kept]
    assert not catalog.forget_savepoint("/sp/1", "/sp/1/manifest.json")


def test_a_rescale_run_remembers_its_steps_and_manifests(catalog: Catalog, job: str, clock) -> None:
    start: dict[str, Any] = {
        "from_parallelism": 2,
        "to_parallelism": 4,
        "from_workers": 1,
        "to_workers": 2,
        "reason": "backlog",
    }
    catalog.start_rescale_run("r", job, **start)
    t0 = clock.now_ms()
    catalog.mark_step("r", "stop_with_savepoint", started=True)
    clock.advance(7)
    catalog.mark_step("r", "stop_with_savepoint", started=True, ended=True)
    catalog.mark_step("r", "resize_cluster", started=True)
    catalog.update_rescale_run("r", savepoint="/sp")
    catalog.update_rescale_run("r", rescaled="/re")
    run = catalog.start_rescale_run("r", job, **start)
    assert run.steps == {
        "stop_with_savepoint": StepTimes(t0, t0 + 7),
        "resize_cluster": StepTimes(t0 + 7, None),
    }
    assert (run.savepoint, run.rescaled, run.state) == ("/sp", "/re", "running")


@pytest.mark.parametrize(("error", "state"), [(None, "done"), ("no room", "failed")])
def test_the_first_end_of_a_rescale_run_stays(catalog: Catalog, job: str, error: str | None, state: str) -> None:
    catalog.start_rescale_run("r", job, from_parallelism=2, to_parallelism=4)
    ended = catalog.finish_rescale_run("r", error=error)
    assert (ended.state, ended.error) == (state, error)
    assert catalog.finish_rescale_run("r", error="another") == ended
    assert catalog.rescale_runs(job) == [ended]


def test_a_run_that_a_user_aborts_can_no_longer_be_done_and_the_first_user_stays(
    catalog: Catalog, job: str, clock
) -> None:
    catalog.start_rescale_run("r", job, from_parallelism=2, to_parallelism=4)
    for user in ("ann", "bob"):
        assert catalog.abort_rescale_run(job, user).aborted_by == "ann"
    assert catalog.finish_rescale_run("r").state == "running"
    clock.advance(5)
    ended = catalog.finish_rescale_run("r", error="aborted by ann; rolled back")
    assert (ended.state, ended.ended_ms) == ("failed", clock.now_ms())


def test_only_the_run_that_changes_a_job_now_can_be_aborted(catalog: Catalog, job: str) -> None:
    with pytest.raises(UnknownRecordError, match="found no run changing job 'flights'"):
        catalog.abort_rescale_run(job, "ann")
    catalog.start_rescale_run("old", job, from_parallelism=2, to_parallelism=4)
    done = catalog.finish_rescale_run("old")
    with pytest.raises(UnknownRecordError, match="no run changing"):
        catalog.abort_rescale_run(job, "ann")
    catalog.start_rescale_run("new", job, from_parallelism=4, to_parallelism=2)
    with pytest.raises(UnknownRecordError, match="found run 'new' changing job 'flights'; expected run 'old' to abort"):
        catalog.abort_rescale_run(job, "ann", run_id="old")
    assert catalog.abort_rescale_run(job, "ann", run_id="new").aborted_by == "ann"
    assert catalog.rescale_run("old") == done


def test_an_aborted_run_whose_process_has_died_says_so_when_its_lease_expires(
    catalog: Catalog, job: str, clock
) -> None:
    catalog.acquire_lease(job, "r", 5_000)
    catalog.start_rescale_run("r", job, from_parallelism=2, to_parallelism=4)
    catalog.abort_rescale_run(job, "ann")
    clock.advance(5_000)
    catalog.recover_expired_lease(job)
    assert catalog.rescale_run("r").error == "aborted by ann; lease expired (owner r)"


def test_wrong_rescale_runs_are_refused(catalog: Catalog, job: str, register) -> None:
    register(catalog, "other")
    catalog.start_rescale_run("r", job, from_parallelism=2, to_parallelism=4)
    with pytest.raises(CatalogError, match="'r' belongs to job 'flights'"):
        catalog.start_rescale_run("r", "other", from_parallelism=2, to_parallelism=4)
    for act in (
        lambda: catalog.rescale_run("x"),
        lambda: catalog.mark_step("x", "s", started=True),
        lambda: catalog.finish_rescale_run("x"),
    ):
        with pytest.raises(UnknownRecordError, match="no rescale run 'x'"):
            act()


def test_rescale_runs_are_counted_by_their_outcome(catalog: Catalog, job: str, register) -> None:
    assert catalog.rescale_outcomes(job) == {}
    for number, error in enumerate([None, None, "no quota"]):
        catalog.start_rescale_run(f"r{number}", job, from_parallelism=2, to_parallelism=4)
        catalog.finish_rescale_run(f"r{number}", error=error)
    catalog.start_rescale_run("now", job, from_parallelism=2, to_parallelism=4)
    catalog.start_rescale_run("other", register(catalog, "clicks"), from_parallelism=2, to_parallelism=4)
    assert catalog.rescale_outcomes(job) == {"done": 2, "failed": 1, "running": 1}


def test_what_ended_long_ago_is_forgotten_but_not_the_newest_hundred_and_nothing_that_has_not_ended(
    catalog: Catalog, job: str, register, clock
) -> None:
    register(catalog, "other")

    def run(number: int, of: str) -> None:
        generation = catalog.claim_generation(of, log_path="").generation
        catalog.end_generation(of, generation, state="failed", error="e")
        catalog.start_rescale_run(f"{of}-{number}", of, from_parallelism=2, to_parallelism=4)
        catalog.finish_rescale_run(f"{of}-{number}")
        asked = catalog.request(of, "savepoint", {}, f"{of}-{number}")
        catalog.finish_request(asked.id, result={})
        clock.advance(1)

    open_run = catalog.start_rescale_run("open", job, from_parallelism=2, to_parallelism=4)
    open_request = catalog.request(job, "savepoint", {}, "open")
    for number in range(KEPT_NEWEST + 3):
        run(number, job)
    run(0, "other")
    catalog.forget_old(job)
    assert len(catalog.generations(job)) == KEPT_NEWEST + 3

    clock.advance(KEPT_MS)
    recent = catalog.request(job, "savepoint", {}, "recent")
    catalog.finish_request(recent.id, error="e")
    audit = catalog.audit(job)
    catalog.forget_old(job)
    assert audit and catalog.audit(job) == audit
    assert [each.generation for each in catalog.generations(job)] == [*range(KEPT_NEWEST + 3, 3, -1)]
    runs = [each.run_id for each in catalog.rescale_runs(job)]
    assert len(runs) == KEPT_NEWEST + 1
    assert runs[-1] == open_run.run_id
    assert catalog.get_request(recent.id).state == "failed"
    assert catalog.get_request(open_request.id).state == "pending"
    with pytest.raises(UnknownRecordError):
        catalog.get_request(open_request.id + 1)
    assert len(catalog.generations("other")) == len(catalog.rescale_runs("other")) == 1
    assert catalog.claim_generation(job, log_path="").generation == KEPT_NEWEST + 4
