"""Loads a job file and runs its ``build(job)``; a separate program, started without credentials.

It starts no Spark session, because ``build(job)`` only describes the job.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Mapping

from statecore.blame import exception_line, job_file_line
from statecore.errors import StatecoreError
from statecore.runtime.job import load_job

TIMEOUT_S = 30


def main() -> None:
    """Check one job file."""
    answer(load_job)


def answer(load: Callable[[str, Mapping[str, str]], object]) -> None:
    """Check one file; SIGALRM ends this process when the file does not return.

    It reads ``{"path": …, "settings": …}`` from stdin and prints one line of JSON: null, or the problem.

    Args:
        load: Loads the file at a path, with the job's settings; raises what is wrong.

    """
    signal.alarm(TIMEOUT_S)
    asked = json.load(sys.stdin)
    wrong: dict[str, str | None] | None = None
    with contextlib.redirect_stdout(sys.stderr):
        try:
            load(asked["path"], asked["settings"])
        # A job file may also call sys.exit.
        except BaseException as error:
            wrong = {
                "place": job_file_line(error, {asked["path"]}),
                "reason": exception_line(error),
                "explained": str(error) if isinstance(error, StatecoreError) else None,
                "missing_module": error.name if isinstance(error, ModuleNotFoundError) else None,
            }
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
