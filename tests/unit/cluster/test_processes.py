from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from statecore.cluster.processes import Daemon
from statecore.errors import ClusterError
from tests.support.waiting import wait


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "d.pid", marker="while-marked")
    yield daemon
    daemon.kill()


def start(daemon: Daemon, script: str) -> None:
    daemon.start(
        ["/bin/sh", "-c", script, "while-marked"],
        environment=dict(os.environ),
        log_path=daemon.pid_file.with_suffix(".log"),
    )
    # For a moment after exec(2) a process has no command line.
    wait(daemon.is_alive, "its command line")


def test_a_daemon_is_found_again_by_its_pid_file(daemon: Daemon) -> None:
    start(daemon, "echo hello; sleep 60; true")
    again = Daemon(daemon.pid_file, daemon.marker)
    assert again.is_alive()
    wait(lambda: daemon.pid_file.with_suffix(".log").read_text() == "hello\n", "its output")
    again.kill()
    wait(lambda: not again.is_alive() and not again.members(), "it to end")


def test_what_a_dead_daemon_left_behind_is_found_and_ended(daemon: Daemon) -> None:
    start(daemon, "sleep 60 & sleep 60; true")
    wait(lambda: len(daemon.members()) == 3, "its children")
    psutil.Process(int(daemon.pid_file.read_text())).kill()
    # A process that is killed loses its command line before it ends.
    wait(lambda: len(daemon.members()) == 2, "it to end")
    assert not daemon.is_alive()
    daemon.kill()
    wait(lambda: not daemon.members(), "its children to end")


def test_children_of_a_daemon_that_is_ending_and_has_no_command_line_any_more_are_found(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(daemon, "sleep 60 & sleep 60; true")
    wait(lambda: len(daemon.members()) == 3, "its children")
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: [])
    assert len(daemon.members()) == 3


def test_somebody_else_with_the_same_pid_is_left_alone(daemon: Daemon) -> None:
    start(daemon, "sleep 60; true")
    other = Daemon(daemon.pid_file, marker="another program")
    assert not other.is_alive() and other.members() == []
    other.terminate()
    other.kill()
    assert daemon.is_alive()


def test_a_pid_given_away_after_the_file_was_written_is_left_alone(daemon: Daemon) -> None:
    start(daemon, "sleep 60; true")
    written_s = daemon.pid_file.stat().st_mtime
    os.utime(daemon.pid_file, (written_s - 60, written_s - 60))
    assert not daemon.is_alive() and daemon.members() == []
    os.utime(daemon.pid_file, (written_s, written_s))


def test_no_pid_file_is_no_process(daemon: Daemon) -> None:
    assert not daemon.is_alive() and daemon.members() == []
    daemon.terminate()
    daemon.pid_file.write_text("")
    assert not daemon.is_alive()


def test_a_program_that_cannot_write_its_pid_is_an_error(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "d.pid", marker="x")
    (tmp_path / "d.pid.new").mkdir()
    with pytest.raises(ClusterError, match=r"found no pid of process .* in .*d\.pid"):
        daemon.start(["/bin/true"], environment=dict(os.environ), log_path=tmp_path / "log")
