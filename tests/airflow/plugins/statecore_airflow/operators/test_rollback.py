"""A failure or a kill at each step of a rescale, and what becomes of the job; all but Spark and Airflow is real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred
from statecore_airflow.hooks.settings import lease_ttl_ms
from statecore_airflow.operators.lease import BeginRescaleOperator
from statecore_airflow.operators.rollback import RollbackOperator

from statecore.catalog import Catalog, Generations, Leases
from statecore.errors import StorageError
from statecore.operations.changes import RESCALE
from statecore.operations.changes.restart import find_driver
from statecore.snapshot.checkpoints import CheckpointStore
from tests.airflow.rescale_runs import FakeTask
from tests.airflow.running import RUN, context_of, fire, run_step, task_of
from tests.airflow.scripted_driver import ScriptedDriver

pytestmark = pytest.mark.usefixtures("quick")

OUT: dict[str, Any] = {"parallelism": 4, "workers": 2}
IN = {"parallelism": 1, "workers": 1}


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Gives what arms a fault; a kill ends the step and not the test."""
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setenv("STATECORE_STEP_FAULTS", str(folder))

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("statecore_airflow.faults.os.kill", kill)

    def arm(point: str, kind: str) -> None:
        (folder / point).write_text(kind)

    yield arm
    assert not [file for file in folder.iterdir() if not file.name.endswith(".hit")], "a fault was not hit"


def rescale(job: str, **params: Any) -> None:
    """Run the steps as the DAG does: one that fails ends it, one that is killed is tried again, twice."""
    params = {"method": "by_reference", **params}
    for step in RESCALE:
        for _ in range(3):
            try:
                run_step(task_of(step, job), job=job, **params)
            except Killed:
                continue
            except AirflowSkipException:
                pass
            break


def roll_back(job: str) -> str | None:
    return run_step(RollbackOperator(job=job))


def require_nothing_to_roll_back(job: str) -> None:
    # Skipped: a green task of this name would look as if the job had been rolled back.
    with pytest.raises(AirflowSkipException, match="nothing to roll back"):
        roll_back(job)


def state_of(catalog: Catalog, job: str) -> tuple[str, int, int]:
    found = catalog.jobs.get(job)
    return found.desired_state, found.parallelism, catalog.clusters.get("local").desired_workers


@pytest.mark.parametrize("method", ["by_reference", "live"])
@pytest.mark.parametrize("size", [OUT, IN], ids=["out", "in"])
def test_a_run_that_is_killed_at_each_step_ends_well_when_it_is_tried_again(
    catalog: Catalog, job: str, driver: ScriptedDriver, armed: Callable[..., None], method: str, size: dict[str, int]
) -> None:
    catalog.clusters.set_desired_workers("local", 2 if size is IN else 1)
    needless = {
        "by_reference": set(),
        "live": {"grow_cluster", "stop_with_savepoint", "restart"},
    }[method] | ({"shrink_cluster"} if size is OUT else {"grow_cluster", "resize_cluster"})
    for step in RESCALE:
        if step.name not in needless:
            armed(f"{step.name}@begun", "kill")
            armed(f"{step.name}@ended", "kill")
    rescale(job, method=method, **size)
    assert catalog.runs.get(RUN).state == "done"
    assert state_of(catalog, job) == ("running", size["parallelism"], size["workers"])
    assert catalog.generations.newest(job).parallelism == size["parallelism"]  # type: ignore[union-attr]
    assert catalog.leases.find(job) is None
    require_nothing_to_roll_back(job)
    assert state_of(catalog, job) == ("running", size["parallelism"], size["workers"])


