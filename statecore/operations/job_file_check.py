"""Checks a job file before a driver runs it: its syntax, and what ``build(job)`` describes; or a query file."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from statecore.cluster.processes import kill_session
from statecore.errors import JobDefinitionError
from statecore.storage.workspaces import workspace

# Other variables may hold credentials, and a job file runs code.
_PASSED_ON = (
    "PATH", "HOME", "VIRTUAL_ENV", "LANG", "LC_ALL", "JAVA_HOME", "SPARK_HOME", "TMPDIR", "LD_LIBRARY_PATH",
)  # fmt: skip
_OWN = ("statecore", "pyspark")
_TIMEOUT_S = 45.0


class FileKind(NamedTuple):
    """How to check a program's file.

    Attributes:
        child: Arguments of the Python that runs it.
        name: What it is called.
        entry: The function that it defines.
        describes: What that function describes.

    """

    child: tuple[str, ...]
    name: str
    entry: str
    describes: str


JOB_FILE = FileKind(("-m", "statecore.runtime.job_file_check"), "job file", "build(job)", "a job")
# Its build needs a Spark session, so only its existence is checked.
QUERY_FILE = FileKind(
    ("-m", "statecore.queries.job.query_file_check"), "query file", "build(spark, settings)", "a query"
)


def check_job_file(artifact: str, source: bytes, settings: Mapping[str, str], kind: FileKind) -> str | None:
    """Check that a job file compiles and that its ``build(job)`` describes a job that can run.

    A copy of it runs, as in a driver, in a child process without the environment's credentials.

    Args:
        artifact: Path or URL of the file, for messages.
        source: The file.
        settings: The job's.
        kind: ``JOB_FILE``, or ``QUERY_FILE``, which is loaded without a call of its ``build``.

    Returns:
        What could not be checked, because a package or a variable is missing here; None if all was checked.

    Raises:
        JobDefinitionError: The file is wrong; the message has the line and the reason.

    """
    try:
        compile(source, artifact, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = artifact if line is None else f"{artifact}:{line}"
        raise _wrong(kind, f"{place}: {type(error).__name__}: {getattr(error, 'msg', error)}") from None
    if importlib.util.find_spec("pyspark") is None:
        return f"pyspark is not installed here, so only the syntax of the {kind.name} was checked"
    with workspace("check") as directory:
        copy = directory / artifact.rpartition("/")[2]
        copy.write_bytes(source)
        return _built(kind, artifact, str(copy), settings)


def _built(kind: FileKind, artifact: str, path: str, settings: Mapping[str, str]) -> str | None:
    """Run ``build(job)`` of a local file; return what could not be checked."""
    child = subprocess.Popen(
        [sys.executable, *kind.child],
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        # The child sets its own alarm, but a job file may disable it, or start processes that keep the pipes open.
        output, errors = child.communicate(json.dumps({"path": path, "settings": dict(settings)}), _TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise _late(kind, artifact) from None
    finally:
        kill_session(child.pid)
        child.wait()
    if child.returncode == -signal.SIGALRM:
        raise _late(kind, artifact)
    try:
        wrong = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        last = (errors.strip().splitlines() or ["no output"])[-1]
        raise _wrong(kind, f"{artifact}: Python ended with {child.returncode} and without an answer: {last}") from None
    if wrong is None:
        return None
    place, missing = artifact, wrong["missing_module"]
    if wrong["place"] is not None:
        place = artifact.removesuffix(artifact.rpartition("/")[2]) + wrong["place"]
    if missing is not None and missing.partition(".")[0] not in _OWN:
        return f"{place} imports {missing}, which is not installed here, so {kind.entry} was not run"
    variable = re.match(r"KeyError: '(\w+)'", wrong["reason"])
    if variable is not None and variable[1] in os.environ and variable[1] not in _PASSED_ON:
        return f"{place} reads the environment variable {variable[1]}, which is hidden from the check"
    if wrong["explained"] is not None:
        explained = wrong["explained"].replace(path, artifact)
        raise JobDefinitionError(explained if place in explained else f"{place}: {explained}")
    raise _wrong(kind, f"{place}: {wrong['reason'].replace(path, artifact)}")


def _late(kind: FileKind, artifact: str) -> JobDefinitionError:
    return _wrong(
        kind, f"{artifact}: it did not return in time; it must only describe {kind.describes}, and read no data"
    )


def _wrong(kind: FileKind, what: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"found a {kind.name} that fails, {what}; expected {kind.entry} to describe {kind.describes}; correct the file "
        "or the job's settings"
    )
