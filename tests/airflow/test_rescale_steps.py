"""The steps of a rescale against a real catalog, one by one; Airflow itself takes part in test_rescale_dag."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.serde import deserialize, serialize
from scripted_driver import ScriptedDriver, commit_epoch
from statecore_airflow import step, triggers
from statecore_airflow.operators import (
    RescaleStateOperator,
    ResizeClusterOperator,
    RestartOperator,
    StopWithSavepointOperator,
    VerifyOperator,
    savepoint_name,
)
from statecore_airflow.settings import CatalogSettings

from statecore.catalog import Catalog
from statecore.errors import ConfigurationError
from statecore.snapshot.checkpoints import CheckpointStore

RUN = "manual__2026-01-02T03:04:05.678901+00:00"
NAME = "manual__2026-01-02T03-04-05.678901-00-00"


def run_step(operator: step.RescaleStep, run: str = RUN) -> str | None:
    """Run a step as Airflow does: deferred, its trigger goes through serialisation into another process."""
    context: Any = {"run_id": run}
    try:
        return operator.execute(context)
    except TaskDeferred as deferred:
        pending = deferred
    while True:
        event = fire(pending)
        try:
            return getattr(operator, pending.method_name)(context, event)
        except TaskDeferred as deferred:
            pending = deferred


def sent(trigger: Any) -> Any:
    """Return the trigger as it arrives in the triggerer."""
    classpath, arguments = trigger.serialize()
    module, _, name = classpath.rpartition(".")
    return getattr(importlib.import_module(module), name)(**deserialize(serialize(arguments)))


@pytest.fixture(autouse=True)
def _defer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait in triggers, as a step does that takes long; ``test_rescale_dag`` waits in the worker."""
    monkeypatch.setattr("statecore_airflow.step.RescaleStep.wait_here_ms", 0)
    monkeypatch.setattr("statecore_airflow.triggers.SETTLE_S", 0.0)


def fire(deferred: TaskDeferred) -> dict[str, str]:
    trigger = sent(deferred.trigger)

    async def first() -> Any:
        return await anext(trigger.run())

    return asyncio.run(first()).payload


def stop(job: str, **changes: Any) -> StopWithSavepointOperator:
    arguments = {"parallelism": "4", "workers": "2", "reason": "backlog", **changes}
    return StopWithSavepointOperator(task_id="stop_with_savepoint", job=job, **arguments)


def rescale(job: str) -> RescaleStateOperator:
    return RescaleStateOperator(task_id="rescale_state", job=job, parallelism="4", reason="backlog")


def restart(job: str) -> RestartOperator:
    return RestartOperator(task_id="restart", job=job, parallelism="4")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "POLL_S", 0.05)


