"""Turns Spark's failures on state in RocksDB into short errors."""

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
    """Turn a failure of Spark while it reads or writes state into a short error.

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
    cause = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), repr(error))
    return _JAVA_CLASS.sub("", cause.strip())[:_LONGEST]


def _innermost(error: Exception) -> str | None:
    """Return the message of the innermost Java exception."""
    exception: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if exception is None:
        return None
    while (cause := exception.getCause()) is not None:
        exception = cause
    return str(exception.toString())


def _raised_in_task(error: Exception) -> StatecoreError | None:
    """Return the error that a Python task raised, which reaches the driver as text; None for any other error."""
    name, _, message = exception_line(error).partition(": ")
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, StatecoreError):
        return None
    raised: StatecoreError = kind(_SQLSTATE.split(message)[0])
    return raised
