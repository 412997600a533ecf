from __future__ import annotations

from typing import Any

import pytest

from statecore.catalog import Catalog, StepTimes
from statecore.catalog.retention import KEPT_MS, KEPT_NEWEST
from statecore.errors import CatalogError, UnknownRecordError


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


def test_a_savepoint_is_forgotten_under_any_of_the_paths_it_may_have(catalog: Catalog, job: str) -> None:
    what: dict[str, Any] = {"job": job, "lineage": 1, "epoch": 3, "parallelism": 2, "reason": ""}
    catalog.savepoints.record("/sp/1/manifest.json", **what)
    kept = catalog.savepoints.record("/sp/2", **what)
    assert catalog.savepoints.forget("/sp/1", "/sp/1/manifest.json")
    assert catalog.savepoints.of(job) == [kept]
    assert not catalog.savepoints.forget("/sp/1", "/sp/1/manifest.json")


def test_a_rescale_run_remembers_its_steps_and_manifests(catalog: Catalog, job: str, clock) -> None:
    start: dict[str, Any] = {
        "from_parallelism": 2,
        "to_parallelism": 4,
        "from_workers": 1,
        "to_workers": 2,
        "reason": "backlog",
    }
    catalog.runs.start("r", job, **start)
    t0 = clock.now_ms()
    catalog.runs.mark_step("r", "stop_with_savepoint", started=True)
    clock.advance(7)
    catalog.runs.mark_step("r", "stop_with_savepoint", started=True, ended=True)
    catalog.runs.mark_step("r", "resize_cluster", started=True)
    catalog.runs.update("r", savepoint="/sp")
    catalog.runs.update("r", rescaled="/re")
    run = catalog.runs.start("r", job, **start)
    assert run.steps == {
        "stop_with_savepoint": StepTimes(t0, t0 + 7),
        "resize_cluster": StepTimes(t0 + 7, None),
    }
    assert (run.savepoint, run.rescaled, run.state) == ("/sp", "/re", "running")


@pytest.mark.parametrize(("error", "state"), [(None, "done"), ("no room", "failed")])
def test_the_first_end_of_a_rescale_run_stays(catalog: Catalog, job: str, error: str | None, state: str) -> None:
    catalog.runs.start("r", job, from_parallelism=2, to_parallelism=4)
    ended = catalog.runs.finish("r", error=error)
    assert (ended.state, ended.error) == (state, error)
    assert catalog.runs.finish("r", error="another") == ended
    assert catalog.runs.of(job) == [ended]


def test_a_run_that_a_user_aborts_can_no_longer_be_done_and_the_first_user_stays(
    catalog: Catalog, job: str, clock
) -> None:
    catalog.runs.start("r", job, from_parallelism=2, to_parallelism=4)
    for user in ("ann", "bob"):
        assert catalog.runs.abort(job, user).aborted_by == "ann"
    assert catalog.runs.finish("r").state == "running"
    clock.advance(5)
    ended = catalog.runs.finish("r", error="aborted by ann; rolled back")
    assert (ended.state, ended.ended_ms) == ("failed", clock.now_ms())


def test_only_the_run_that_changes_a_job_now_can_be_aborted(catalog: Catalog, job: str) -> None:
    with pytest.raises(UnknownRecordError, match="found no run changing job 'flights'"):
        catalog.runs.abort(job, "ann")
    catalog.runs.start("old", job, from_parallelism=2, to_parallelism=4)
    done = catalog.runs.finish("old")
    with pytest.raises(UnknownRecordError, match="no run changing"):
        catalog.runs.abort(job, "ann")
    catalog.runs.start("new", job, from_parallelism=4, to_parallelism=2)
    with pytest.raises(UnknownRecordError, match="found run 'new' changing job 'flights'; expected run 'old' to abort"):
        catalog.runs.abort(job, "ann", run_id="old")
    assert catalog.runs.abort(job, "ann", run_id="new").aborted_by == "ann"
    assert catalog.runs.get("old") == done