def test_a_running_job_is_stopped_by_its_driver(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    path = run_step(stop(job))
    assert path == f"savepoints/{NAME}/manifest.json"
    assert store.manifest(path).savepoint.reason == "backlog"
    newest = catalog.newest_generation(job)
    assert newest is not None and (newest.generation, newest.state) == (1, "stopped")
    run = catalog.rescale_run(RUN)
    assert (run.from_parallelism, run.to_parallelism, run.from_workers, run.to_workers) == (2, 4, 1, 2)
    assert run.savepoint == path and run.steps["stop_with_savepoint"].ended_ms is not None
    assert [item.path for item in catalog.savepoints(job)] == [path]


def test_a_stop_that_is_run_again_finds_its_savepoint(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    first = run_step(stop(job))
    ended_ms = catalog.rescale_run(RUN).steps["stop_with_savepoint"].ended_ms
    assert run_step(stop(job)) == first
    assert catalog.rescale_run(RUN).steps["stop_with_savepoint"].ended_ms == ended_ms
    assert len(catalog.generations(job)) == 1


def test_a_stop_that_was_cut_off_while_it_waited_goes_on(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    with pytest.raises(TaskDeferred):
        stop(job).execute({"run_id": RUN})  # type: ignore[arg-type]
    assert run_step(stop(job)) == f"savepoints/{NAME}/manifest.json"


def test_a_job_that_has_no_driver_gets_its_savepoint_from_the_newest_epoch(
    catalog: Catalog, job: str, store: CheckpointStore
) -> None:
    path = run_step(stop(job))
    assert path is not None and store.manifest(path).epoch == 7
    # The request is answered: the next driver must not find it and stop.
    assert catalog.next_request(job) is None


def test_a_driver_that_dies_while_it_is_asked_is_replaced_by_the_newest_epoch(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.mute = True
    from statecore.catalog.records import Liveness

    monkeypatch.setattr(Liveness, "is_alive", lambda self, item, now_ms: _alive(item, now_ms))
    path = run_step(stop(job))
    assert path is not None and store.manifest(path).epoch == 7
    states = [item.state for item in catalog.generations(job)]
    assert states == ["stopped", "failed"]
    assert catalog.next_request(job) is None


def _alive(item: Any, now_ms: int) -> bool:
    return not item.ended and now_ms - item.heartbeat_ms < 1_000


def test_no_driver_and_no_epoch_is_an_error_that_says_what_to_do(catalog: Catalog, tmp_path: Path) -> None:
    catalog.register_job(
        "empty",
        artifact="x.py",
        store=str(tmp_path / "none"),
        master_url="local[1]",
        parallelism=1,
        max_parallelism=8,
    )
    with pytest.raises(AirflowFailException, match=r"found no committed epoch .*; expected .*; start the job"):
        run_step(stop("empty"))


def test_another_runs_lease_is_respected_and_named(catalog: Catalog, job: str) -> None:
    catalog.acquire_lease(job, "manual__other", 60_000)
    with pytest.raises(AirflowFailException, match="manual__other"):
        run_step(stop(job))
    assert catalog.rescale_runs(job) == []


def test_a_run_that_has_lost_its_lease_does_not_touch_the_job(catalog: Catalog, job: str) -> None:
    run_step(stop(job))
    run_step(rescale(job))
    catalog.release_lease(job, RUN)  # as when it expired and the supervisor brought the job back
    catalog.set_desired(job, state="running", start_from=None)
    for operator in (stop(job), restart(job)):
        with pytest.raises(AirflowFailException, match="there is no lease"):
            run_step(operator)
    assert catalog.job(job).start_from is None


@pytest.mark.parametrize(
    ("changes", "message"), [({"parallelism": "9"}, "1 to its max"), ({"workers": "0"}, "0 workers")]
)
def test_an_impossible_size_is_refused_before_the_job_is_stopped(
    catalog: Catalog, job: str, changes: dict[str, str], message: str
) -> None:
    catalog.set_desired(job, state="running")
    with pytest.raises(AirflowFailException, match=message):
        run_step(stop(job, **changes))
    assert catalog.job(job).desired_state == "running"


def test_resize_waits_until_the_workers_are_ready(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    run_step(stop(job))
    resize = ResizeClusterOperator(task_id="resize_cluster", job=job, workers="3")
    run_step(resize)
    assert catalog.cluster("local").ready_workers == 3
    run_step(resize)


def test_resize_that_takes_too_long_says_what_it_saw(catalog: Catalog, job: str) -> None:
    from datetime import timedelta

    run_step(stop(job))
    catalog.report_cluster("local", ready_workers=1, message="no port free")
    resize = ResizeClusterOperator(task_id="r", job=job, workers="3", timeout=timedelta(milliseconds=200))
    with pytest.raises(AirflowFailException, match=r"1 workers ready \(no port free\).*expected 3 ready"):
        run_step(resize)


def test_resize_is_skipped_for_a_job_without_a_cluster(catalog: Catalog, store: CheckpointStore) -> None:
    catalog.register_job(
        "plain", artifact="x", store=store.files.url, master_url="local", parallelism=2, max_parallelism=8
    )
    commit_epoch(store, "plain", epoch=1, parallelism=2, max_parallelism=8)
    run_step(stop("plain"))
    run_step(ResizeClusterOperator(task_id="r", job="plain", workers="3"))
    assert catalog.rescale_run(RUN).steps["resize_cluster"].ended_ms is not None


def test_state_is_rescaled_by_reference_once(catalog: Catalog, job: str, store: CheckpointStore) -> None:
    savepoint = run_step(stop(job))
    path = run_step(rescale(job))
    assert path == f"savepoints/{NAME}-p4/manifest.json"
    old, new = store.manifest(str(savepoint)), store.manifest(path)
    assert (old.parallelism, new.parallelism) == (2, 4)
    assert {ref.path for ref in old.files()} == {ref.path for ref in new.files()}
    assert run_step(rescale(job)) == path


def test_a_missing_state_file_is_named_exactly(catalog: Catalog, job: str, store: CheckpointStore) -> None:
    savepoint = run_step(stop(job))
    lost = Path(store.files.url) / store.manifest(str(savepoint)).files()[0].path
    lost.unlink()
    with pytest.raises(AirflowFailException) as caught:
        run_step(rescale(job))
    assert f"found no file {lost};" in str(caught.value)


def test_restart_gives_the_supervisor_the_rescaled_savepoint(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    run_step(stop(job))
    path = run_step(rescale(job))
    run_step(restart(job))
    wanted = catalog.job(job)
    assert (wanted.desired_state, wanted.parallelism, wanted.start_from) == ("running", 4, path)
    run_step(restart(job))
    assert [item.generation for item in catalog.generations(job)] == [2, 1]


def test_a_generation_that_fails_to_start_is_the_tasks_error_and_a_retry_waits_for_the_next(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    run_step(stop(job))
    run_step(rescale(job))
    driver.fail_next = "found no file /somewhere/state; expected it"
    with pytest.raises(AirflowException, match="found no file /somewhere/state") as caught:
        run_step(restart(job))
    assert not isinstance(caught.value, AirflowFailException)
    run_step(restart(job))
    assert catalog.newest_generation(job).generation == 3  # type: ignore[union-attr]


def test_verify_ends_the_run_and_gives_the_lease_back(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    for operator in (stop(job), rescale(job), restart(job)):
        run_step(operator)
    verify = VerifyOperator(task_id="verify", job=job, parallelism="4")
    run_step(verify)
    run = catalog.rescale_run(RUN)
    assert run.state == "done" and run.steps["verify"].ended_ms is not None
    assert catalog.lease(job) is None
    # Every step of a run that is done can be run again and changes nothing.
    assert run_step(stop(job)) == run.savepoint
    assert run_step(rescale(job)) == run.rescaled
    run_step(restart(job))
    run_step(verify)
    assert catalog.job(job).desired_state == "running" and catalog.lease(job) is None


def test_verify_refuses_another_parallelism(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    for operator in (stop(job), rescale(job), restart(job)):
        run_step(operator)
    with pytest.raises(AirflowException, match=r"at parallelism \[4\]; expected 3"):
        run_step(VerifyOperator(task_id="verify", job=job, parallelism="3"))


def test_a_wait_keeps_the_lease(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        stop(job).execute({"run_id": RUN})  # type: ignore[arg-type]
    before = catalog.lease(job)
    fire(deferred.value)
    after = catalog.lease(job)
    assert before is not None and after is not None and after.heartbeat_ms > before.heartbeat_ms


@pytest.mark.parametrize(
    "trigger",
    [
        triggers.StoppedTrigger(conn_id="c", job="j", owner="o", deadline_ms=5, request_id=1),
        triggers.WorkersReadyTrigger(conn_id="c", job="j", owner="o", deadline_ms=5, cluster="x", workers=2),
        triggers.RunningTrigger(conn_id="c", job="j", owner="o", deadline_ms=5, after=3),
        triggers.HealthyTrigger(conn_id="c", job="j", owner="o", deadline_ms=5, parallelism=4),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_triggers_survive_serialisation(trigger: triggers.CatalogTrigger) -> None:
    again = sent(trigger)
    assert type(again) is type(trigger)
    assert again.serialize() == trigger.serialize()


def test_a_missing_connection_says_how_to_add_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="AIRFLOW_CONN_NOWHERE"):
        CatalogSettings.load("nowhere")
    monkeypatch.setenv("AIRFLOW_CONN_NOWHERE", '{"conn_type": "generic", "extra": {"uri": "x"}}')
    with pytest.raises(ConfigurationError, match=r"found the keys \['uri'\].*correct the connection"):
        CatalogSettings.load("nowhere")


def test_a_failed_task_is_recorded_and_the_lease_stays(catalog: Catalog, job: str) -> None:
    run_step(stop(job))
    step.fail_rescale_run({"run_id": RUN, "exception": AirflowException("why")})  # type: ignore[typeddict-item]
    run = catalog.rescale_run(RUN)
    assert (run.state, run.error) == ("failed", "why")
    assert catalog.lease(job) is not None
    step.fail_rescale_run({"run_id": "never started"})  # type: ignore[typeddict-item]


@pytest.mark.parametrize("run", ["..", "///", "a/b:c d"])
def test_a_savepoint_name_never_leaves_its_folder(run: str) -> None:
    name = savepoint_name(run)
    assert name and "/" not in name and not name.startswith(".")
