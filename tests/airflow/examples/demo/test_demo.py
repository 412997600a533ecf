"""The main job on real parts: Airflow, a standalone cluster of one-core workers, supervisor; killed on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from rich.console import Console

from examples.demo.feeder import load_flights
from examples.demo.flow import JOB
from examples.demo.folder_flow import FolderDemo
from stack.processes import Processes
from stack.stack import Stack
from tests.support.processes import naming
from tests.support.waiting import wait

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]

FLIGHTS = 60_000
# Small epochs, so that each part of the backlog takes several.
ROWS_PER_EPOCH = 2_000


def kill(stack: Stack, marks: tuple[str, ...]) -> int:
    """Kill -9 one process of the stack whose command line holds all marks, and return its pid.

    Other tests run drivers and executors at the same time.
    """
    process = naming(Processes(stack.run_dir).living(), *marks)[0]
    process.kill()
    return process.pid


def planned(stack: Stack) -> dict[str, Any]:
    """Ask as the Rescale dialog does."""
    user, password = stack.airflow_login
    with httpx.Client(base_url=stack.airflow_url, timeout=60) as http:
        token = http.post("/auth/token", json={"username": user, "password": password}).json()["access_token"]
        asked: dict[str, str | int] = {"name": JOB, "parallelism": 4, "workers": 2}
        answer = http.get("/statecore/api/plan", params=asked, headers={"Authorization": f"Bearer {token}"})
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def feeders(stack: Stack) -> list[psutil.Process]:
    return naming(psutil.process_iter(), "examples.demo.trickle", str(stack.run_dir))


def test_driver_and_executor_killed_in_the_middle_of_the_demo_change_nothing(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "run")

    def epochs_of(generation: int) -> int:
        with stack.catalog() as catalog:
            return sum(epoch.generation == generation for epoch in catalog.epochs.of(JOB))

    def newest_generation() -> int:
        with stack.catalog() as catalog:
            newest = catalog.generations.newest(JOB)
        assert newest is not None
        return newest.generation

    def wait_for_epochs(number: int) -> int:
        larger = newest_generation()
        seen = epochs_of(larger)
        wait(lambda: epochs_of(larger) >= seen + number, f"{number} epochs at the new parallelism")
        return larger

    def kill_an_executor() -> None:
        wait_for_epochs(1)
        kill(stack, ("CoarseGrainedExecutorBackend", "127.0.0.1"))

    def kill_the_driver() -> None:
        larger = wait_for_epochs(2)
        kill(stack, ("stream.py", f"--generation {larger}", "python"))
        wait(lambda: newest_generation() > larger, "the supervisor to launch a successor")

    flights = load_flights().slice(0, FLIGHTS)
    try:
        with FolderDemo(stack, Console(soft_wrap=True)) as demo:
            assert demo.run(
                flights,
                steady_deliveries=3,
                tail_deliveries=2,
                rows_per_epoch=ROWS_PER_EPOCH,
                disturbances=(kill_an_executor, kill_the_driver),
            )
            demo.go_on()
            plan = planned(stack)
            assert len(feeders(stack)) == 1
        with stack.catalog() as catalog:
            epochs, runs = catalog.epochs.of(JOB), catalog.runs.of(JOB)
    finally:
        stack.stop()
    # What the dialog shows of the job that goes on; its files hold a row for each of the 60,000 flights and more.
    assert plan["refusal"] is None
    assert 5_000 < plan["rows"] < 10_000
    assert feeders(stack) == []
    assert [(run.from_parallelism, run.to_parallelism, run.state) for run in reversed(runs)] in (
        [(2, 4, "done"), (4, 2, "done")],
        [(4, 2, "done"), (2, 4, "done")],
    )
    # The first epoch of a driver loads its state, and the first one after an executor died loads half of it.
    first = {epoch.generation: epoch.epoch for epoch in reversed(epochs)}
    warm = [epoch for epoch in epochs if epoch.epoch != first[epoch.generation]]
    hits, subtasks = sum(epoch.cache_hits for epoch in warm), sum(epoch.subtasks for epoch in warm)
    assert len(warm) >= 15
    assert hits / subtasks >= 0.9, f"{hits} of {subtasks} subtasks met their state in memory"
