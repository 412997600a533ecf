"""Detached processes, found again through a pid file.

Every such process leads its own session. Its children (executors, Python workers) stay in that session even when the
leader dies, so none is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from statecore.errors import ClusterError
from statecore.private_files import append_private, make_private_folder

# The child writes its own pid before it execs the program, so killing the starter never loses a process.
_WRITE_PID = 'echo $$ > "$0.new" && mv "$0.new" "$0" && exec "$@"'

# A process's start time (kernel clock) and a file's mtime differ by some ticks.
_CLOCK_TOLERANCE_S = 2.0

# Kept to collect their exit status; otherwise they would stay as zombies.
_children: list[subprocess.Popen[bytes]] = []


def spawn(command: Sequence[str], *, environment: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start a program in its own session and append its output to the log, which only this user may read."""
    make_private_folder(log_path.parent)
    with append_private(log_path) as log:
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def piped(command: Sequence[str], *, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a program in its own session, to read its output and its errors as one text; ``kill_session`` ends it."""
    return subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def session_members(leader_pid: int) -> list[psutil.Process]:
    """Return the living processes of a session.

    While one of them lives, the kernel does not reuse the leader's pid, even if the leader is gone.
    """
    # The second listing finds a process that the last living member started during the first.
    return _members_now(leader_pid) or _members_now(leader_pid)


def _members_now(leader_pid: int) -> list[psutil.Process]:
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == leader_pid:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process)
    return members


def kill_session(leader_pid: int) -> None:
    """Kill every process of a session."""
    for process in session_members(leader_pid):
        with contextlib.suppress(psutil.Error):
            process.kill()


def started_ms(pid: int) -> int:
    """Return when a process of this host started, by the host's clock."""
    return int(psutil.Process(pid).create_time() * 1000)


def is_running(pid: int, process_started_ms: int) -> bool:
    """Return whether a process of this host lives, and is not a later one with the same pid."""
    try:
        is_same = abs(started_ms(pid) - process_started_ms) <= _CLOCK_TOLERANCE_S * 1000
        return is_same and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True, slots=True)
class SessionLeader:
    """The first process of a session on this host, told apart from a later process with its pid.

    Attributes:
        pid: Its pid, and the session's number.
        started_ms: When it started, by the host's clock.

    """

    pid: int
    started_ms: int

    @classmethod
    def of(cls, pid: int) -> SessionLeader:
        """Return a process that runs, or has ended and was not collected yet."""
        return cls(pid, started_ms(pid))

    def members(self) -> list[psutil.Process]:
        """Return the living processes of its session, whether or not it lives itself; none of a stranger's."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if abs(started_ms(self.pid) - self.started_ms) > _CLOCK_TOLERANCE_S * 1000:
                return []
        if self.started_ms < psutil.boot_time() * 1000 - _CLOCK_TOLERANCE_S * 1000:
            return []
        return session_members(self.pid)

    def kill(self) -> None:
        """Kill every process of its session."""
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                process.kill()


@dataclass(frozen=True, slots=True)
class Daemon:
    """A detached process behind a pid file.

    Attributes:
        pid_file: File with the pid.
        marker: Text in the process's command line; a process with the pid but without the text is a stranger.

    """

    pid_file: Path
    marker: str

    def start(self, command: Sequence[str], *, environment: Mapping[str, str], log_path: Path) -> None:
        """Start the program and return once it has written its pid; ClusterError when it does not."""
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        child = spawn(
            ["/bin/sh", "-c", _WRITE_PID, str(self.pid_file), *command],
            environment=environment,
            log_path=log_path,
        )
        _children.append(child)
        written = Retrying(
            retry=retry_if_result(lambda done: not done), wait=wait_fixed(0.005), stop=stop_after_delay(10)
        )
        try:
            written(lambda: self._pid() == child.pid or child.poll() is not None)
        except RetryError:
            child.kill()
        if self._pid() != child.pid:
            raise ClusterError(
                f"found no pid of process {child.pid} in {self.pid_file}; expected the process to write it first; "
                "check that the directory is writable and that the process limit is not reached"
            )

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        pid = self._pid()
        return pid is not None and self._leader(pid) is True

    def members(self) -> list[psutil.Process]:
        """Return the process and its living descendants."""
        pid = self._pid()
        if pid is None or self._leader(pid) is False:
            return []
        return session_members(pid)

    def terminate(self) -> None:
        """Send SIGTERM; the process ends its children."""
        self._signal(signal.SIGTERM)

    def decommission(self) -> None:
        """Send SIGPWR, which decommissions a Spark worker; repeating it has no effect."""
        self._signal(signal.SIGPWR)

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _signal(self, number: signal.Signals) -> None:
        pid = self._pid()
        if pid is not None and self._leader(pid) is True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pid(self) -> int | None:
        _collect_children()
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _leader(self, pid: int) -> bool | None:
        """Return True if the process lives, None if it is ending or the pid is free, False if a stranger has it."""
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                if process.create_time() > self.pid_file.stat().st_mtime + _CLOCK_TOLERANCE_S:
                    return False
                if process.status() == psutil.STATUS_ZOMBIE:
                    return None
                # An ending process has none, and its children may live on.
                command = process.cmdline()
                return any(self.marker in argument for argument in command) if command else None
        except (psutil.NoSuchProcess, FileNotFoundError):
            return None
        except psutil.AccessDenied:
            return False


def _collect_children() -> None:
    _children[:] = [child for child in _children if child.poll() is None]
