"""What a stack starts is found again by any process and ended to the last one; nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stack.processes import Processes, StackError
from tests.support.waiting import PATIENCE_S, wait

SLEEP = "import time; time.sleep(60)"
# A child in a session of its own, as the supervisor starts drivers; one without our mark, as with Airflow.
DETACHED = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True); {SLEEP}"
)
HIDDEN = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], env={{}}); {SLEEP}"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Processes]:
    stack = Processes(tmp_path)
    yield stack
    stack.end_all()


def start(stack: Processes, name: str, code: str, tmp_path: Path) -> None:
    stack.start(name, [sys.executable, "-c", code], environment=os.environ, log=tmp_path / f"{name}.log")


def wait_for(stack: Processes, count: int) -> list[psutil.Process]:
    wait(lambda: len(stack.living()) == count, f"{count} processes")
    return stack.living()


@pytest.mark.parametrize("code", [DETACHED, HIDDEN], ids=["own session", "hidden environment"])
def test_children_are_ended_with_their_part_by_whoever_stops_the_stack(
    stack: Processes, tmp_path: Path, code: str
) -> None:
    start(stack, "part", code, tmp_path)
    found = wait_for(stack, 2)
    Processes(tmp_path).end_all()
    assert stack.living() == []
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in found)


def test_a_part_that_does_not_listen_is_killed(
    stack: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stack.processes._GRACE_S", 0.5)
    start(stack, "part", STUBBORN, tmp_path)
    wait(lambda: (tmp_path / "part.log").read_text() == "deaf\n", "it to listen no more")
    stack.end_all()
    assert stack.living() == []


def test_processes_of_another_stack_are_left_alone(stack: Processes, tmp_path: Path) -> None:
    other = Processes(tmp_path / "other")
    (tmp_path / "other").mkdir()
    start(other, "part", SLEEP, tmp_path)
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        wait_for(other, 1)
        stack.end_all()
        assert len(other.living()) == 1 and stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        other.end_all()


def test_a_part_that_has_ended_is_reported_with_the_end_of_its_log(stack: Processes, tmp_path: Path) -> None:
    start(stack, "part", "raise SystemExit('no room left')", tmp_path)
    wait_for(stack, 0)
    with pytest.raises(StackError, match=r"part has ended \(exit code 1\)[\s\S]*part\.log:\nno room left"):
        stack.check("part", tmp_path / "part.log")


def test_a_part_that_is_killed_leaves_what_it_has_started_until_its_session_is_ended(
    stack: Processes, tmp_path: Path
) -> None:
    start(stack, "part", HIDDEN, tmp_path)
    wait_for(stack, 2)
    stack.kill("part")
    assert stack.find("part") is None
    wait_for(stack, 1)
    stack.kill_session("part")
    wait_for(stack, 0)
    with pytest.raises(StackError, match="found no part to kill"):
        stack.kill("part")


def test_a_part_that_ends_by_itself_is_waited_for_and_has_to_end_well(stack: Processes, tmp_path: Path) -> None:
    for code, timeout_s, message in (
        ("raise SystemExit('no room left')", PATIENCE_S, r"failed \(exit code 1\)[\s\S]*no room left"),
        (SLEEP, 0.2, "still runs after 0.2 s"),
    ):
        start(stack, "part", code, tmp_path)
        with pytest.raises(StackError, match=message):
            stack.wait_done("part", tmp_path / "part.log", timeout_s)
    start(stack, "other", "pass", tmp_path)
    stack.wait_done("other", tmp_path / "other.log", PATIENCE_S)
