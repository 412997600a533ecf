"""The DAG files: they import, say what they need, and touch nothing while they are parsed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
DAGS = REPO / "dags"


@pytest.fixture
def dags(airflow_db: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    from airflow.dag_processing.dagbag import BundleDagBag

    # Whoever looks for the catalog while parsing gets an error instead.
    monkeypatch.delenv("AIRFLOW_CONN_STATECORE_CATALOG", raising=False)
    monkeypatch.setattr("statecore.catalog.Catalog.__init__", _no_catalog)
    bag = BundleDagBag(dag_folder=str(DAGS), bundle_path=DAGS, bundle_name="dags-folder")
    assert bag.import_errors == {}
    return bag.dags


def _no_catalog(*_: object, **__: object) -> None:
    raise AssertionError("the catalog was opened")


def test_every_dag_imports_without_a_catalog(dags: dict[str, Any]) -> None:
    assert set(dags) == {"rescale", "rewrite"}


def test_the_rescale_steps_follow_each_other(dags: dict[str, Any]) -> None:
    dag = dags["rescale"]
    order = ["stop_with_savepoint", "resize_cluster", "rescale_state", "restart", "verify"]
    assert [task.task_id for task in dag.topological_sort()] == order
    for task, successor in itertools.pairwise(order):
        assert dag.task_dict[task].downstream_task_ids == {successor}
    assert (dag.max_active_runs, dag.catchup) == (1, False)


def test_no_two_rescale_runs_and_no_schedule(dags: dict[str, Any]) -> None:
    assert all(dag.timetable.can_be_scheduled is False for dag in dags.values())


def test_the_rescale_form_has_types_help_and_limits(dags: dict[str, Any]) -> None:
    params = dags["rescale"].params
    for name, kind in {"job": "string", "parallelism": "integer", "workers": "integer", "reason": "string"}.items():
        schema = params.get_param(name).schema
        assert schema["type"] == kind
        assert params.get_param(name).description
    assert params.get_param("parallelism").schema["minimum"] == 1
    assert params.get_param("workers").schema["minimum"] == 1


@pytest.mark.parametrize(("max_parallelism", "more"), [(None, []), (256, ["--max-parallelism", "256"])])
def test_the_rewrite_job_gets_its_arguments_one_by_one(
    dags: dict[str, Any], max_parallelism: int | None, more: list[str]
) -> None:
    task = dags["rewrite"].task_dict["rewrite"]
    params = {
        "savepoint": "/a b/['x']",
        "name": "t",
        "parallelism": 4,
        "max_parallelism": max_parallelism,
    }
    task.render_template_fields({"params": params})
    expected = ["--savepoint", "/a b/['x']", "--name", "t", "--parallelism", "4", *more]
    assert task.application_args == expected
    assert Path(task.application) == REPO / "sparkjobs" / "rewrite.py"


def test_airflow_finds_one_plugin_and_does_not_search_the_package(airflow_db: Path) -> None:
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    assert [plugin.name for plugin in plugins if plugin.name == "statecore"] == ["statecore"]
    import sys

    # A package searched for plugins would have been imported file by file, under bare names.
    assert not {"operators", "triggers", "step"} & set(sys.modules)
