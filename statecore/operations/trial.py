"""Tries a job file or a query file on Spark, on this machine, before a driver runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from statecore.cluster.processes import kill_session, piped
from statecore.cluster.spark_home import spark_environment
from statecore.cluster.spark_submit import spark_submit
from statecore.errors import JobDefinitionError
from statecore.model.job_parts import Trial
from statecore.operations.changes.upgrade import TRIAL_TIMEOUT_S
from statecore.operations.kinds import QUERY_PROGRAMS
from statecore.private_files import write_private
from statecore.storage.workspaces import workspace

PROGRAM = Path(__file__).resolve().parents[1] / "runtime" / "programs" / "trial.py"
"""The program that spark-submit starts; as a file, because it takes no module."""


class _Way(NamedTuple):
    """How a file is tried.

    Attributes:
        program: The program that spark-submit starts.
        option: Its option for the file.
        master: Where it runs.
        timeout_s: How long it may take.
        remedy: What to do when it takes longer.

    """

    program: Path
    option: str
    master: str
    timeout_s: float
    remedy: str


_SHOWN_LINES = 20
_REFUSAL = "error: "
_CONF = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


_OF_JOBS = _Way(PROGRAM, "--job-file", "local[1]", 300.0, "let sources and functions wait for nothing")
# A trial restart reads all state, as in an upgrade.
_OF_QUERIES = _Way(
    QUERY_PROGRAMS / "trial.py", "--query", "local[*]", TRIAL_TIMEOUT_S, "register it without --try, or on more cores"
)


@dataclass(frozen=True, slots=True)
class TriedFile:
    """A job file or a query file, with what its job is registered with.

    Attributes:
        artifact: Path or URL of the file, for its name.
        source: The file.
        settings: The job's.
        conf: The job's Spark configuration.

    """

    artifact: str
    source: bytes
    settings: Mapping[str, str]
    conf: Mapping[str, str]


def try_job_file(file: TriedFile, *, savepoint: str | None = None, store: str | None = None) -> Trial:
    """Try a job file: Spark builds its sources, and its operators run one empty epoch; see ``statecore.runtime.trial``.

    It runs in a process of its own, with this one's environment but without the catalog's address, as a driver does.

    Args:
        file: The job file.
        savepoint: A savepoint whose state the job takes up; None for a start without state.
        store: In its place, the job's store, whose newest epoch counts, if there is one.

    Returns:
        The job's parts.

    Raises:
        JobDefinitionError: The job cannot run; the message has the job file's line, if one is to blame.
        ConfigurationError: Spark is missing.

    """
    with workspace("trial") as folder:
        answer = folder / "answer.json"
        arguments = ["--scratch", str(folder / "scratch"), "--answer", str(answer)]
        arguments += [] if savepoint is None else ["--savepoint", savepoint]
        arguments += [] if store is None else ["--store", store]
        _, output = _run(file, folder, _OF_JOBS, *arguments)
        if not answer.exists():
            raise JobDefinitionError(f"found no answer from the trial of {file.artifact}; {_ending(output)}")
        trial = msgspec.json.decode(answer.read_bytes(), type=Trial)
    if trial.error is not None:
        raise JobDefinitionError(trial.error)
    return trial


def try_query_file(file: TriedFile, checkpoint: str) -> None:
    """Try a query file: Spark restarts it on a clone of its checkpoint, for one empty batch.

    Args:
        file: The query file.
        checkpoint: The checkpoint; it is only read.

    Raises:
        JobDefinitionError: Spark refuses the query on this checkpoint, or the checkpoint cannot be cloned.
        ConfigurationError: Spark is missing.

    """
    with workspace("trial") as folder:
        code, output = _run(file, folder, _OF_QUERIES, "--checkpoint", checkpoint)
    if code:
        refusal = next((line for line in reversed(output) if line.startswith(_REFUSAL)), None)
        told = None if refusal is None else refusal.removeprefix(_REFUSAL)
        raise JobDefinitionError(told or f"found that the trial of {file.artifact} failed; {_ending(output)}")


def _run(file: TriedFile, folder: Path, way: _Way, *arguments: str) -> tuple[int, list[str]]:
    """Run a program on Spark over a copy of a file; return its exit code and the last lines of its output.

    Args:
        file: The file.
        folder: Where to keep the copy, and what may be secret.
        way: How to try it.
        arguments: Further arguments of the program.

    """
    copy, secret = folder / file.artifact.rpartition("/")[2], folder / "settings.json"
    copy.write_bytes(file.source)
    write_private(secret, json.dumps(dict(file.settings)))
    conf = {key: value for key, value in file.conf.items() if key.startswith("spark.")} | _CONF
    command = [
        *spark_submit(way.master, "statecore-trial", conf, folder / "spark.properties", way.program),
        *(way.option, str(copy), "--settings", str(secret), *arguments),
    ]
    with piped(command, environment=spark_environment()) as process:
        try:
            output = process.communicate(timeout=way.timeout_s)[0]
        except subprocess.TimeoutExpired:
            raise JobDefinitionError(
                f"found the trial of {file.artifact} running for longer than {way.timeout_s:,.0f} s; expected it to "
                f"end by then; {way.remedy}"
            ) from None
        finally:
            kill_session(process.pid)
        return process.returncode, output.splitlines()[-_SHOWN_LINES:]


def _ending(output: Sequence[str]) -> str:
    return "expected one; the last output was:\n" + "\n".join(output)
