"""Damage to state in RocksDB: what Spark finds, in few words, and what it overlooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from statecore.errors import CheckpointDamagedError

_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+")
_LONGEST = 300


@contextmanager
def spark_failures(root: str) -> Iterator[None]:
    """Turn a failure of Spark while it reads or writes state into an error that says why in few words.

    Raises:
        CheckpointDamagedError: Spark failed.

    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise CheckpointDamagedError(
            f"found that Spark cannot read the state in {root}: {cause_of(error)}; expected files as Spark wrote them; "
            "restore the checkpoint from a clone or a backup"
        ) from error


def cause_of(error: Exception) -> str:
    """Return the innermost cause of a failure in Spark, without its stack."""
    text = str(error)
    causes = _CAUSE.findall(text)
    found = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), repr(error))
    return _JAVA_CLASS.sub("", found.strip())[:_LONGEST]
