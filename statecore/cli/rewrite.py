"""The Spark job that lays a savepoint's state out anew, run from here as the supervisor runs drivers."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from statecore.catalog import JobRecord
from statecore.cluster.processes import kill_session
from statecore.cluster.spark_home import spark_environment
from statecore.errors import RequestFailedError
from statecore.operations.submit import PROGRAMS, submit_command

LEAST_TIMEOUT_S = 7_200.0
"""What a rewrite may take in any case: it reads and writes all state."""
_END_S = 10.0


def rewritten(
    job: JobRecord, savepoint: str, name: str, parallelism: int, max_parallelism: int | None, timeout_s: float
) -> str:
    """Write a savepoint's state anew with the job's own master and Spark configuration, and return where it is.

    Args:
        job: The job.
        savepoint: URL of its savepoint.
        name: Name of the savepoint to write, in the same store.
        parallelism: Subtasks of the new savepoint.
        max_parallelism: Its key groups; None keeps their number.
        timeout_s: Seconds that it may take; then Spark is ended.

    Raises:
        RequestFailedError: It failed, or took longer; the message says where Spark's output is.

    """
    arguments = ["--savepoint", savepoint, "--name", name, "--parallelism", str(parallelism)]
    if max_parallelism is not None:
        arguments += ["--max-parallelism", str(max_parallelism)]
    command = submit_command(job, f"rewrite-{job.name}", PROGRAMS / "rewrite.py", *arguments)
    log = Path(tempfile.mkstemp(prefix=f"statecore-rewrite-{job.name}-", suffix=".log")[1])
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as submitted,
    ):
        try:
            output, _ = submitted.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise RequestFailedError(
                f"found Spark still rewriting {savepoint} after {timeout_s:g} s; expected a savepoint {name} by then; "
                f"it was ended: look at its output in {log}, and give the cluster more workers, or a longer --timeout"
            ) from None
        finally:
            # Also on Ctrl-C, which does not reach a session of its own.
            _end(submitted)
    if submitted.returncode != 0:
        raise RequestFailedError(
            f"found that Spark ended with {submitted.returncode} when it rewrote {savepoint}; expected a savepoint "
            f"{name}; look at its output in {log}"
        )
    log.unlink()
    return output.strip().splitlines()[-1]


def _end(submitted: subprocess.Popen[str]) -> None:
    """Have a program end, and whatever it has started: asked at first, for Spark to let its executors go."""
    if submitted.poll() is None:
        submitted.terminate()
        with suppress(subprocess.TimeoutExpired):
            submitted.wait(_END_S)
    kill_session(submitted.pid)
