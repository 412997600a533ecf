"""Damage to state in RocksDB: what Spark finds, in few words, and what it overlooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

import statecore.errors as errors
from statecore.blame import exception_line
from statecore.errors import CheckpointDamagedError, StatecoreError

_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[\w$]+: (?=\S)")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")
_LONGEST = 300


@contextmanager
def spark_failures(root: str) -> Iterator[None]:
    """Turn a failure of Spark while it reads or writes state into an error that says why in few words.

    Raises:
        CheckpointDamagedError: Spark failed.
        StatecoreError: What a task in Python raised.

    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        if (raised := _raised_in_task(error)) is not None:
            raise raised from error
        raise CheckpointDamagedError(
            f"found that Spark cannot read the state in {root}: {cause_of(error)}; expected files as Spark wrote them; "
            "restore the checkpoint from a clone or a backup"
        ) from error


def cause_of(error: Exception) -> str:
    """Return the innermost cause of a failure in Spark, without its stack."""
    text = _innermost(error) or str(error)
    causes = _CAUSE.findall(text)
    found = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), repr(error))
    return _JAVA_CLASS.sub("", found.strip())[:_LONGEST]


def _innermost(error: Exception) -> str | None:
    """Return what the last of Java's exceptions says, each of which is the cause of another."""
    found: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if found is None:
        return None
    while (cause := found.getCause()) is not None:
        found = cause
    return str(found.toString())


def _raised_in_task(error: Exception) -> StatecoreError | None:
    """Return the error that a task in Python raised, which reaches the driver as text; None for another one."""
    name, _, message = exception_line(error).partition(": ")
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, StatecoreError):
        return None
    raised: StatecoreError = kind(_SQLSTATE.split(message)[0])
    return raised
