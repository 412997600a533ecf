"""Shortens Spark's error messages."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from statecore.blame import exception_line

_LENGTH = 600
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")
_REST = ("at ", "=== ", "JVM stacktrace")


def short_message(text: str) -> str:
    """Return one of Spark's messages on one line, without stack trace, query plan and SQLSTATE, shortened."""
    if "Traceback (most recent call last)" in text:
        text = exception_line(PySparkException(text))
    # Plans follow the SQLSTATE.
    text = _SQLSTATE.split(text)[0]
    lines = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith(_REST):
            break
        lines.append(line)
    joined = " ".join(filter(None, lines))
    return joined if len(joined) <= _LENGTH else f"{joined[:_LENGTH]}…"
