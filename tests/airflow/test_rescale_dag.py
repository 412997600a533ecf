"""The DAG as a whole, by ``dag.test()``: Airflow's own task runner, triggers run in line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_driver import ScriptedDriver

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def dag(airflow_db: Path) -> Any:
    from airflow.dag_processing.dagbag import BundleDagBag

    folder = REPO / "dags"
    return BundleDagBag(dag_folder=str(folder), bundle_path=folder, bundle_name="dags-folder").dags["rescale"]


def test_the_dag_takes_a_running_job_to_another_parallelism_and_size(
    dag: Any, catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    run = dag.test(run_conf={"job": job, "parallelism": 4, "workers": 2, "reason": "drain the backlog"})
    assert run.state == "success"
    record = catalog.rescale_run(run.run_id)
    assert (record.state, record.reason) == ("done", "drain the backlog")
    assert list(record.steps) == ["stop_with_savepoint", "resize_cluster", "rescale_state", "restart", "verify"]
    assert store.manifest(str(record.rescaled)).parallelism == 4
    newest = catalog.newest_generation(job)
    assert newest is not None and (newest.state, newest.parallelism) == ("running", 4)
    assert catalog.cluster("local").ready_workers == 2
    assert catalog.lease(job) is None


def test_the_dag_fails_with_the_path_of_a_file_lost_between_stop_and_restart(
    dag: Any, catalog: Catalog, job: str, store: CheckpointStore
) -> None:
    manifest = store.newest()
    assert manifest is not None
    lost = Path(store.files.url) / manifest.files()[0].path
    lost.unlink()
    run = dag.test(run_conf={"job": job, "parallelism": 4, "workers": 1, "reason": ""})
    assert run.state == "failed"
    states = {task.task_id: task.state for task in run.get_task_instances()}
    assert states["rescale_state"] == "failed" and states["restart"] == "upstream_failed"
    record = catalog.rescale_run(run.run_id)
    assert record.state == "failed" and str(lost) in str(record.error)
    assert catalog.lease(job) is not None
