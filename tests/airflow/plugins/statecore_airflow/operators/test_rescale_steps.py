"""The steps of a rescale against a real catalog, one by one; Airflow itself takes part in test_rescale_dag."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred
from statecore_airflow.hooks.settings import CatalogSettings
from statecore_airflow.operators import base as catalog_operator
from statecore_airflow.operators.lease import BeginRescaleOperator
from statecore_airflow.operators.step import StepOperator
from statecore_airflow.triggers import catalog as triggers

from statecore.catalog import Catalog, Leases, SystemClock
from statecore.errors import (
    CatalogError,
    ConfigurationError,
    MissingFileError,
    StorageError,
    UnknownRecordError,
)
from statecore.operations.changes import (
    Finding,
    GrowCluster,
    RescaleState,
    ResizeCluster,
    Restart,
    ShrinkCluster,
    Status,
    StopWithSavepoint,
    Verify,
    savepoint_name,
)
from statecore.operations.changes.change import now_ms
from statecore.snapshot.checkpoints import CheckpointStore
from tests.airflow.running import NAME, RUN, context_of, fire, run_step, sent
from tests.airflow.scripted_driver import ScriptedDriver, commit_epoch
from tests.support.supervised import supervise
from tests.support.waiting import wait

pytestmark = pytest.mark.usefixtures("quick")


def lease(name: str, run: str = RUN, **changes: Any) -> None:
    params = {"job": name, "parallelism": 4, "workers": 2, "method": "by_reference", "reason": "backlog", **changes}
    run_step(BeginRescaleOperator(job=params["job"]), run, **params)


def stop(job: str) -> StepOperator:
    return StepOperator(step=StopWithSavepoint, job=job, arguments={"reason": "backlog"})


def rescale(job: str) -> StepOperator:
    return StepOperator(step=RescaleState, job=job)


def restart(job: str) -> StepOperator:
    return StepOperator(step=Restart, job=job)


def verify(job: str, **arguments: Any) -> StepOperator:
    return StepOperator(step=Verify, job=job, **arguments)


def test_the_lease_records_the_run_and_what_the_job_was(catalog: Catalog, job: str) -> None:
    lease(job)
    run = catalog.runs.get(RUN)
    assert (run.from_parallelism, run.to_parallelism, run.from_workers, run.to_workers) == (2, 4, 1, 2)
    held = catalog.leases.find(job)
    assert held is not None
    assert (held.owner, held.before.job.parallelism, held.before.workers) == (RUN, 2, 1)


def test_a_run_without_workers_leaves_the_cluster_as_it_is(catalog: Catalog, job: str) -> None:
    lease(job, workers=None)
    assert catalog.runs.get(RUN).to_workers == 1
    for resize in (ResizeCluster, ShrinkCluster):
        with pytest.raises(AirflowSkipException):
            run_step(StepOperator(step=resize, job=job))


def test_another_runs_lease_is_respected_and_named(catalog: Catalog, job: str) -> None:
    lease(job, "manual__first")
    catalog.jobs.set_desired(job, state="stopped")  # as its next step does
    with pytest.raises(AirflowFailException, match="manual__first"):
        lease(job)
    assert [run.run_id for run in catalog.runs.of(job)] == ["manual__first"]
    assert catalog.leases.find(job).owner == "manual__first"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parallelism": 17}, "1 to its max"),
        ({"workers": 0}, "0 workers"),
        ({"max_parallelism": 32}, "choose the method rewrite"),
        ({"method": "rewrite", "parallelism": 9, "max_parallelism": 8}, "1 to its max parallelism 8"),
        ({"method": "live"}, "no live driver"),
        ({"job": "nobody"}, "known jobs: flights"),
        ({"speed": 9}, "unknown field"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_changes(
    catalog: Catalog, job: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        lease(job, **changes)
    assert catalog.leases.find(job) is None and catalog.runs.of(job) == []


def test_a_job_that_is_stopped_is_not_rescaled(catalog: Catalog, job: str) -> None:
    catalog.jobs.set_desired(job, state="stopped")
    with pytest.raises(AirflowFailException, match=r"start it at the new parallelism: .* or the DAG start"):
        lease(job)


def test_a_running_job_is_stopped_by_its_driver(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    lease(job)
    path = run_step(stop(job))
    assert path == f"savepoints/{NAME}/manifest.json"
    assert store.manifest(path).savepoint.reason == "backlog"  # type: ignore[union-attr]
    newest = catalog.generations.newest(job)
    assert newest is not None and (newest.generation, newest.state) == (1, "stopped")
    run = catalog.runs.get(RUN)
    assert run.savepoint == path and run.steps["stop_with_savepoint"].ended_ms is not None
    assert [item.path for item in catalog.savepoints.of(job)] == [store.describe(path)]


def test_a_stop_that_is_run_again_finds_its_savepoint(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    lease(job)
    first = run_step(stop(job))
    ended_ms = catalog.runs.get(RUN).steps["stop_with_savepoint"].ended_ms
    assert run_step(stop(job)) == first
    assert catalog.runs.get(RUN).steps["stop_with_savepoint"].ended_ms == ended_ms
    assert len(catalog.generations.of(job)) == 1


def test_a_stop_that_was_cut_off_while_it_waited_goes_on(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    lease(job)
    with pytest.raises(TaskDeferred):
        stop(job).execute(context_of())
    assert run_step(stop(job)) == f"savepoints/{NAME}/manifest.json"


def test_a_job_that_has_no_driver_gets_its_savepoint_from_the_newest_epoch(
    catalog: Catalog, job: str, store: CheckpointStore
) -> None:
    lease(job)
    path = run_step(stop(job))
    assert path is not None and store.manifest(path).epoch == 7
    # The request is answered: the next driver must not find it and stop.
    assert catalog.requests.take_next(job) is None


def test_a_driver_that_dies_while_it_is_asked_is_replaced_by_the_newest_epoch(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(job)
    driver.die()
    from statecore.catalog.records import Liveness

    monkeypatch.setattr(Liveness, "is_alive", lambda self, item, now_ms: _alive(item, now_ms))
    path = run_step(stop(job))
    newest = store.newest()
    assert path is not None and newest is not None and store.manifest(path).epoch == newest.epoch
    states = [item.state for item in catalog.generations.of(job)]
    assert states == ["stopped", "failed"]
    assert catalog.requests.take_next(job) is None


def _alive(item: Any, now_ms: int) -> bool:
    return not item.ended and now_ms - item.heartbeat_ms < 1_000


def test_no_driver_and_no_epoch_is_an_error_that_says_what_to_do(catalog: Catalog, tmp_path: Path) -> None:
    catalog.jobs.register(
        "empty",
        artifact="x.py",
        store=str(tmp_path / "none"),
        master_url="local[1]",
        parallelism=1,
        max_parallelism=8,
    )
    catalog.jobs.set_desired("empty", state="running")
    supervise(catalog)
    lease("empty", workers=None)
    with pytest.raises(AirflowFailException, match=r"found no committed epoch .*; expected .*; start the job"):
        run_step(stop("empty"))
    assert "step stop_with_savepoint failed: found no committed epoch" in str(catalog.runs.get(RUN).error)


def test_a_run_that_has_lost_its_lease_does_not_touch_the_job(catalog: Catalog, job: str) -> None:
    lease(job)
    run_step(stop(job))
    run_step(rescale(job))
    catalog.leases.release(job, RUN)  # as when it expired and the supervisor brought the job back
    catalog.jobs.set_desired(job, state="running", start_from=None)
    for operator in (stop(job), restart(job)):
        with pytest.raises(AirflowFailException, match="there is no lease"):
            run_step(operator)
    assert catalog.jobs.get(job).start_from is None


def test_resize_waits_until_the_workers_are_ready(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    lease(job, workers=3)
    run_step(StepOperator(step=GrowCluster, job=job))
    assert catalog.clusters.get("local").ready_workers == 3
    run_step(StepOperator(step=ResizeCluster, job=job))
    with pytest.raises(AirflowSkipException, match="workers 1 to 3"):
        run_step(StepOperator(step=ShrinkCluster, job=job))


def test_resize_that_takes_too_long_says_what_it_saw(catalog: Catalog, job: str) -> None:
    lease(job, workers=3)
    catalog.clusters.report("local", ready_workers=1, message="no port free")
    resize = StepOperator(step=ResizeCluster, job=job, timeout=timedelta(milliseconds=200))
    with pytest.raises(
        AirflowFailException, match=r"1 of 3 workers ready \(no port free\).*expected all workers ready"
    ):
        run_step(resize)


def test_a_resize_that_the_cluster_says_is_in_vain_ends_at_once(catalog: Catalog, job: str) -> None:
    lease(job, workers=3)
    ended = threading.Event()

    def complain() -> None:
        with Catalog(CatalogSettings.load("statecore_catalog").url) as supervisor:
            while not ended.wait(0.02):
                supervisor.clusters.report("local", ready_workers=1, message="no quota for 3; ask for more")

    supervisor = threading.Thread(target=complain, daemon=True)
    supervisor.start()
    try:
        with pytest.raises(AirflowFailException, match="cluster local: no quota for 3; ask for more"):
            run_step(StepOperator(step=GrowCluster, job=job, timeout=timedelta(seconds=60)))
    finally:
        ended.set()
        supervisor.join()


def test_resize_is_skipped_for_a_job_without_a_cluster(catalog: Catalog, store: CheckpointStore) -> None:
    catalog.jobs.register(
        "plain", artifact="x", store=store.files.url, master_url="local", parallelism=2, max_parallelism=16
    )
    catalog.jobs.set_desired("plain", state="running")
    supervise(catalog)
    commit_epoch(store, "plain", epoch=1, parallelism=2)
    with pytest.raises(AirflowFailException, match="found 2 workers asked for job 'plain', which names no cluster"):
        lease("plain")
    assert catalog.leases.find("plain") is None
    lease("plain", workers=None)
    with pytest.raises(AirflowSkipException):
        run_step(StepOperator(step=GrowCluster, job="plain"))


def test_state_is_rescaled_by_reference_once(catalog: Catalog, job: str, store: CheckpointStore) -> None:
    lease(job)
    savepoint = run_step(stop(job))
    path = run_step(rescale(job))
    assert path == f"savepoints/{NAME}-p4/manifest.json"
    old, new = store.manifest(str(savepoint)), store.manifest(path)
    assert (old.parallelism, new.parallelism) == (2, 4)
    assert {ref.path for ref in old.files()} == {ref.path for ref in new.files()}
    assert run_step(rescale(job)) == path


def test_a_missing_state_file_is_named_exactly(catalog: Catalog, job: str, store: CheckpointStore) -> None:
    lease(job)
    savepoint = run_step(stop(job))
    lost = Path(store.files.url) / store.manifest(str(savepoint)).files()[0].path
    lost.unlink()
    with pytest.raises(AirflowFailException) as caught:
        run_step(rescale(job))
    assert f"found no file {lost};" in str(caught.value)


def test_a_rewrite_is_submitted_to_the_jobs_own_spark_once_and_started_with_its_max_parallelism(
    catalog: Catalog, job: str, store: CheckpointStore, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    params: dict[str, Any] = {"job": job, "parallelism": 4, "method": "rewrite", "max_parallelism": 32}
    lease(job, **params)
    savepoint = str(run_step(stop(job)))
    submitted: list[list[str]] = []

    def submit(job_record: Any, name: str, properties: Path, entry_point: Path, *arguments: str) -> list[str]:
        submitted.append([job_record.master_url, entry_point.name, *arguments])
        import msgspec

        old = store.manifest(savepoint)
        new = msgspec.structs.replace(old, parallelism=4, max_parallelism=32, operators=())
        store.write_savepoint(new, name, reason="", now_ms=1)
        return ["echo", "rewritten"]

    monkeypatch.setattr("statecore.operations.changes.rewriting.submit_command", submit)
    path = f"savepoints/{NAME}-p4-of-32/manifest.json"
    for _ in range(2):
        assert run_step(rescale(job), **params) == path
    assert submitted == [
        [
            "spark://127.0.0.1:7077", "rewrite.py", "--savepoint", store.describe(savepoint),
            "--name", f"{NAME}-p4-of-32", "--parallelism", "4", "--max-parallelism", "32",
        ]
    ]  # fmt: skip
    run_step(restart(job), **params)
    wanted = catalog.jobs.get(job)
    assert (wanted.parallelism, wanted.max_parallelism, wanted.start_from) == (4, 32, path)


def test_a_rewrite_that_fails_says_with_which_exit_code(
    catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params: dict[str, Any] = {"job": job, "parallelism": 4, "method": "rewrite", "max_parallelism": 32}
    lease(job, **params)
    run_step(stop(job))
    monkeypatch.setattr("statecore.operations.changes.rewriting.submit_command", lambda *_: ["sh", "-c", "exit 3"])
    with pytest.raises(AirflowException, match="exit code 3; expected 0"):
        run_step(rescale(job), **params)


def test_a_rewrite_goes_on_while_the_catalog_is_away(
    catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params: dict[str, Any] = {"job": job, "parallelism": 4, "method": "rewrite", "max_parallelism": 32}
    lease(job, **params)
    run_step(stop(job))
    away: list[int] = []

    def renew(self: Leases, *_: object) -> None:
        away.append(1)
        raise CatalogError("the catalog cannot be reached")

    def submit(*_: object) -> list[str]:
        monkeypatch.setattr(Leases, "renew", renew)
        return ["sh", "-c", "sleep 0.3; exit 3"]

    monkeypatch.setattr("statecore.operations.changes.rewriting.submit_command", submit)
    monkeypatch.setattr("statecore_airflow.operators.step.lease_ttl_ms", lambda: 500)
    with pytest.raises(AirflowException, match="exit code 3; expected 0"):
        run_step(rescale(job), **params)
    assert away


def test_a_live_rescale_asks_the_driver_and_stops_nothing(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    lease(job, method="live")
    for needless in (stop(job), restart(job)):
        with pytest.raises(AirflowSkipException, match="method live"):
            run_step(needless)
    live = rescale(job)
    driver.refuse = "no executor joined"
    with pytest.raises(AirflowException, match="no executor joined"):
        run_step(live)
    driver.refuse = None
    run_step(live)
    run_step(live)
    run_step(verify(job))
    newest = catalog.generations.newest(job)
    assert newest is not None and (newest.generation, newest.parallelism) == (1, 4)
    assert (catalog.runs.get(RUN).state, catalog.jobs.get(job).parallelism) == ("done", 4)


def test_restart_gives_the_supervisor_the_rescaled_savepoint(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    lease(job)
    run_step(stop(job))
    path = run_step(rescale(job))
    run_step(restart(job))
    wanted = catalog.jobs.get(job)
    assert (wanted.desired_state, wanted.parallelism, wanted.start_from) == ("running", 4, path)
    # As the new driver does after its first epoch; a second attempt must not ask for the old savepoint again.
    catalog.jobs.clear_start(job, wanted.start_after_generation)
    run_step(restart(job))
    assert catalog.jobs.get(job).start_from is None
    assert [item.generation for item in catalog.generations.of(job)] == [2, 1]


def test_a_generation_that_fails_to_start_is_the_tasks_error_and_a_retry_waits_for_the_next(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    lease(job)
    run_step(stop(job))
    run_step(rescale(job))
    driver.fail_next = "found no file /somewhere/state; expected it"
    with pytest.raises(AirflowException, match="found no file /somewhere/state") as caught:
        run_step(restart(job))
    assert not isinstance(caught.value, AirflowFailException)
    assert "step restart failed" in str(catalog.runs.get(RUN).error)
    run_step(restart(job))
    assert catalog.generations.newest(job).generation == 3  # type: ignore[union-attr]
    assert not catalog.runs.get(RUN).error


def test_verify_ends_the_run_and_gives_the_lease_back(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    lease(job)
    for operator in (stop(job), rescale(job), restart(job)):
        run_step(operator)
    run_step(verify(job))
    run = catalog.runs.get(RUN)
    assert run.state == "done" and run.steps["verify"].ended_ms is not None
    assert catalog.leases.find(job) is None
    # Every step of a run that is done can be run again and changes nothing.
    lease(job)
    assert run_step(stop(job)) == run.savepoint
    assert run_step(rescale(job)) == run.rescaled
    run_step(restart(job))
    run_step(verify(job))
    assert catalog.jobs.get(job).desired_state == "running" and catalog.leases.find(job) is None


def test_verify_refuses_another_parallelism_and_a_restart_loop(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    lease(job)
    run_step(stop(job))
    run_step(rescale(job))
    catalog.jobs.set_desired(job, state="running", parallelism=3)
    driver.wait_running()
    with pytest.raises(AirflowFailException, match=r"at parallelism 3; expected 4"):
        run_step(verify(job))
    driver.fail_at = {4: "out of memory"}
    catalog.jobs.set_desired(job, parallelism=4)
    catalog.generations.end(job, 2, state="stopped")
    with pytest.raises(AirflowFailException, match=r"generations 3, 4\b.*out of memory.*expected fewer than 2"):
        run_step(verify(job))


def test_verify_waits_for_epochs_while_something_waits(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    lease(job)
    # Few: a backlog is waited for, too, by the rate of before. The new driver commits no epoch that would count.
    driver.waiting, driver.idle = 5, True
    for operator in (stop(job), rescale(job), restart(job)):
        run_step(operator)
    with pytest.raises(
        AirflowFailException, match=r"parallelism 4.*5 records wait.*expected a live driver .* that keeps up"
    ):
        run_step(verify(job, timeout=timedelta(seconds=1)))
    driver.idle = False
    run_step(verify(job))
    assert catalog.runs.get(RUN).state == "done"


def test_a_wait_keeps_the_lease(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    lease(job)
    with pytest.raises(TaskDeferred) as deferred:
        stop(job).execute(context_of())
    before = catalog.leases.find(job)
    assert before is not None
    wait(lambda: SystemClock().now_ms() > before.heartbeat_ms, "the clock to go on")
    fire(deferred.value)
    after = catalog.leases.find(job)
    assert after is not None and after.heartbeat_ms > before.heartbeat_ms


@pytest.mark.parametrize("is_deferred", [True, False], ids=["in the triggerer", "in the worker"])
def test_a_run_that_the_supervisor_has_ended_during_an_outage_of_airflow_is_a_success(
    catalog: Catalog, job: str, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch, is_deferred: bool
) -> None:
    lease(job)
    for step in (stop(job), rescale(job), restart(job)):
        run_step(step)
    driver.waiting, driver.idle = 500, True
    operator = verify(job)
    if is_deferred:
        with pytest.raises(TaskDeferred) as pending:
            operator.execute(context_of())
        end_as_the_supervisor(catalog, job)
        event = fire(pending.value)
        assert event["status"] == "done"
        operator.execute_complete(context_of(), event)
    else:
        monkeypatch.setattr(catalog_operator.CatalogOperator, "wait_here_ms", 60_000)
        monkeypatch.setattr("statecore_airflow.operators.base.lease_renewal_ms", lambda: 0)
        monkeypatch.setattr(
            "statecore_airflow.operators.base.time.sleep", lambda _: end_as_the_supervisor(catalog, job)
        )
        operator.execute(context_of())
    assert catalog.runs.get(RUN).state == "done" and catalog.leases.find(job) is None


def test_a_healthy_job_is_not_taken_back_because_airflow_was_down_until_the_deadline(
    catalog: Catalog, job: str, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(job)
    for step in (stop(job), rescale(job), restart(job)):
        run_step(step)
    operator = verify(job)
    with pytest.raises(TaskDeferred) as pending:
        operator.execute(context_of())
    trigger: Any = pending.value.trigger
    trigger.deadline_ms = now_ms() - 60_000
    # A new process has to see two heartbeats itself.
    monkeypatch.setattr(triggers, "LATE_S", 60.0)
    assert fire(pending.value)["status"] == "done"


def end_as_the_supervisor(catalog: Catalog, job: str) -> None:
    catalog.runs.finish(RUN)
    catalog.leases.release(job, RUN)


def test_a_wait_in_the_worker_keeps_the_lease_too(
    catalog: Catalog, job: str, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(job)
    monkeypatch.setattr("statecore_airflow.operators.base.CatalogOperator.wait_here_ms", 60_000)
    monkeypatch.setattr("statecore_airflow.operators.base.POLL_S", 0.02)
    monkeypatch.setattr("statecore_airflow.operators.base.lease_renewal_ms", lambda: 0)
    renewed: list[str] = []
    renew = Leases.renew
    driver.deaf = True

    def counted(self: Leases, job: str, owner: str, ttl_ms: int) -> Any:
        renewed.append(owner)
        # Once when the step began, and then again and again.
        driver.deaf = len(renewed) < 4
        return renew(self, job, owner, ttl_ms)

    monkeypatch.setattr(Leases, "renew", counted)
    stop(job).execute(context_of())
    assert len(renewed) >= 4 and set(renewed) == {RUN}


def test_a_wait_that_has_slept_past_its_lease_does_not_go_on_with_what_it_finds(
    catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(job)
    looks = iter([Status.WAITING, Status.DONE])

    def look(*_: object) -> Finding:
        return Finding(next(looks), "")

    def sleep(_: float) -> None:
        catalog.leases.release(job, RUN)  # as the supervisor does

    monkeypatch.setattr(catalog_operator.CatalogOperator, "wait_here_ms", 60_000)
    monkeypatch.setattr(triggers.RequestTrigger, "look", look)
    monkeypatch.setattr("statecore_airflow.operators.base.time.sleep", sleep)
    with pytest.raises(UnknownRecordError, match="there is no lease"):
        restart(job).wait(catalog, triggers.RequestTrigger, owner=RUN, request_id=1)


def test_a_wait_in_the_worker_does_not_end_when_its_host_sets_the_clock(
    catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_ms = now_ms()
    looks = iter([Status.WAITING, Status.WAITING, Status.DONE])

    def sleep(_: float) -> None:
        monkeypatch.setattr(SystemClock, "now_ms", lambda _: begun_ms + 3_600_000)

    monkeypatch.setattr(catalog_operator.CatalogOperator, "wait_here_ms", 60_000)
    monkeypatch.setattr(triggers.RequestTrigger, "look", lambda *_: Finding(next(looks), ""))
    monkeypatch.setattr("statecore_airflow.operators.base.time.sleep", sleep)
    restart(job).wait(catalog, triggers.RequestTrigger, request_id=1)


@pytest.mark.parametrize(("skew_ms", "status"), [(3_600_000, "done"), (-3_600_000, "timeout")])
def test_a_wait_ends_by_the_clock_of_the_database_whatever_the_triggerers_says(
    catalog: Catalog, job: str, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch, skew_ms: int, status: str
) -> None:
    monkeypatch.setattr(triggers, "SystemClock", lambda: SimpleNamespace(now_ms=lambda: now_ms() + skew_ms))
    lease(job)
    driver.deaf = True
    with pytest.raises(TaskDeferred) as pending:
        stop(job).execute(context_of())
    trigger: Any = pending.value.trigger
    if status == "timeout":
        trigger.deadline_ms = now_ms() + 100
    else:
        driver.deaf = False
    assert fire(pending.value)["status"] == status


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (StorageError("no answer"), AirflowException),
        (CatalogError("away"), AirflowException),
        (MissingFileError("gone"), AirflowFailException),
    ],
    ids=["storage", "catalog", "lost file"],
)
def test_what_may_come_right_is_tried_again(catalog: Catalog, error: Exception, raised: type[Exception]) -> None:
    with pytest.raises(AirflowException) as found, catalog_operator.open_catalog("statecore_catalog"):
        raise error
    assert type(found.value) is raised


@pytest.mark.parametrize(
    "trigger",
    [
        triggers.RequestTrigger(conn_id="c", job="j", owner=None, deadline_ms=5, request_id=1),
        triggers.StepTrigger(
            conn_id="c", job="j", owner="o", deadline_ms=5, run="r", step="Restart", fields={"after": 3}
        ),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_triggers_survive_serialisation(trigger: triggers.CatalogTrigger) -> None:
    again = sent(trigger)
    assert type(again) is type(trigger)
    assert again.serialize() == trigger.serialize()


def test_a_trigger_that_never_reached_the_catalog_does_not_end_its_step(
    catalog: Catalog, job: str, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(job)
    with pytest.raises(TaskDeferred) as deferred:
        stop(job).execute(context_of())

    def away(*_: object) -> None:
        raise CatalogError("the catalog cannot be reached")

    trigger: Any = deferred.value.trigger
    trigger.deadline_ms = 0
    monkeypatch.setattr(Leases, "renew", away)
    event = fire(deferred.value)
    assert event["status"] == "failed" and "cannot be reached" in event["message"]
    monkeypatch.undo()
    assert catalog.runs.get(RUN).savepoint is None


def test_a_missing_connection_says_how_to_add_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="AIRFLOW_CONN_NOWHERE"):
        CatalogSettings.load("nowhere")
    monkeypatch.setenv("AIRFLOW_CONN_NOWHERE", '{"conn_type": "generic", "extra": {"uri": "x"}}')
    with pytest.raises(ConfigurationError, match=r"the keys \['uri'\].*correct the connection"):
        CatalogSettings.load("nowhere")


@pytest.mark.parametrize("run", ["..", "///", "a/b:c d"])
def test_a_savepoint_name_never_leaves_its_folder(run: str) -> None:
    name = savepoint_name(run)
    assert name and "/" not in name and not name.startswith(".")


def test_two_runs_have_two_savepoint_names() -> None:
    assert savepoint_name("nightly-1") == "nightly-1" != savepoint_name("nightly 1") != savepoint_name("nightly:1")
