"""The processes of a stack: marked by an environment variable, recorded in a file, all ended by ``end_all``.

Every process that a stack starts, and every descendant (drivers, executors, Python workers, Airflow tasks), inherits
``STATECORE_STACK`` with the stack's folder. This mark, not a name, decides which processes to end. Airflow's processes
set their title, which overwrites the memory that their environment is read from; the session of their part identifies
them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from statecore.cluster.processes import kill_session

MARK = "STATECORE_STACK"
_TAIL_LINES = 30
_GRACE_S = 10.0


class StackError(RuntimeError):
    """A part of the stack failed; the message ends with the tail of its log."""


class Processes:
    """The processes of the stack in ``run_dir``; another process may have started them."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir.absolute()
        self._record = self._run_dir / "processes.json"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an environment that marks a process as a part of this stack."""
        return {**(os.environ if base is None else base), MARK: str(self._run_dir)}

    def start(self, name: str, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        """Start a part in its own session, so that Ctrl-C in the terminal reaches only this process."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                list(command),
                env=self.environment(environment),
                cwd=self._run_dir,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[name] = child
        self.record(name, child.pid)

    def record(self, name: str, pid: int) -> None:
        """Record a part by its pid and the process's start time, because the system reuses pids."""
        with contextlib.suppress(psutil.NoSuchProcess):
            parts = {**self._parts(), name: {"pid": pid, "create_time": psutil.Process(pid).create_time()}}
            self._record.write_text(json.dumps(parts, indent=1))

    def check(self, name: str, log: Path) -> None:
        """Check that a part still runs.

        Raises:
            StackError: The part has ended.

        """
        if self.find(name) is None:
            child = self._children.get(name)
            code = "unknown" if child is None else child.poll()
            raise StackError(f"{name} has ended (exit code {code}); expected it to run; {tail(log)}")

    def wait_done(self, name: str, log: Path, timeout_s: float) -> None:
        """Return when a finite part has succeeded; this process must have started it.

        Raises:
            StackError: The part did not end in time, or failed.

        """
        try:
            code = self._children[name].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise StackError(f"{name} still runs after {timeout_s:g} s; expected it to end; {tail(log)}") from None
        self._record.write_text(json.dumps({part: made for part, made in self._parts().items() if part != name}))
        if code:
            raise StackError(f"{name} has failed (exit code {code}); expected it to succeed; {tail(log)}")

    def find(self, name: str) -> psutil.Process | None:
        """Return the process of a part, or None when it has ended."""
        part = self._parts().get(name)
        if part is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(part["pid"]))
            if abs(process.create_time() - part["create_time"]) < 1 and _lives(process):
                return process
        return None

    def living(self) -> list[psutil.Process]:
        """Return every living process of this stack except this one."""
        sessions = {int(part["pid"]): part["create_time"] for part in self._parts().values()}
        return [process for process in psutil.process_iter() if self._is_ours(process, sessions)]

    def terminate(self, name: str, timeout_s: float = _GRACE_S) -> None:
        """Terminate a part and wait for its end."""
        process = self.find(name)
        if process is not None:
            process.terminate()
            _wait_gone([process], timeout_s)

    def kill(self, name: str) -> None:
        """Kill a part without warning; its children keep running.

        Raises:
            StackError: The part is not running.

        """
        process = self.find(name)
        if process is None:
            raise StackError(f"found no {name} to kill; expected it to run; check its log")
        process.kill()
        _wait_gone([process], _GRACE_S)

    def kill_session(self, name: str) -> None:
        """Kill a part and all processes that it started."""
        part = self._parts().get(name)
        if part is not None:
            kill_session(int(part["pid"]))

    def end_all(self) -> None:
        """End every marked process: first terminate, then kill.

        Raises:
            StackError: A process did not end.

        """
        for end, timeout_s in ((psutil.Process.terminate, _GRACE_S), (psutil.Process.kill, _GRACE_S)):
            # Repeated, because a process may start another one between the search and its end.
            for _ in range(3):
                if not self._end(end, timeout_s):
                    break
        left = self.living()
        if left:
            names = ", ".join(f"{process.pid} ({process.name()})" for process in left)
            raise StackError(
                f"found processes {names} of {self._run_dir} after the stop; expected none; end them by hand"
            )
        self._record.unlink(missing_ok=True)

    def _end(self, end: Callable[[psutil.Process], None], timeout_s: float) -> bool:
        """End all processes; return whether there were any, and all of them have ended."""
        processes = self.living()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(process)
        return bool(processes) and _wait_gone(processes, timeout_s)

    def _is_ours(self, process: psutil.Process, sessions: Mapping[int, float]) -> bool:
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            # The system does not reuse the pid of a living session's leader; an older process is not ours.
            began = sessions.get(os.getsid(process.pid))
            if began is not None and process.create_time() >= began - 1:
                return True
            return process.environ().get(MARK) == str(self._run_dir)
        except (psutil.Error, OSError):
            return False

    def _parts(self) -> dict[str, dict[str, float]]:
        try:
            parts: dict[str, dict[str, float]] = json.loads(self._record.read_text())
        except FileNotFoundError:
            return {}
        return parts


def _wait_gone(processes: Sequence[psutil.Process], timeout_s: float) -> bool:
    """Wait for processes to end; a zombie counts as ended."""
    deadline = time.monotonic() + timeout_s
    while any(_lives(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """Return the end of a log, introduced by its path."""
    try:
        text = log.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return f"it left no log at {log}"
    return "\n".join([f"the end of {log}:", *text])