def test_an_aborted_run_whose_process_has_died_says_so_when_its_lease_expires(
    catalog: Catalog, job: str, clock
) -> None:
    catalog.leases.acquire(job, "r", 5_000)
    catalog.runs.start("r", job, from_parallelism=2, to_parallelism=4)
    catalog.runs.abort(job, "ann")
    clock.advance(5_000)
    catalog.leases.recover_expired(job)
    assert catalog.runs.get("r").error == "aborted by ann; lease expired (owner r)"


def test_wrong_rescale_runs_are_refused(catalog: Catalog, job: str, register) -> None:
    register(catalog, "other")
    catalog.runs.start("r", job, from_parallelism=2, to_parallelism=4)
    with pytest.raises(CatalogError, match="'r' belongs to job 'flights'"):
        catalog.runs.start("r", "other", from_parallelism=2, to_parallelism=4)
    for act in (
        lambda: catalog.runs.get("x"),
        lambda: catalog.runs.mark_step("x", "s", started=True),
        lambda: catalog.runs.finish("x"),
    ):
        with pytest.raises(UnknownRecordError, match="no rescale run 'x'"):
            act()


def test_rescale_runs_are_counted_by_their_outcome(catalog: Catalog, job: str, register) -> None:
    assert catalog.runs.outcomes(job) == {}
    for number, error in enumerate([None, None, "no quota"]):
        catalog.runs.start(f"r{number}", job, from_parallelism=2, to_parallelism=4)
        catalog.runs.finish(f"r{number}", error=error)
    catalog.runs.start("now", job, from_parallelism=2, to_parallelism=4)
    catalog.runs.start("other", register(catalog, "clicks"), from_parallelism=2, to_parallelism=4)
    assert catalog.runs.outcomes(job) == {"done": 2, "failed": 1, "running": 1}


def test_what_ended_long_ago_is_forgotten_but_not_the_newest_hundred_and_nothing_that_has_not_ended(
    catalog: Catalog, job: str, register, clock
) -> None:
    register(catalog, "other")

    def run(number: int, of: str) -> None:
        generation = catalog.generations.claim(of, log_path="").generation
        catalog.generations.end(of, generation, state="failed", error="e")
        catalog.runs.start(f"{of}-{number}", of, from_parallelism=2, to_parallelism=4)
        catalog.runs.finish(f"{of}-{number}")
        asked = catalog.requests.send(of, "savepoint", {}, f"{of}-{number}")
        catalog.requests.finish(asked.id, result={})
        clock.advance(1)

    open_run = catalog.runs.start("open", job, from_parallelism=2, to_parallelism=4)
    open_request = catalog.requests.send(job, "savepoint", {}, "open")
    for number in range(KEPT_NEWEST + 3):
        run(number, job)
    run(0, "other")
    catalog.jobs.forget_history(job)
    assert len(catalog.generations.of(job)) == KEPT_NEWEST + 3

    clock.advance(KEPT_MS)
    recent = catalog.requests.send(job, "savepoint", {}, "recent")
    catalog.requests.finish(recent.id, error="e")
    audit = catalog.jobs.audit(job)
    catalog.jobs.forget_history(job)
    assert audit and catalog.jobs.audit(job) == audit
    assert [each.generation for each in catalog.generations.of(job)] == [*range(KEPT_NEWEST + 3, 3, -1)]
    runs = [each.run_id for each in catalog.runs.of(job)]
    assert len(runs) == KEPT_NEWEST + 1
    assert runs[-1] == open_run.run_id
    assert catalog.requests.get(recent.id).state == "failed"
    assert catalog.requests.get(open_request.id).state == "pending"
    with pytest.raises(UnknownRecordError):
        catalog.requests.get(open_request.id + 1)
    assert len(catalog.generations.of("other")) == len(catalog.runs.of("other")) == 1
    assert catalog.generations.claim(job, log_path="").generation == KEPT_NEWEST + 4
