from __future__ import annotations

from typing import Any

import pytest

from statecore.catalog import Catalog, StepTimes
from statecore.errors import OtherRequestError, UnknownRecordError


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
    with pytest.raises(OtherRequestError, match=r"'r' of job 'flights', running.*for job 'other'"):
        catalog.runs.start("r", "other", from_parallelism=2, to_parallelism=4)
    asked = {"parallelism": 3}
    with pytest.raises(OtherRequestError, match=r"asked for nothing; expected .* parallelism 3"):
        catalog.runs.start("r", job, from_parallelism=2, to_parallelism=4, asked=asked)
    known = catalog.runs.start("s", job, from_parallelism=2, to_parallelism=4, asked=asked)
    assert catalog.runs.start("s", job, from_parallelism=2, to_parallelism=4, asked=asked) == known
    assert known.asked == asked
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
