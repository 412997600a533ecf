"""The DAG files: they import, say what they need, and touch nothing while they are parsed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import AirflowFailException
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.operators.autoscale import give_up
from statecore_airflow.operators.step import StepOperator

from statecore.catalog import RescaleMethod, RescaleRunRecord
from statecore.catalog.job_names import write_job_names
from statecore.cluster.ec2 import Ec2Settings
from statecore.operations.kinds import PROGRAMS
from tests.support.paths import REPO

DAGS = REPO / "dags"


class Told(NamedTuple):
    """What Airflow asks of a task instance when it decides about its run."""

    task_id: str
    state: str | None


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
    assert set(dags) == {
        "alerts",
        "autoscale",
        "catch_up",
        "rescale",
        "rewrite",
        "savepoints",
        "start",
        "stop",
        "upgrade",
    }


def test_tasks_have_the_names_and_the_order_of_their_steps(dags: dict[str, Any]) -> None:
    assert list(dags["rescale"].task_dict) == [
        "plan", "approval", "lease", "grow_cluster", "stop_with_savepoint", "resize_cluster", "rescale_state",
        "restart", "verify", "shrink_cluster", "rollback", "done",
    ]  # fmt: skip
    assert list(dags["upgrade"].task_dict) == [
        "lease", "stop_with_savepoint", "replace_artifact", "restart", "verify", "rollback", "done",
    ]  # fmt: skip
    # Pages of Airflow show the step, since the class of its task says little.
    assert dags["rescale"].task_dict["grow_cluster"].operator_name == "GrowCluster"


def test_the_arguments_of_a_step_are_rendered(dags: dict[str, Any]) -> None:
    task = dags["stop"].task_dict["stop_with_savepoint"]
    task.render_template_fields({"params": {"job": "flights", "reason": "backlog"}})
    assert (task.job, task.arguments) == ("flights", {"for_good": True})


@pytest.mark.parametrize(
    ("workers", "needless"),
    [
        ((1, 2), {"shrink_cluster"}),
        ((2, 1), {"grow_cluster", "resize_cluster"}),
        ((1, 1), {"resize_cluster", "shrink_cluster"}),
        ((None, None), {"grow_cluster", "resize_cluster", "shrink_cluster"}),
    ],
)
@pytest.mark.parametrize(
    ("method", "steps"),
    [
        ("by_reference", ["grow_cluster", "stop_with_savepoint", "resize_cluster", "rescale_state", "restart"]),
        ("rewrite", ["grow_cluster", "stop_with_savepoint", "resize_cluster", "rescale_state", "restart"]),
        ("live", ["resize_cluster", "rescale_state"]),
    ],
)
def test_a_step_of_a_rescale_waits_for_the_one_before_it_whatever_was_skipped_in_between(
    dags: dict[str, Any],
    method: RescaleMethod,
    steps: list[str],
    workers: tuple[int | None, int | None],
    needless: set[str],
) -> None:
    tasks = dags["rescale"].task_dict
    run = RescaleRunRecord("r", "orders", 4, 2, *workers, method, "", "running", None, None, {}, None, 0, 0)
    needed = [step for step in [*steps, "verify", "shrink_cluster"] if step not in needless]
    found = [name for name in dags["rescale"].task_ids if isinstance(tasks[name], StepOperator)]
    assert {name for name in found if tasks[name].step.is_needed(run)} == {"lease", *needed, "rollback"}
    assert tasks["lease"].upstream_task_ids == {"approval"} and tasks["approval"].upstream_task_ids == {"plan"}
    # The lease skips the others at once, so that nothing can be left to wait for them.
    for before, after in itertools.pairwise(needed):
        assert before in tasks[after].upstream_task_ids


def test_a_cluster_that_does_not_get_ready_says_so_before_the_step_is_tired_of_waiting(dags: dict[str, Any]) -> None:
    own = Ec2Settings(group="g", region="r", master_web_url="http://m:8080").ready_timeout_s
    # It counts from when the instances are in service, which takes minutes, too.
    for step in ("grow_cluster", "resize_cluster"):
        assert dags["rescale"].task_dict[step].timeout.total_seconds() >= own + 300


@pytest.mark.parametrize("dag", ["rescale", "stop", "upgrade"])
def test_whatever_follows_the_lease_is_followed_by_a_rollback(dags: dict[str, Any], dag: str) -> None:
    tasks = dags[dag].task_dict
    assert [task.task_id for task in tasks.values() if task.is_setup] == ["lease"]
    assert [task.task_id for task in tasks.values() if task.is_teardown] == ["rollback"]
    assert tasks["rollback"].get_flat_relative_ids(upstream=True) == set(tasks) - {"rollback", "done"}
    # Also the one that asks: its worker may die, too.
    assert {task.retries for task in tasks.values()} == {2}


@pytest.mark.parametrize("dag", ["rescale", "stop", "upgrade"])
def test_a_run_succeeds_by_its_last_step_and_not_if_it_was_rolled_back(dags: dict[str, Any], dag: str) -> None:
    from airflow.models.dagrun import DagRun

    tasks = dags[dag].task_dict
    # As Airflow chooses the tasks that decide: whatever else a person marks as successful, the rollback has its say.
    told = [Told(name, None) for name in tasks]
    deciding: Any = DagRun._tis_for_dagrun_state(cast(Any, None), dag=dags[dag], tis=told)
    assert {each.task_id for each in deciding} == {"rollback", "done"}
    last = {"rescale": {"verify", "shrink_cluster"}, "stop": {"stop_with_savepoint"}, "upgrade": {"verify"}}[dag]
    assert tasks["done"].upstream_task_ids == last and tasks["done"].trigger_rule == "none_failed"


def test_runs_wait_for_no_other_run_and_the_lease_decides(dags: dict[str, Any]) -> None:
    # A run that waited in a queue could not tell its user that another one has the job.
    assert all(
        dags[dag].max_active_runs > 1 for dag in ("autoscale", "catch_up", "rescale", "start", "stop", "upgrade")
    )


def test_one_loop_watches_for_the_decisions_of_all_jobs(dags: dict[str, Any]) -> None:
    dag = dags["autoscale"]
    (asset,) = dag.timetable.asset_condition.objects
    (watcher,) = asset.watchers
    assert watcher.trigger.serialize() == (
        "statecore_airflow.triggers.autoscale.DecisionTrigger",
        {"conn_id": "statecore_catalog"},
    )
    # Several decisions may have come in one run, and each is a rescale of its own.
    assert dag.task_dict["carry_out"].is_mapped and dag.task_dict["carry_out"].upstream_task_ids == {"take_decisions"}


def test_catch_up_goes_back_whatever_happened_and_only_a_drained_backlog_is_a_success(dags: dict[str, Any]) -> None:
    dag = dags["catch_up"]
    back = dag.task_dict["scale_back"]
    assert back.is_teardown and back.on_failure_fail_dagrun
    assert back.upstream_task_ids == {"estimate", "wait_drained"}
    assert dag.task_dict["scale_out"].downstream_task_ids == {"wait_drained"}
    assert dag.task_dict["wait_drained"].trigger_rule == "none_failed"
    assert dag.task_dict["drained"].upstream_task_ids == {"wait_drained"}


def test_every_task_links_to_its_job_and_tells_when_it_fails_for_good(dags: dict[str, Any]) -> None:
    of_no_single_job = {"alerts.tell", "autoscale.take_decisions", "savepoints.jobs", "rewrite.rewrite"}
    # They do nothing that could fail: a run succeeds by them.
    idle = {"catch_up.drained", "rescale.done", "stop.done", "upgrade.done"}
    without_links, without_message = set(), set()
    for dag in dags.values():
        for task in dag.tasks:
            if isinstance(task, MappedOperator):
                task = task.unmap({"decision": {"decision": 1, "job": "flights"}})
            name = f"{dag.dag_id}.{task.task_id}"
            if not {"Job", "Driver log"} <= {link.name for link in task.operator_extra_links}:
                without_links.add(name)
            tells = [each for each in task.on_failure_callback if isinstance(each, JobNotifier)]
            if name == "autoscale.carry_out":
                assert give_up in task.on_failure_callback
            if [(each.event, each.job is None) for each in tells] != [(Event.FAILED, name in of_no_single_job)]:
                without_message.add(name)
    assert (without_links, without_message) == (of_no_single_job | idle, idle)


def test_who_has_not_approved_in_time_is_not_asked_again(dags: dict[str, Any]) -> None:
    late = {"error": "The response timeout has passed", "error_type": "timeout"}
    with pytest.raises(AirflowFailException, match=r"no answer within 12:00:00 .* nothing was changed"):
        dags["rescale"].task_dict["approval"].execute_complete({}, late)


def test_savepoints_alone_have_a_time_table_and_make_up_for_nothing(dags: dict[str, Any]) -> None:
    assert {name for name, dag in dags.items() if dag.timetable.can_be_scheduled} == {
        "alerts",
        "autoscale",
        "savepoints",
    }
    assert not any(dag.catchup for dag in dags.values())
    assert dags["savepoints"].max_active_runs == 1


def test_every_form_has_types_and_help(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        for name in dag.params:
            param = dag.params.get_param(name)
            assert param.schema["type"] and param.schema["title"] and param.description, f"{dag.dag_id}: {name}"


def test_the_rescale_form_has_drop_downs_and_limits(dags: dict[str, Any]) -> None:
    params = dags["rescale"].params
    assert list(params) == [
        "job", "parallelism", "workers", "method", "max_parallelism", "dry_run", "approval", "reason",
    ]  # fmt: skip
    assert params.get_param("method").schema["enum"] == ["auto", "live", "by_reference", "rewrite"]
    assert all(params.get_param(name).schema["minimum"] == 1 for name in ("parallelism", "workers", "max_parallelism"))
    assert "examples" not in params.get_param("job").schema


def test_forms_suggest_the_jobs_that_the_supervisor_has_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statecore_airflow.params.form import job_param

    path = tmp_path / "jobs.json"
    monkeypatch.setenv("STATECORE_JOBS", str(path))
    write_job_names(path, ["flights", "orders"])
    assert job_param().schema["examples"] == ["flights", "orders"]


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
    assert Path(task.application) == PROGRAMS / "rewrite.py"


def test_airflow_finds_one_plugin_and_does_not_search_the_package(airflow_db: Path) -> None:
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    assert [plugin.name for plugin in plugins if plugin.name == "statecore"] == ["statecore"]
    import sys

    # A package searched for plugins would have been imported file by file, under bare names.
    assert not {"triggers", "step", "plan"} & set(sys.modules)
