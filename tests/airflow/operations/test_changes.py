"""One table of rescales, run through Airflow's operators and through the shell: the outcome is the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from statecore_airflow.operators.rollback import RollbackOperator

from statecore.catalog import Catalog
from statecore.operations.changes import RESCALE, RETRIES
from statecore.snapshot.checkpoints import CheckpointStore
from tests.airflow.running import run_step, task_of
from tests.airflow.scripted_driver import ScriptedDriver
from tests.support.patience import only_impatient
from tests.support.shell import run as run_shell
from tests.support.waiting import wait

pytestmark = pytest.mark.usefixtures("quick")

STOPPED = ["lease", "grow_cluster", "stop_with_savepoint", "resize_cluster", "rescale_state", "restart"]


@dataclass(frozen=True)
class World:
    """What a scenario may change before the rescale."""

    catalog: Catalog
    store: CheckpointStore
    driver: ScriptedDriver
    job: str
    monkeypatch: pytest.MonkeyPatch


@dataclass(frozen=True)
class Scenario:
    """A rescale to 4 subtasks on 2 workers, what is in its way, and what comes of it.

    Attributes:
        arrange: Prepares the world.
        request: Differs from the usual request.
        state: Of the recorded run; None if it was refused before it began.
        method: The recorded method.
        steps: The recorded steps, ``verify`` left out.
        is_stopped: Whether the driver of before has ended.
        size: Parallelism and workers in the end.
        max_parallelism: The job's in the end.
        error: Part of the error.
        timeout_s: How long the job is verified.

    """

    arrange: Callable[[World], object] = lambda world: None
    request: dict[str, Any] = field(default_factory=dict)
    state: str | None = "done"
    method: str = "live"
    steps: tuple[str, ...] = ("lease", "resize_cluster", "rescale_state")
    is_stopped: bool = False
    size: tuple[int, int] = (4, 2)
    max_parallelism: int = 16
    error: str = ""
    timeout_s: float = 60


def no_driver(world: World) -> None:
    """The driver dies after an epoch, and the supervisor can start the next one at the new parallelism alone."""
    wait(lambda: world.catalog.epochs.of(world.job), "an epoch")
    world.driver.fail_at = {2: "no such column"}
    world.catalog.generations.end(world.job, 1, state="failed", error="killed")


def rewrites(world: World) -> None:
    """Stand in for Spark: write the savepoint that the rewrite would."""

    def submit(job: Any, name: str, properties: Path, program: Path, *arguments: str) -> list[str]:
        options = dict(zip(arguments[::2], arguments[1::2], strict=True))
        old = world.store.manifest(options["--savepoint"].removeprefix(world.store.describe("")))
        groups = int(options["--max-parallelism"])
        new = msgspec.structs.replace(old, parallelism=4, max_parallelism=groups, operators=())
        world.store.write_savepoint(new, name, reason="", now_ms=1)
        return ["true"]

    world.monkeypatch.setattr("statecore.operations.changes.rewriting.submit_command", submit)
    world.driver.idle = True


def lose_a_file(world: World) -> None:
    manifest = world.store.newest()
    assert manifest is not None
    world.driver.idle = True
    (Path(world.store.files.url) / manifest.files()[0].path).unlink()


def cannot_grow(world: World) -> None:
    world.driver.complaint = "no quota for 2 workers"


def has_limits(world: World) -> None:
    world.driver.limits = (1, 1)
    wait(lambda: world.catalog.clusters.get("local").max_workers, "the limits to be reported")


def has_two_workers(world: World) -> None:
    world.catalog.clusters.set_desired_workers("local", 2)
    wait(lambda: world.catalog.clusters.get("local").ready_workers == 2, "two workers")


def loses_a_worker(world: World) -> None:
    """Two workers should be there, and one of them cannot come back."""
    has_two_workers(world)
    world.driver.complaint, world.driver.present = "no quota for 2 workers", 1
    wait(lambda: world.catalog.clusters.get("local").ready_workers == 1, "one worker")


def does_not_keep_up(world: World) -> None:
    world.driver.waiting, world.driver.idle = 500, True


def waits_for_workers_and_is_aborted(world: World) -> None:
    world.driver.resize, world.driver.abort_at = False, "grow_cluster"


def rewrites_for_long_and_is_aborted(world: World) -> None:
    world.monkeypatch.setattr("statecore.operations.changes.rewriting.submit_command", lambda *_: ["sleep", "600"])
    world.driver.abort_at = "rescale_state"


def is_verified_and_aborted(world: World) -> None:
    does_not_keep_up(world)
    world.driver.abort_at = "verify"


def by_reference(**more: Any) -> dict[str, Any]:
    return {"method": "by_reference", **more}


BACK: dict[str, Any] = {"state": "failed", "size": (2, 1)}
REFUSED: dict[str, Any] = {"state": None, "size": (2, 1), "steps": ()}
SCENARIOS: dict[str, Scenario] = {
    "auto is live while a driver runs": Scenario(),
    "auto is by_reference without a driver, and the savepoint is the newest epoch": Scenario(
        no_driver, method="by_reference", steps=tuple(STOPPED), is_stopped=True
    ),
    "by_reference stops and starts": Scenario(
        request=by_reference(), method="by_reference", steps=tuple(STOPPED), is_stopped=True
    ),
    "the cluster stays": Scenario(request={"workers": None}, steps=("lease", "rescale_state"), size=(4, 1)),
    "scale in shrinks last": Scenario(
        has_two_workers,
        request={"parallelism": 1, "workers": 1},
        steps=("lease", "rescale_state", "shrink_cluster"),
        size=(1, 1),
    ),
    "scale in by reference shrinks last": Scenario(
        has_two_workers,
        request=by_reference(parallelism=1, workers=1),
        method="by_reference",
        steps=("lease", "stop_with_savepoint", "rescale_state", "restart", "shrink_cluster"),
        is_stopped=True,
        size=(1, 1),
    ),
    "a rewrite changes max parallelism": Scenario(
        rewrites,
        request={"method": "rewrite", "max_parallelism": 32},
        method="rewrite",
        steps=tuple(STOPPED),
        is_stopped=True,
        max_parallelism=32,
    ),
    "a driver that fails once is retried": Scenario(
        lambda world: setattr(world.driver, "fail_once_at", {4: "no port"}),
        request=by_reference(),
        method="by_reference",
        steps=tuple(STOPPED),
        is_stopped=True,
    ),
    "drivers that fail at the new size": Scenario(
        lambda world: setattr(world.driver, "fail_at", {4: "out of memory"}),
        request=by_reference(),
        method="by_reference",
        steps=tuple(STOPPED),
        is_stopped=True,
        error="out of memory",
        **BACK,
    ),
    "a driver that refuses": Scenario(
        lambda world: setattr(world.driver, "refuse", "no executor joined"), error="no executor joined", **BACK
    ),
    "a driver that cannot stop": Scenario(
        lambda world: setattr(world.driver, "refuse", "storage is away"),
        request=by_reference(),
        method="by_reference",
        steps=tuple(STOPPED[:3]),
        error="storage is away",
        **BACK,
    ),
    "a lost state file": Scenario(
        lose_a_file,
        request=by_reference(),
        method="by_reference",
        steps=tuple(STOPPED[:5]),
        is_stopped=True,
        error="found no file",
        **BACK,
    ),
    "a cluster that cannot grow": Scenario(cannot_grow, steps=("lease", "resize_cluster"), error="no quota", **BACK),
    "a cluster that cannot grow stops no job": Scenario(
        cannot_grow,
        request=by_reference(),
        method="by_reference",
        steps=("lease", "grow_cluster"),
        error="no quota",
        **BACK,
    ),
    "a cluster that cannot grow stops no job for a rewrite": Scenario(
        cannot_grow,
        request={"method": "rewrite", "max_parallelism": 32},
        method="rewrite",
        steps=("lease", "grow_cluster"),
        error="no quota",
        **BACK,
    ),
    "a cluster that lacks a worker stops no job": Scenario(
        loses_a_worker,
        request=by_reference(),
        method="by_reference",
        steps=("lease", "grow_cluster"),
        error="no quota",
        **{**BACK, "size": (2, 2)},
    ),
    "a size beyond the cluster's limits": Scenario(
        has_limits, request=by_reference(), error="expected 1 to 1, the limits of cluster 'local'", **REFUSED
    ),
    "a job that does not keep up": Scenario(
        does_not_keep_up, is_stopped=True, error="500 records wait", timeout_s=2, **BACK
    ),
    "aborted while workers are awaited": Scenario(
        waits_for_workers_and_is_aborted,
        request=by_reference(),
        method="by_reference",
        steps=("lease", "grow_cluster"),
        error="aborted by ann",
        **BACK,
    ),
    "aborted while Spark rewrites the state": Scenario(
        rewrites_for_long_and_is_aborted,
        request={"method": "rewrite", "max_parallelism": 32},
        method="rewrite",
        steps=tuple(STOPPED[:5]),
        is_stopped=True,
        error="aborted by ann",
        **BACK,
    ),
    "aborted while the job is verified": Scenario(
        is_verified_and_aborted,
        request=by_reference(),
        method="by_reference",
        steps=tuple(STOPPED),
        is_stopped=True,
        error="aborted by ann",
        **BACK,
    ),
    "more than max parallelism": Scenario(request={"parallelism": 17}, error="1 to its max parallelism", **REFUSED),
    "a job that is stopped": Scenario(
        lambda world: world.catalog.jobs.set_desired(world.job, state="stopped"),
        error="stopped; expected it to run",
        **REFUSED,
    ),
    "a job that another run changes": Scenario(
        lambda world: world.catalog.leases.acquire(world.job, "manual__1", 60_000), error="'manual__1'", **REFUSED
    ),
}


def through_airflow(world: World, scenario: Scenario, params: dict[str, Any]) -> str:
    """Run the steps as the DAG does: retried, then rolled back in any case; return the error."""
    error = ""
    for step in RESCALE:
        task = task_of(step, world.job, timeout=timedelta(seconds=scenario.timeout_s))
        for _ in range(RETRIES + 1):
            try:
                run_step(task, job=world.job, **params)
                error = ""
            except AirflowSkipException:
                error = ""
            except AirflowFailException as failure:
                error = str(failure)
            except AirflowException as failure:
                error = str(failure)
                continue
            break
        if error:
            break
    if world.catalog.runs.of(world.job):
        world.driver.refuse = None
        with suppress(AirflowSkipException):
            run_step(RollbackOperator(job=world.job))
    return error


def through_the_shell(world: World, scenario: Scenario, params: dict[str, Any]) -> str:
    """Run the command, which exits with 0 only for a rescale that is done; return what it prints on stderr."""
    options = [(f"--{name.replace('_', '-')}", value) for name, value in params.items() if value is not None]
    arguments = [each for option in options for each in option]
    done = run_shell("rescale", world.job, *map(str, arguments), "--timeout", str(scenario.timeout_s))
    assert done.returncode == (0 if scenario.state == "done" else 1), done
    return done.stderr


def runs_at(catalog: Catalog, job: str, parallelism: int) -> bool:
    newest = catalog.generations.newest(job)
    assert newest is not None
    return (newest.state, newest.parallelism) == ("running", parallelism) and catalog.generations.is_alive(newest)


@pytest.mark.parametrize("adapter", [through_airflow, through_the_shell], ids=["airflow", "shell"])
@pytest.mark.parametrize("case", SCENARIOS)
def test_a_rescale_comes_to_the_same_from_airflow_and_from_the_shell(
    catalog: Catalog,
    job: str,
    store: CheckpointStore,
    driver: ScriptedDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    case: str,
    adapter: Callable[[World, Scenario, dict[str, Any]], str],
) -> None:
    monkeypatch.setenv("STATECORE_CATALOG", f"sqlite:///{tmp_path / 'catalog.db'}")
    monkeypatch.setattr("statecore.cli.steps.POLL_S", 0.05)
    monkeypatch.setattr("statecore.cli.steps.RETRY_DELAY", timedelta(seconds=0.05))
    only_impatient(monkeypatch, "verify")
    world, scenario = World(catalog, store, driver, job, monkeypatch), SCENARIOS[case]
    scenario.arrange(world)
    held = catalog.leases.find(job)
    error = adapter(world, scenario, {"parallelism": 4, "workers": 2, **scenario.request})
    if scenario.error:
        assert scenario.error in error
    runs = catalog.runs.of(job)
    assert [run.state for run in runs] == ([] if scenario.state is None else [scenario.state])
    for run in runs:
        assert run.method == scenario.method
        assert [step for step in run.steps if step not in ("verify", "rollback")] == list(scenario.steps)
        assert scenario.error in str(run.error or "")
        if run.savepoint is not None:
            # The driver that was stopped, or had died, committed no epoch after it.
            after = store.find(1, store.manifest(run.savepoint).epoch + 1)
            assert after is None or after.generation > 1
    found = catalog.jobs.get(job)
    assert (found.parallelism, catalog.clusters.get("local").desired_workers) == scenario.size
    assert found.max_parallelism == scenario.max_parallelism
    if scenario.state is not None:
        assert found.desired_state == "running"
        wait(lambda: runs_at(catalog, job, found.parallelism), "a live driver at the job's parallelism")
    assert catalog.leases.find(job) == held
    first = catalog.generations.of(job)[-1]
    assert (first.state != "running") == scenario.is_stopped
