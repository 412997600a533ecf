"""DAG runs that a person clears, or triggers again under the same id: the work is done again, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from statecore_airflow.operators.rollback import RollbackOperator
from statecore_airflow.operators.savepoints import TakeSavepointOperator
from statecore_airflow.operators.step import StepOperator

from statecore.catalog import Catalog
from statecore.operations.changes import RESCALE, UPGRADE, StartJob, Step, StopWithSavepoint, TakeLease
from tests.airflow.plugins.statecore_airflow.operators.test_start_stop_upgrade import JOB_FILE
from tests.airflow.running import RUN, run_step, task_of
from tests.airflow.scripted_driver import ScriptedDriver

pytestmark = pytest.mark.usefixtures("quick")


def rescale(job: str, parallelism: int, run: str = RUN, *, clears: int = 0, steps: Any = RESCALE, **more: Any) -> None:
    for step in steps:
        params = {"parallelism": parallelism, "workers": 1, "method": "by_reference", **more}
        try:
            run_step(task_of(step, job), run, clears=clears, job=job, **params)
        except AirflowSkipException:
            continue


def step_of(name: str) -> type[Step]:
    (step,) = [each for each in RESCALE if each.name == name]
    return step


def stop(job: str, *, clears: int = 0) -> str:
    run_step(StepOperator(step=TakeLease, job=job), dag="stop", clears=clears)
    for_good = StepOperator(step=StopWithSavepoint, job=job, arguments={"for_good": True})
    return str(run_step(for_good, dag="stop", clears=clears))


def start(job: str) -> None:
    form: dict[str, Any] = {"parallelism": None, "workers": None, "accept_lost_records": False}
    run_step(StepOperator(step=StartJob, job=job), dag="start", **form)


def upgrade(job: str, artifact: str, *, clears: int = 0) -> None:
    for step in UPGRADE:
        form = {"job": job, "artifact": artifact, "reason": ""}
        run_step(StepOperator(step=step, job=job), dag="upgrade", clears=clears, **form)


def test_a_cleared_rescale_rescales_again(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    rescale(job, 4)
    rescale(job, 2, "another")
    rescale(job, 4, clears=1)
    assert catalog.jobs.get(job).parallelism == 4
    assert [each.run_id for each in catalog.runs.of(job)] == [f"{RUN}#1", "another", RUN]


def test_a_cleared_upgrade_runs_the_file_as_it_is_now(
    catalog: Catalog, job: str, driver: ScriptedDriver, tmp_path: Path
) -> None:
    path = tmp_path / "new.py"
    path.write_text(JOB_FILE)
    upgrade(job, str(path))
    before = catalog.jobs.get(job).artifact_sha256
    path.write_text(JOB_FILE + "\n# corrected\n")
    upgrade(job, str(path), clears=1)
    assert catalog.jobs.get(job).artifact_sha256 != before
    assert catalog.runs.get(f"upgrade:{RUN}#1").state == "done"


def test_a_cleared_stop_stops_the_job_that_was_started_since(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    first = stop(job)
    start(job)
    assert stop(job, clears=1) != first
    assert catalog.jobs.get(job).desired_state == "stopped" and catalog.leases.find(job) is None


def test_a_stop_under_the_id_of_a_deleted_one_is_refused_and_the_job_goes_on(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    stop(job)
    start(job)
    with pytest.raises(AirflowFailException, match="stop before it took the lease; expected a new run"):
        stop(job)
    assert "rolled back" in str(run_step(RollbackOperator(job=job), dag="stop"))
    assert catalog.jobs.get(job).desired_state == "running" and catalog.leases.find(job) is None


def test_a_cleared_savepoint_is_a_new_one(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    take = TakeSavepointOperator(task_id="take", job=job)
    first = run_step(take)
    assert run_step(take) == first
    assert run_step(take, clears=1) != first


@pytest.mark.parametrize("state", ["running", "done"])
def test_another_request_under_a_known_id_is_refused_with_both(
    catalog: Catalog, job: str, driver: ScriptedDriver, state: str
) -> None:
    rescale(job, 4, steps=RESCALE if state == "done" else RESCALE[:1])
    both = f"{state}, which was asked for method 'by_reference', parallelism 4, .* parallelism 3,"
    with pytest.raises(AirflowFailException, match=both):
        rescale(job, 3)
    assert catalog.runs.get(RUN).state == state and catalog.runs.get(RUN).to_parallelism == 4
    # The retry of what was asked goes on.
    rescale(job, 4)
    assert catalog.jobs.get(job).parallelism == 4


def test_a_known_id_for_another_job_is_refused(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    rescale(job, 4)
    old = catalog.jobs.get(job)
    catalog.jobs.register(
        "other", artifact=old.artifact, store="/other", master_url="local", parallelism=2, max_parallelism=16
    )
    catalog.jobs.set_desired("other", state="running")
    with pytest.raises(AirflowFailException, match=f"of job '{job}', done.*expected the same for job 'other'"):
        rescale("other", 4)
    assert catalog.leases.find("other") is None


@pytest.mark.parametrize("name", ["rescale_state", "restart", "verify"])
def test_a_step_cleared_without_the_lease_is_refused_and_the_run_rolled_back(
    catalog: Catalog, job: str, driver: ScriptedDriver, name: str
) -> None:
    step = step_of(name)
    rescale(job, 4, steps=RESCALE[: RESCALE.index(step)])
    with pytest.raises(AirflowFailException, match=rf"step {name} of run '.*#1' without the step lease.* clear all"):
        rescale(job, 4, clears=1, steps=[step])
    said = str(run_step(RollbackOperator(job=job), clears=1))
    assert "rolled back to parallelism 2" in said
    assert catalog.runs.get(RUN).state == "failed" and catalog.leases.find(job) is None
    assert catalog.jobs.get(job).parallelism == 2
    # All of it cleared, the run does its work.
    rescale(job, 4, clears=2)
    assert catalog.jobs.get(job).parallelism == 4


def test_a_run_that_still_changes_the_job_is_not_cleared_into_a_second_one(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    rescale(job, 4, steps=RESCALE[:3])
    with pytest.raises(AirflowException, match=f"found run '{RUN.replace('+', '.')}' changing job"):
        rescale(job, 4, clears=1)
    rescale(job, 4)
    assert catalog.jobs.get(job).parallelism == 4
