"""The DAG as a whole, by ``dag.test()``: Airflow's own task runner, triggers run in line."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from tests.airflow.scripted_driver import ScriptedDriver
from tests.support.paths import REPO
from tests.support.tiers import nightly
from tests.support.webhook import Webhook


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often; the driver is a quick one."""
    monkeypatch.setattr("statecore_airflow.operators.base.POLL_S", 0.1)


@pytest.fixture
def dag(airflow_db: Path) -> Any:
    from airflow.dag_processing.dagbag import BundleDagBag

    folder = REPO / "dags"
    return BundleDagBag(dag_folder=str(folder), bundle_path=folder, bundle_name="dags-folder").dags["rescale"]


def states(run: Any) -> dict[str, str]:
    return {task.task_id: str(task.state) for task in run.get_task_instances()}


def links(run: Any, name: str) -> dict[str, str]:
    """Return what Airflow's API server, which knows a DAG from its tables alone, shows as links of a run's tasks."""
    from airflow.models.serialized_dag import SerializedDagModel

    dag = SerializedDagModel.get_dag(run.dag_id)
    assert dag is not None
    found = {task.task_id: dag.get_task(task.task_id).get_extra_links(task, name) for task in run.get_task_instances()}
    return {task: link for task, link in found.items() if link}


def test_the_dag_takes_a_running_job_to_another_parallelism_and_size(
    dag: Any, catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    run = dag.test(
        run_conf={"job": job, "parallelism": 4, "workers": 2, "method": "by_reference", "reason": "drain the backlog"}
    )
    assert run.state == "success"
    assert {task for task, state in states(run).items() if state == "skipped"} == {
        "approval", "shrink_cluster", "rollback",
    }  # fmt: skip
    record = catalog.runs.get(run.run_id)
    assert (record.state, record.reason) == ("done", "drain the backlog")
    assert list(record.steps) == [
        "lease", "grow_cluster", "stop_with_savepoint", "resize_cluster", "rescale_state", "restart", "verify",
    ]  # fmt: skip
    assert store.manifest(str(record.rescaled)).parallelism == 4
    newest = catalog.generations.newest(job)
    assert newest is not None and (newest.state, newest.parallelism) == ("running", 4)
    assert catalog.clusters.get("local").ready_workers == 2
    assert catalog.leases.find(job) is None
    steps = {task for task, state in states(run).items() if state == "success"} - {"done"} | {"rollback"}
    assert links(run, "Job") == dict.fromkeys(steps, f"/plugin/statecore/statecore/job?name={job}")
    assert links(run, "Driver log") == dict.fromkeys(steps, f"/plugin/statecore/statecore/log?name={job}")


@pytest.mark.parametrize(
    ("step", "stopped_by"),
    [
        nightly("grow_cluster", "stop_with_savepoint"),
        nightly("stop_with_savepoint", "resize_cluster"),
        nightly("resize_cluster", "rescale_state"),
        nightly("rescale_state", "restart"),
        ("restart", "verify"),
        nightly("verify", "rollback"),
    ],
)
def test_a_step_that_a_person_marks_as_successful_does_not_make_a_run_look_successful(
    dag: Any, catalog: Catalog, job: str, driver: ScriptedDriver, step: str, stopped_by: str
) -> None:
    conf = {"job": job, "parallelism": 4, "workers": 2, "method": "by_reference"}
    run = dag.test(run_conf=conf, mark_success_pattern=f"^{step}$")
    assert run.state == "failed"
    found = states(run)
    assert (found[step], found[stopped_by]) == ("success", "failed")
    assert found["rollback"] == ("failed" if step == "verify" else "success")
    record = catalog.runs.get(run.run_id)
    assert record.state == "failed" and "rolled back to parallelism 2 and 1 workers" in str(record.error)
    if step != "verify":
        assert f"step {stopped_by} failed: found step {step} of run" in str(record.error)
        assert "marked successful by hand" in str(record.error)
    assert (
        catalog.jobs.get(job).parallelism,
        catalog.clusters.get("local").desired_workers,
        catalog.leases.find(job),
    ) == (2, 1, None)


def test_a_dry_run_shows_the_plan_and_skips_all_that_changes_something(dag: Any, catalog: Catalog, job: str) -> None:
    run = dag.test(run_conf={"job": job, "parallelism": 4, "dry_run": True})
    assert run.state == "success"
    assert {task for task, state in states(run).items() if state != "skipped"} == {"plan"}
    assert catalog.leases.find(job) is None and catalog.runs.of(job) == []
    assert catalog.jobs.get(job).parallelism == 2


def test_a_second_run_is_refused_with_the_first_ones_id_and_rolls_nothing_back(
    dag: Any, catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first one came between the plan of the second and its lease.
    monkeypatch.setattr("statecore_airflow.operators.plan.require_free", lambda *_, **__: None)
    catalog.leases.acquire(job, "manual__first", 60_000)
    catalog.jobs.set_desired(job, parallelism=4)
    run = dag.test(run_conf={"job": job, "parallelism": 8})
    assert run.state == "failed"
    assert (states(run)["lease"], states(run)["rollback"]) == ("failed", "upstream_failed")
    assert catalog.leases.find(job).owner == "manual__first"  # type: ignore[union-attr]
    assert catalog.jobs.get(job).parallelism == 4


def test_a_file_lost_between_stop_and_restart_fails_the_run_which_is_rolled_back(
    dag: Any,
    catalog: Catalog,
    job: str,
    driver: ScriptedDriver,
    store: CheckpointStore,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("statecore.operations.kinds.statecore_job.plan_rescale", lambda *_, **__: None)
    manifest = store.newest()
    assert manifest is not None
    lost = Path(store.files.url) / manifest.files()[0].path
    lost.unlink()
    run = dag.test(run_conf={"job": job, "parallelism": 4, "workers": 2, "method": "by_reference"})
    assert run.state == "failed"
    found = states(run)
    assert (found["rescale_state"], found["restart"], found["rollback"]) == ("failed", "upstream_failed", "success")
    record = catalog.runs.get(run.run_id)
    assert record.state == "failed" and f"step rescale_state failed: found no file {lost}" in str(record.error)
    assert "rolled back to parallelism 2 and 1 workers" in str(record.error)
    assert catalog.leases.find(job) is None
    assert catalog.generations.newest(job).parallelism == 2  # type: ignore[union-attr]
    failed, back = (message["text"] for message in webhook.messages)
    assert failed.startswith(f"Run of rescale for job {job} failed at rescale_state. found no file {lost}")
    assert back.startswith(f"Job {job} was rolled back. step rescale_state failed")
    assert quote(run.run_id, safe="") in back
