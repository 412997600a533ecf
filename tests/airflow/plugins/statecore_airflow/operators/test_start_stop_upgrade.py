"""Start, stop and upgrade, step by step."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from statecore_airflow.operators.rollback import RollbackOperator
from statecore_airflow.operators.step import StepOperator

from statecore.catalog import Catalog
from statecore.operations.changes import UPGRADE, StartJob, StopWithSavepoint, TakeLease
from tests.airflow.running import RUN, run_step
from tests.airflow.scripted_driver import ScriptedDriver

JOB_FILE = """
from statecore import ProcessFunction

class Same(ProcessFunction):
    def process_element(self, value, ctx):
        yield value

def build(job):
    job.source("flights", read=print).process(Same(), output="a int", uid="same")
"""

pytestmark = pytest.mark.usefixtures("quick")


def stop(job: str, run: str = RUN) -> str:
    run_step(StepOperator(step=TakeLease, job=job), run, dag="stop")
    return str(run_step(stop_for_good(job), run, dag="stop"))


def stop_for_good(job: str) -> StepOperator:
    return StepOperator(step=StopWithSavepoint, job=job, arguments={"for_good": True})


def start(job: str, **params: Any) -> None:
    form = {"parallelism": None, "workers": None, "accept_lost_records": False}
    run_step(StepOperator(step=StartJob, job=job), dag="start", **(form | params))


def roll_back(job: str, dag: str) -> str | None:
    return run_step(RollbackOperator(job=job), dag=dag)


def upgrade(job: str, artifact: str) -> None:
    for step in UPGRADE:
        run_step(StepOperator(step=step, job=job), dag="upgrade", job=job, artifact=artifact, reason="")


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "new.py"
    path.write_text(JOB_FILE)
    return str(path)


def test_a_job_is_stopped_with_a_savepoint_and_started_again_at_another_size(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    savepoint = stop(job)
    assert catalog.jobs.get(job).desired_state == "stopped" and catalog.leases.find(job) is None
    with pytest.raises(AirflowSkipException, match="nothing to roll back"):
        roll_back(job, "stop")
    assert catalog.jobs.get(job).desired_state == "stopped"
    # Again, as when the task was killed at its very end.
    assert run_step(stop_for_good(job), dag="stop") == savepoint
    catalog.jobs.set_desired(job, allow_non_restored_state=True)  # as an earlier start from the shell has left it
    start(job, parallelism=4, workers=2)
    assert not catalog.jobs.get(job).allow_non_restored_state
    newest = catalog.generations.newest(job)
    assert newest is not None and (newest.state, newest.parallelism) == ("running", 4)
    assert catalog.clusters.get("local").desired_workers == 2 and catalog.leases.find(job) is None
    start(job)
    assert len(catalog.generations.of(job)) == 2


def test_a_start_accepts_lost_records_if_asked_to(catalog: Catalog, job: str, driver: ScriptedDriver) -> None:
    stop(job)
    start(job, accept_lost_records=True)
    changes = [each.change for each in catalog.jobs.audit(job)]
    assert any(each.get("accept_lost_records") == [False, True] for each in changes)


def test_a_start_of_a_job_that_runs_gives_it_workers_and_refuses_another_parallelism(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    start(job, parallelism=2, workers=3)
    assert catalog.clusters.get("local").desired_workers == 3
    with pytest.raises(AirflowFailException, match=r"running at parallelism 2.*use `rescale`"):
        start(job, parallelism=4)
    assert catalog.jobs.get(job).parallelism == 2 and catalog.leases.find(job) is None


def test_a_stop_that_fails_is_rolled_back_and_the_job_goes_on(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    driver.refuse = "storage is away"
    with pytest.raises(AirflowFailException, match="storage is away"):
        stop(job)
    driver.refuse = None
    assert "was rolled back to parallelism 2 and 1 workers" in str(roll_back(job, "stop"))
    assert catalog.jobs.get(job).desired_state == "running" and catalog.leases.find(job) is None


def test_a_stop_that_has_lost_its_lease_asks_no_driver_to_stop(catalog: Catalog, job: str) -> None:
    run_step(StepOperator(step=TakeLease, job=job), dag="stop")
    catalog.leases.release(job, f"stop:{RUN}")  # as when it expired and the supervisor brought the job back
    with pytest.raises(AirflowFailException, match="there is no lease"):
        run_step(stop_for_good(job), dag="stop")
    assert catalog.requests.take_next(job) is None


def test_a_start_refuses_workers_for_a_job_without_a_cluster(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    stop(job)
    found = catalog.jobs.get(job)
    catalog.jobs.register(
        job, artifact=found.artifact, store=found.store, master_url="local", parallelism=2, max_parallelism=16
    )
    with pytest.raises(AirflowFailException, match="found 2 workers asked for job 'flights', which names no cluster"):
        start(job, workers=2)
    assert catalog.jobs.get(job).desired_state == "stopped" and catalog.leases.find(job) is None


def test_a_start_that_was_killed_leaves_no_lease_that_would_stop_the_job_again(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    stop(job)
    catalog.leases.acquire(job, f"start:{RUN}", 60_000)
    catalog.jobs.set_desired(job, state="running")
    start(job)
    assert catalog.leases.find(job) is None


def test_neither_is_done_while_another_run_changes_the_job(catalog: Catalog, job: str) -> None:
    catalog.leases.acquire(job, "rescale-1", 60_000)
    catalog.jobs.set_desired(job, state="stopped")
    for act in (stop, start):
        with pytest.raises(AirflowFailException, match="rescale-1"):
            act(job)


def test_a_start_that_fails_leaves_the_job_to_the_supervisor(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    stop(job)
    driver.fail_next = "no such column"
    with pytest.raises(AirflowException, match="no such column"):
        start(job)
    assert catalog.jobs.get(job).desired_state == "running"
    with pytest.raises(AirflowFailException, match="1 to its max parallelism 16"):
        stop(job, "stop-2")
        start(job, parallelism=17)


def test_an_upgrade_goes_on_from_a_savepoint_with_the_new_job_file(
    catalog: Catalog, job: str, driver: ScriptedDriver, job_file: str
) -> None:
    upgrade(job, job_file)
    found, run = catalog.jobs.get(job), catalog.runs.get(f"upgrade:{RUN}")
    assert (found.artifact, found.parallelism, found.start_from) == (job_file, 2, run.savepoint)
    assert (run.state, run.reason) == ("done", f"upgrade to {job_file}")
    with pytest.raises(AirflowSkipException, match="nothing to roll back"):
        roll_back(job, "upgrade")
    assert catalog.jobs.get(job).artifact == job_file
    assert found.artifact_sha256 == sha256(JOB_FILE.encode()).hexdigest()
    (replaced,) = [each for each in catalog.jobs.audit(job) if each.change.get("artifact") == ["flights.py", job_file]]
    assert replaced.on_behalf_of == "ann (Airflow)" and replaced.change["artifact_sha256"] == [
        None,
        found.artifact_sha256,
    ]


def test_an_upgrade_that_does_not_become_healthy_goes_back_to_the_old_job_file(
    catalog: Catalog, job: str, driver: ScriptedDriver, job_file: str
) -> None:
    driver.fail_next = "NameError: name 'colour' is not defined"
    with pytest.raises(AirflowException, match="colour"):
        upgrade(job, job_file)
    said = str(roll_back(job, "upgrade"))
    assert "colour" in said and "resumes from epoch" in said
    # The new file may have committed an epoch with state that the old one does not declare.
    assert (catalog.jobs.get(job).artifact, catalog.jobs.get(job).allow_non_restored_state) == ("flights.py", True)
    assert catalog.generations.newest(job).state == "running"  # type: ignore[union-attr]


def test_a_new_job_file_may_not_leave_behind_what_the_old_one_may(
    catalog: Catalog, job: str, driver: ScriptedDriver, job_file: str
) -> None:
    catalog.jobs.set_desired(job, allow_non_restored_state=True)
    upgrade(job, job_file)
    assert not catalog.jobs.get(job).allow_non_restored_state


def test_runs_of_two_dags_with_one_id_are_two(
    catalog: Catalog, job: str, driver: ScriptedDriver, job_file: str
) -> None:
    upgrade(job, job_file)
    stop(job)
    assert catalog.jobs.get(job).desired_state == "stopped"
    assert len(catalog.savepoints.of(job)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "found no job file"), ("def build(job:", r"wrong\.py:1: SyntaxError"), ("x = 1", r"no build\(job\)")],
)
def test_a_job_file_that_cannot_run_is_refused_before_the_job_is_stopped(
    catalog: Catalog, job: str, driver: ScriptedDriver, tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "wrong.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(AirflowFailException, match="expected an absolute path or a URL"):
        upgrade(job, "wrong.py")
    with pytest.raises(AirflowFailException, match=message):
        upgrade(job, str(path))
    assert catalog.leases.find(job) is None and catalog.jobs.get(job).desired_state == "running"
