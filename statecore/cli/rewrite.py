"""The Spark job that lays a savepoint's state out anew, run from here as the supervisor runs drivers."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from statecore.catalog import JobRecord
from statecore.cluster.spark_home import spark_environment
from statecore.errors import RequestFailedError
from statecore.submit import SPARKJOBS, submit_command


def rewritten(job: JobRecord, savepoint: str, name: str, parallelism: int, max_parallelism: int | None) -> str:
    """Write a savepoint's state anew with the job's own master and Spark configuration, and return where it is.

    Args:
        job: The job.
        savepoint: URL of its savepoint.
        name: Name of the savepoint to write, in the same store.
        parallelism: Subtasks of the new savepoint.
        max_parallelism: Its key groups; None keeps their number.

    Raises:
        RequestFailedError: It failed; the message says where Spark's output is.

    """
    arguments = ["--savepoint", savepoint, "--name", name, "--parallelism", str(parallelism)]
    if max_parallelism is not None:
        arguments += ["--max-parallelism", str(max_parallelism)]
    command = submit_command(job, f"rewrite-{job.name}", SPARKJOBS / "rewrite.py", *arguments)
    log = Path(tempfile.mkstemp(prefix=f"statecore-rewrite-{job.name}-", suffix=".log")[1])
    with log.open("wb") as errors:
        done = subprocess.run(
            command, env=spark_environment(), stdout=subprocess.PIPE, stderr=errors, text=True, check=False
        )
    if done.returncode != 0:
        raise RequestFailedError(
            f"found that Spark ended with {done.returncode} when it rewrote {savepoint}; expected a savepoint {name}; "
            f"look at its output in {log}"
        )
    log.unlink()
    return done.stdout.strip().splitlines()[-1]
