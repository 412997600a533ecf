"""Extracts from an error what its reader needs first: the line of the job file, and the exception itself."""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection

_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$', re.MULTILINE)
_JVM_FRAMES = re.compile(r"\n\s*(?:at [\w.$]+\(|Driver stacktrace:|Caused by: )")


def blame(error: BaseException, job_files: Collection[str]) -> str:
    """Return an error as ``orders.py:13 in check: ValueError: negative amount``, without the frames between.

    Spark passes on an error of a Python worker as text: the exception is the last one in that text.

    Args:
        error: The error.
        job_files: Paths that job files were loaded from.

    """
    place = job_file_line(error, job_files)
    return exception_line(error) if place is None else f"{place}: {exception_line(error)}"


def exception_line(error: BaseException) -> str:
    """Return kind and message of an error, or of the Python worker's error that Spark passes on."""
    text = str(error)
    before, marker, worker = text.rpartition(_TRACEBACK)
    if not marker:
        return f"{type(error).__name__}: {text}"
    lines = worker.splitlines()
    first = next((number for number, line in enumerate(lines) if line and not line.startswith((" ", "^"))), None)
    if first is None:
        return f"{type(error).__name__}: {before.strip()}"
    raised = _JVM_FRAMES.split("\n".join(lines[first:]))[0].strip()
    # Without the module, as Python prints its built-in exceptions.
    return re.sub(r"^(?:\w+\.)+(?=\w+(?::|$))", "", raised)


def job_file_line(error: BaseException, job_files: Collection[str]) -> str | None:
    """Return the last job-file line in an error's traceback, as ``orders.py:13 in check``; None without one."""
    frames = _FRAME.finditer("".join(traceback.format_exception(error)))
    job_frames = [frame for frame in frames if frame["file"] in job_files]
    if not job_frames:
        return None
    file, line, function = job_frames[-1].group("file", "line", "function")
    place = f"{file.rpartition('/')[2]}:{line}"
    return place if function in (None, "<module>") else f"{place} in {function}"
