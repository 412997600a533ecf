"""The steps of catch_up against a real catalog."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DagRunTriggerException,
    TaskDeferred,
)
from statecore_airflow.operators import wait_drained
from statecore_airflow.operators.catch_up import EstimateDrainOperator, ScaleBackOperator, ScaleOperator
from statecore_airflow.operators.wait_drained import DrainedTrigger, WaitDrainedOperator
from statecore_airflow.triggers import catalog as triggers

from statecore.catalog import Catalog, EpochRecord, SourceBacklog
from tests.airflow.rescale_runs import FakeTask
from tests.airflow.running import run_step, sent

PARAMS = {"job": "flights", "parallelism": 4, "workers": 2, "reason": ""}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "POLL_S", 0.02)
    monkeypatch.setattr(triggers, "SETTLE_S", 0.0)
    monkeypatch.setattr("statecore_airflow.operators.base.CatalogOperator.wait_here_ms", 0)


@pytest.fixture
def behind(catalog: Catalog, job: str) -> str:
    """A job that reads 1,000 rows/s while 100 arrive, with 91,100 waiting."""
    catalog.jobs.set_desired(job, state="running", parallelism=2)
    generation = catalog.generations.claim(job, log_path="log").generation
    catalog.generations.heartbeat(job, generation)
    now_ms, rows = time.time_ns() // 1_000_000, 0
    for number in range(60):
        size = 500 + number % 7 * 200
        rows += size
        at_ms = now_ms - 60_000 + number * 1_000
        waiting = 90_000 + number * 100 + 60_000 - rows
        backlog = (SourceBacklog("in", records=waiting),)
        catalog.epochs.record(
            EpochRecord(job, 1, number, generation, 2, size, rows, at_ms - size, at_ms, size, backlog=backlog)
        )
    return job


def estimate(params: dict[str, Any]) -> tuple[dict[str, Any], FakeTask]:
    task = FakeTask(params=params)
    return EstimateDrainOperator(task_id="estimate", job="flights").execute(task.context), task


def test_the_estimate_comes_first_and_says_what_now_and_what_after(
    catalog: Catalog, behind: str, caplog: pytest.LogCaptureFixture
) -> None:
    found, task = estimate(PARAMS)
    assert (found["now"]["parallelism"], found["after"]["parallelism"]) == (2, 4)
    assert (found["now"]["workers"], found["after"]["workers"]) == (1, 2)
    assert found["now"]["seconds"] == pytest.approx(91_100 / 900, rel=0.1)
    assert found["after"]["seconds"] == pytest.approx(91_100 / 1_900, rel=0.1)
    out, back = task.pushed["scale_out"], task.pushed["scale_back"]
    assert {**out, "reason": ""} == {**PARAMS, "method": "auto"}
    assert {**back, "reason": ""} == {**PARAMS, "parallelism": 2, "workers": 1, "method": "auto"}
    assert "rows wait" in out["reason"] and "instead of" in out["reason"]


def test_nothing_is_estimated_while_another_run_changes_the_job(catalog: Catalog, behind: str) -> None:
    catalog.leases.acquire(behind, "autoscale-7", 60_000)
    with pytest.raises(AirflowFailException, match="autoscale-7"):
        estimate(PARAMS)


def test_workers_are_refused_for_a_job_without_a_cluster(catalog: Catalog, behind: str) -> None:
    found = catalog.jobs.get(behind)
    catalog.jobs.register(
        behind, artifact="x", store=found.store, master_url="local", parallelism=2, max_parallelism=16
    )
    with pytest.raises(AirflowFailException, match="found 2 workers asked for job 'flights', which names no cluster"):
        estimate(PARAMS)
    assert estimate({**PARAMS, "workers": None})[0]["after"]["workers"] is None


def test_as_many_as_needed_are_taken_within_the_limits_of_the_policy(catalog: Catalog, behind: str) -> None:
    wanted = {**PARAMS, "parallelism": None, "workers": None}
    # Without a policy nobody has said how large the job may become: twice as large as it is.
    assert [estimate({**wanted, "within_minutes": each})[0]["after"]["parallelism"] for each in (10, 0.1)] == [4, 4]
    catalog.policies.set(behind, {"max_parallelism": 6, "subtasks_per_worker": 2}, enabled=False)
    for minutes, expected in ((10, 2), (1, 4), (0.1, 6)):
        found, _ = estimate({**wanted, "within_minutes": minutes})
        assert (found["after"]["parallelism"], found["after"]["workers"]) == (expected, expected // 2)
    catalog.policies.set(behind, {"max_parallelism": 6, "subtasks_per_worker": 4}, enabled=False)
    found, _ = estimate({**wanted, "parallelism": 8})
    assert (found["after"]["parallelism"], found["after"]["workers"]) == (8, 2)


def test_no_more_workers_are_taken_than_the_cluster_may_have(catalog: Catalog, behind: str) -> None:
    catalog.clusters.report("local", ready_workers=1, max_workers=1)
    found, _ = estimate({**PARAMS, "parallelism": None, "workers": None})
    assert (found["after"]["parallelism"], found["after"]["workers"]) == (4, 1)


def test_twice_as_many_are_twice_what_the_job_has_and_not_what_its_last_epoch_had(
    catalog: Catalog, behind: str
) -> None:
    catalog.jobs.set_desired(behind, parallelism=8)
    assert estimate({**PARAMS, "parallelism": None, "workers": None})[0]["after"]["parallelism"] == 16


def test_a_policy_that_does_not_say_how_many_subtasks_a_worker_takes_leaves_them_as_they_are(
    catalog: Catalog, behind: str
) -> None:
    catalog.policies.set(behind, {"max_parallelism": 6}, enabled=False)
    found, _ = estimate({**PARAMS, "parallelism": None, "workers": None, "within_minutes": 0.1})
    assert (found["now"]["parallelism"], found["now"]["workers"]) == (2, 1)
    assert (found["after"]["parallelism"], found["after"]["workers"]) == (6, 3)


def test_where_nothing_can_be_estimated_the_job_gets_all_that_its_policy_allows(catalog: Catalog, job: str) -> None:
    catalog.policies.set(job, {"max_parallelism": 6}, enabled=False)
    found, _ = estimate({**PARAMS, "parallelism": None, "workers": None})
    assert (found["after"]["parallelism"], found["after"]["drains"]) == (6, None)


def scale(conf: dict[str, Any] | None, task: FakeTask) -> None:
    ScaleOperator(task_id="scale_out", job="flights", conf=conf).execute(task.context)


def test_a_size_is_reached_by_one_run_and_one_that_failed_is_followed_by_another(catalog: Catalog, behind: str) -> None:
    conf = {**PARAMS, "method": "live"}
    task = FakeTask()
    with pytest.raises(DagRunTriggerException) as triggered:
        scale(conf, task)
    assert triggered.value.conf == conf and triggered.value.dag_run_id == "manual-1__scale_out-1"
    task.runs["manual-1__scale_out-1"] = "running"
    with pytest.raises(TaskDeferred):
        scale(conf, task)
    with pytest.raises(AirflowException, match="manual-1__scale_out-1"):
        event = ("", {"run_ids": ["manual-1__scale_out-1"], "manual-1__scale_out-1": "failed"})
        ScaleOperator(task_id="scale_out", job="flights", conf=conf).execute_complete(task.context, event)
    task.runs["manual-1__scale_out-1"], task.try_number = "failed", 2
    with pytest.raises(DagRunTriggerException) as again:
        scale(conf, task)
    assert again.value.dag_run_id == "manual-1__scale_out-2"


def test_nothing_is_scaled_where_the_size_is_there_and_nobody_changes_it(catalog: Catalog, behind: str) -> None:
    conf = {**PARAMS, "parallelism": 2, "workers": 1}
    with pytest.raises(AirflowSkipException):
        scale(conf, FakeTask())
    # A run that was triggered before, and may still be rolled back.
    task = FakeTask()
    task.runs["manual-1__scale_out-1"] = "running"
    catalog.leases.acquire(behind, "manual-1__scale_out-1", 60_000)
    with pytest.raises(TaskDeferred):
        scale(conf, task)


def test_what_was_never_scaled_out_does_not_go_back_when_somebody_else_has_changed_it(
    catalog: Catalog, behind: str
) -> None:
    _, task = estimate({**PARAMS, "parallelism": 2, "workers": 1})
    catalog.jobs.set_desired(behind, parallelism=1)
    for key, operator in (("scale_out", ScaleOperator), ("scale_back", ScaleBackOperator)):
        more = {"drained": "wait_drained"} if operator is ScaleBackOperator else {}
        with pytest.raises(AirflowSkipException):
            operator(task_id=key, job=behind, conf=task.pushed[key], **more).execute(task.context)


def test_a_run_that_is_cleared_by_hand_scales_anew(catalog: Catalog, behind: str) -> None:
    task = FakeTask(try_number=2)
    task.runs["manual-1__scale_out-1"] = "success"
    with pytest.raises(DagRunTriggerException) as again:
        scale({**PARAMS, "method": "live"}, task)
    assert again.value.dag_run_id == "manual-1__scale_out-2"


def test_a_run_that_is_cleared_while_the_job_is_large_goes_back_to_the_size_before_it(
    catalog: Catalog, behind: str
) -> None:
    def rescaled(run: str, to: int, workers: int) -> None:
        catalog.runs.start(
            run,
            behind,
            from_parallelism=catalog.jobs.get(behind).parallelism,
            to_parallelism=to,
            from_workers=3 - workers,
        )
        catalog.jobs.set_desired(behind, parallelism=to)
        catalog.runs.finish(run)

    rescaled("manual-1__scale_out-1", 4, 2)
    _, task = estimate(PARAMS)
    assert (task.pushed["scale_back"]["parallelism"], task.pushed["scale_back"]["workers"]) == (2, 1)
    # Once somebody has had another size since, that one is how the job was.
    rescaled("by-hand", 3, 1)
    _, task = estimate(PARAMS)
    assert task.pushed["scale_back"]["parallelism"] == 3


@pytest.mark.parametrize(
    ("state", "said"), [("success", "is drained"), ("failed", "not drained (wait_drained failed)")]
)
def test_the_way_back_says_whether_the_backlog_is_drained(catalog: Catalog, behind: str, state: str, said: str) -> None:
    task = FakeTask()
    task.states["wait_drained"] = state
    back = ScaleBackOperator(
        task_id="scale_back", job=behind, conf={**PARAMS, "reason": "catch_up"}, drained="wait_drained"
    )
    with pytest.raises(DagRunTriggerException) as triggered:
        back.execute(task.context)
    assert triggered.value.conf is not None and said in triggered.value.conf["reason"]


def measure(catalog: Catalog, job: str, *, rows: int | None, lag_ms: int | None = None) -> None:
    # Two in one millisecond are one.
    time.sleep(0.002)  # noqa: TID251
    catalog.epochs.record_backlog(job, 1, [SourceBacklog("in", records=rows, event_time_lag_ms=lag_ms)])


def wait(**params: Any) -> Any:
    limits = {"job": "flights", "backlog": 100, "hold_seconds": 0.2, "timeout_minutes": 0.005, **params}
    return run_step(WaitDrainedOperator(task_id="wait_drained", job="flights"), **limits)


def test_the_wait_ends_when_backlog_and_lag_have_stayed_under_their_limits(catalog: Catalog, behind: str) -> None:
    common: dict[str, Any] = {"conn_id": "statecore_catalog", "job": behind, "owner": None, "deadline_ms": 10**15}
    trigger = DrainedTrigger(rows=100, lag_ms=60_000, hold_ms=50, **common)

    def look(rows: int, lag_ms: int) -> tuple[str, bool]:
        measure(catalog, behind, rows=rows, lag_ms=lag_ms)
        return trigger.look(catalog).status, trigger.since_ms is not None

    assert look(50, 100) == ("waiting", True)
    assert look(200, 100) == ("waiting", False)
    assert look(50, 90_000) == ("waiting", False)
    assert look(50, 100) == ("waiting", True)
    # Another triggerer goes on where this one was.
    trigger = sent(trigger)
    time.sleep(0.06)  # noqa: TID251
    assert look(50, 100) == ("done", True)


def test_a_wait_goes_on_while_a_driver_measures(catalog: Catalog, behind: str) -> None:
    ended = threading.Event()

    def drain() -> None:
        for rows in (500, 300, *[50] * 500):
            measure(catalog, behind, rows=rows)
            if ended.wait(0.05):
                return

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    try:
        wait(timeout_minutes=1)
    finally:
        ended.set()
        thread.join()


def test_a_silent_source_is_late_and_still_drained(catalog: Catalog, behind: str) -> None:
    measure(catalog, behind, rows=0, lag_ms=10**9)
    wait(lag_minutes=1, hold_seconds=0)


def test_where_nobody_can_tell_what_waits_the_lag_alone_decides(catalog: Catalog, behind: str) -> None:
    common: dict[str, Any] = {"conn_id": "statecore_catalog", "job": behind, "owner": None, "deadline_ms": 10**15}
    trigger = DrainedTrigger(rows=100, lag_ms=60_000, hold_ms=0, **common)
    for lag_ms, status in ((90_000, "waiting"), (100, "done")):
        measure(catalog, behind, rows=None, lag_ms=lag_ms)
        assert trigger.look(catalog).status == status


@pytest.mark.parametrize(
    ("rows", "params", "said"),
    [
        (5_000, {}, "5,000 rows wait"),
        (None, {}, "no source of job 'flights' that reports its backlog"),
        (50, {"hold_seconds": 999}, "under the limits"),
    ],
)
def test_a_backlog_that_stays_or_cannot_be_known_fails_the_wait(
    catalog: Catalog, behind: str, rows: int | None, params: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_drained, "_FIRST_EPOCH_MS", 0)
    measure(catalog, behind, rows=rows)
    with pytest.raises(AirflowFailException, match=said):
        wait(**params)


def test_a_driver_that_has_just_started_may_not_know_its_backlog_yet(catalog: Catalog, behind: str) -> None:
    common: dict[str, Any] = {"conn_id": "statecore_catalog", "job": behind, "owner": None, "deadline_ms": 10**15}
    trigger = DrainedTrigger(rows=100, lag_ms=None, hold_ms=0, **common)
    measure(catalog, behind, rows=None)
    assert trigger.look(catalog).status == "waiting"
    measure(catalog, behind, rows=50)
    assert trigger.look(catalog).status == "done"