@pytest.mark.parametrize(
    ("point", "method"),
    [
        ("grow_cluster@begun", "by_reference"),
        ("grow_cluster@ended", "by_reference"),
        ("stop_with_savepoint@begun", "by_reference"),
        ("stop_with_savepoint@ended", "by_reference"),
        ("resize_cluster@ended", "by_reference"),
        ("rescale_state@ended", "by_reference"),
        ("restart@begun", "by_reference"),
        ("restart@ended", "by_reference"),
        ("verify@begun", "by_reference"),
        ("resize_cluster@begun", "live"),
        ("rescale_state@ended", "live"),
        ("verify@begun", "live"),
    ],
)
def test_a_step_that_fails_is_rolled_back_from_the_newest_committed_epoch(
    catalog: Catalog,
    job: str,
    driver: ScriptedDriver,
    store: CheckpointStore,
    armed: Callable[..., None],
    point: str,
    method: str,
) -> None:
    armed(point, "fail")
    with pytest.raises(AirflowFailException, match="this failure is a test's"):
        rescale(job, method=method, **OUT)
    said = roll_back(job)
    assert said is not None and f"step {point.partition('@')[0]} failed: " in said
    assert "was rolled back to parallelism 2 and 1 workers, and resumes from epoch" in said
    assert state_of(catalog, job) == ("running", 2, 1)
    assert catalog.jobs.get(job).start_from is None
    newest = catalog.generations.newest(job)
    assert newest is not None and (newest.state, newest.parallelism) == ("running", 2)
    run = catalog.runs.get(RUN)
    assert (run.state, run.error, catalog.leases.find(job)) == ("failed", said, None)
    assert catalog.requests.take_next(job) is None
    # Nothing was published twice: epochs go on from whatever was committed last.
    epochs = [epoch.epoch for epoch in catalog.epochs.of(job)]
    assert epochs == sorted(set(epochs))
    # Again, as when the task is cleared, it changes nothing; and the run does not begin anew.
    assert roll_back(job) == said
    with pytest.raises(AirflowFailException, match="begin a new run"):
        rescale(job, method=method, **OUT)
    assert state_of(catalog, job) == ("running", 2, 1)
    assert catalog.runs.get(RUN).error == said


def test_a_failure_while_the_cluster_shrinks_takes_no_job_back_that_was_verified(
    catalog: Catalog, job: str, driver: ScriptedDriver, armed: Callable[..., None]
) -> None:
    catalog.clusters.set_desired_workers("local", 2)
    armed("shrink_cluster@begun", "fail")
    with pytest.raises(AirflowFailException, match="this failure is a test's"):
        rescale(job, **IN)
    require_nothing_to_roll_back(job)
    assert state_of(catalog, job) == ("running", 1, 1)
    assert (catalog.runs.get(RUN).state, catalog.leases.find(job)) == ("done", None)


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "success", "skipped", None])
def test_a_rollback_fails_a_run_that_would_look_successful(
    catalog: Catalog, job: str, driver: ScriptedDriver, state: str | None
) -> None:
    run_step(BeginRescaleOperator(job=job), job=job, **OUT)
    task = FakeTask()
    task.states = {} if state is None else {"done": state}
    context = {**context_of(), "ti": task}
    operator: Any = RollbackOperator(job=job)

    def outcome() -> Any:
        try:
            return operator.execute(context)
        except TaskDeferred as deferred:
            return operator.execute_complete(context, fire(deferred))

    if state in ("failed", "upstream_failed"):
        assert "rolled back to parallelism 2" in outcome()
    else:
        with pytest.raises(AirflowFailException, match=r"although no step failed: .*rolled back to parallelism 2"):
            outcome()
    assert state_of(catalog, job) == ("running", 2, 1) and catalog.runs.get(RUN).state == "failed"


