"""Lines of a job file, for messages about what a check finds only later, when the columns are known."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.errors import StatecoreError

_OWN = __name__.partition(".")[0]
_PLACED = re.compile(r"[^:\n]+:\d+( in \S+)?: ")


def calling_line() -> str:
    """Return the line that called statecore, as ``orders.py:13``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OWN:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


@contextmanager
def at_line(line: str) -> Iterator[None]:
    """Begin the messages of errors with a line of the job file, unless they begin with one.

    Args:
        line: What ``calling_line`` returned; empty for none.

    """
    try:
        yield
    except StatecoreError as error:
        message = placed(str(error), line)
        if message == str(error):
            raise
        raise type(error)(message) from error.__cause__


def placed(message: str, line: str | None) -> str:
    """Return a message that begins with a line, unless it begins with one already, or there is none."""
    return message if not line or _PLACED.match(message) else f"{line}: {message}"
