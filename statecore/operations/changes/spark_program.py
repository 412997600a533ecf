"""Runs a step's program on a job's Spark, in a separate process."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from statecore.catalog import JobRecord
from statecore.cluster.processes import kill_session, piped
from statecore.cluster.spark_home import spark_environment
from statecore.errors import StepFailedError
from statecore.operations.changes.change import Change

_SHOWN_LINES = 20
_END_S = 10.0
# Also how long a user who aborts the run waits for the program to end.
_LONGEST_POLL_S = 1.0


class SparkProgram(ABC):
    """Runs a program and logs its output.

    The job's driver has stopped, so its executors are free. A program whose caller was killed may still succeed: then a
    retry uses its result.

    Attributes:
        what: What the program does, for messages.
        lasting: Exit codes of failures that a retry would repeat.

    """

    what: ClassVar[str]
    lasting: ClassVar[Collection[int]] = ()

    def __init__(self, job: JobRecord, name: str) -> None:
        self.job = job
        self.name = name
        self._process: subprocess.Popen[str] | None = None

    @abstractmethod
    def command(self, folder: Path) -> list[str]:
        """Return the command; it may write files that only this user may read into the folder."""

    def run(self, timeout_s: float, change: Change) -> None:
        """Run the program to its end, log its output, and renew the change's lease meanwhile.

        Raises:
            StepFailedError: The program failed, took longer than ``timeout_s``, or a user has aborted the run.
            LeaseHeldError, UnknownRecordError: The lease is lost: another run changes the job now.

        """
        with tempfile.TemporaryDirectory(prefix="statecore-rewrite-") as folder:
            self._run(self.command(Path(folder)), timeout_s, change)

    def _run(self, command: list[str], timeout_s: float, change: Change) -> None:
        poll_s = min(_LONGEST_POLL_S, change.lease_ttl_ms / 10_000)
        deadline = time.monotonic() + timeout_s
        output: deque[str] = deque(maxlen=_SHOWN_LINES)
        with piped(command, environment=spark_environment()) as process:
            self._process = process
            reader = threading.Thread(target=_read, args=(process, output, change), daemon=True)
            reader.start()
            try:
                while (exit_code := _wait(process, poll_s)) is None:
                    change.keep_lease()
                    if time.monotonic() > deadline:
                        raise StepFailedError(
                            f"found the {self.what} {self.name} of job {self.job.name!r} running for longer than "
                            f"{timeout_s:,.0f} s; expected it to end by then; give the cluster more workers, or the "
                            "step a longer timeout",
                            is_retryable=False,
                        )
            finally:
                self.kill()
                reader.join()
        if exit_code != 0:
            last = "\n".join(output)
            raise StepFailedError(
                f"found the {self.what} {self.name} of job {self.job.name!r} ended with exit code {exit_code}; "
                f"expected 0; its last output was:\n{last}",
                is_retryable=exit_code not in self.lasting,
            )

    def kill(self) -> None:
        """End the program and all processes that it started; after SIGTERM, Spark can release its executors."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        kill_session(self._process.pid)


def _wait(process: subprocess.Popen[str], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return None


def _read(process: subprocess.Popen[str], output: deque[str], change: Change) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        output.append(line.rstrip())
        change.log.info("%s", line.rstrip())