def test_a_run_that_was_done_before_it_gave_its_lease_back_is_not_rolled_back(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    release = Leases.release
    with pytest.MonkeyPatch.context() as killed, pytest.raises(Killed):

        def kill(*_: object) -> None:
            raise Killed

        killed.setattr(Leases, "release", kill)
        for step in RESCALE:
            with suppress(AirflowSkipException):
                run_step(task_of(step, job), job=job, **OUT)
    assert Leases.release is release
    assert catalog.runs.get(RUN).state == "done" and catalog.leases.find(job) is not None
    require_nothing_to_roll_back(job)
    assert state_of(catalog, job) == ("running", 4, 2) and catalog.leases.find(job) is None


def test_a_rollback_that_has_lost_its_lease_while_it_waited_claims_nothing(catalog: Catalog, job: str) -> None:
    catalog.leases.acquire(job, RUN, 60_000)
    catalog.runs.start(RUN, job, from_parallelism=2, to_parallelism=4)
    operator = RollbackOperator(job=job)
    with pytest.raises(TaskDeferred):
        operator.execute(context_of())
    catalog.runs.finish(RUN, error="lease expired")
    catalog.leases.release(job, RUN)
    catalog.leases.acquire(job, "manual__2", 60_000)
    assert operator.execute_complete(context_of(), {"status": "done", "message": ""}) == "lease expired"


def test_a_rollback_ends_although_storage_is_away(
    catalog: Catalog, job: str, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_step(BeginRescaleOperator(job=job), job=job, **OUT)
    driver.idle = True

    def newest(_: CheckpointStore) -> None:
        raise StorageError("found no answer")

    monkeypatch.setattr(CheckpointStore, "newest", newest)
    assert "cannot be read now: found no answer" in str(roll_back(job))
    assert catalog.leases.find(job) is None and catalog.runs.get(RUN).state == "failed"


def test_a_driver_that_is_lost_is_not_taken_for_one_that_runs(catalog: Catalog, job: str) -> None:
    generation = catalog.generations.claim(job, log_path="log").generation
    catalog.generations.heartbeat(job, generation)
    assert find_driver(catalog.generations, job, 0).status == "done"
    with pytest.MonkeyPatch.context() as later:
        later.setattr(Generations, "is_alive", lambda *_: False)
        found = find_driver(catalog.generations, job, 0)
    assert (found.status, found.message) == ("waiting", "generation 1 running, no heartbeat lately")


def test_a_driver_that_a_failed_run_has_not_touched_goes_on(
    catalog: Catalog, job: str, driver: ScriptedDriver, armed: Callable[..., None]
) -> None:
    armed("stop_with_savepoint@begun", "fail")
    with pytest.raises(AirflowFailException):
        rescale(job, **OUT)
    roll_back(job)
    assert [each.generation for each in catalog.generations.of(job)] == [1]


def test_a_lease_that_fails_leaves_none_behind(
    catalog: Catalog, job: str, driver: ScriptedDriver, armed: Callable[..., None]
) -> None:
    armed("lease@ended", "fail")
    with pytest.raises(AirflowFailException):
        rescale(job, **OUT)
    assert catalog.leases.find(job) is None and catalog.runs.get(RUN).state == "failed"
    run_step(BeginRescaleOperator(job=job), "manual__2", job=job, **OUT)


def test_a_rollback_whose_driver_does_not_start_says_so_and_leaves_the_job_to_the_supervisor(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    driver.fail_at = {4: "too large", 2: "too small"}
    with pytest.raises(AirflowException, match="too large"):
        rescale(job, **OUT)
    # Airflow tries the rollback again; with the last try the lease stays, and expires.
    with pytest.raises(AirflowException, match="too small"):
        roll_back(job)
    assert catalog.leases.find(job) is not None
    driver.fail_at = {}
    driver.wait_running()
    assert "too large" in str(roll_back(job))
    assert state_of(catalog, job) == ("running", 2, 1) and catalog.leases.find(job) is None


def test_a_run_that_nobody_goes_on_with_is_brought_back_when_its_lease_expires(
    catalog: Catalog, job: str, driver: ScriptedDriver, armed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    armed("verify@begun", "fail")
    with pytest.raises(AirflowFailException):
        rescale(job, **OUT)
    monkeypatch.setattr(catalog._transactions, "_clock", SimpleNamespace(now_ms=lambda: _later(catalog)))
    assert catalog.leases.recover_expired(job) is not None
    monkeypatch.undo()
    assert state_of(catalog, job) == ("running", 2, 1)
    error = str(catalog.runs.get(RUN).error)
    assert "step verify failed" in error and error.endswith(f"lease expired (owner {RUN})")


def _later(catalog: Catalog) -> int:
    lease = catalog.leases.find("flights")
    assert lease is not None
    return lease.acquired_ms + 2 * lease_ttl_ms()
