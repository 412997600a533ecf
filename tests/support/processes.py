"""Finding processes by their command lines, also while others end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


def naming(processes: Iterable[psutil.Process], *words: str) -> list[psutil.Process]:
    """Return those of the processes that live and have all words in their command lines."""
    found = []
    for process in processes:
        # Any may have ended since it was listed, and one that nobody has waited for has no command line.
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if all(word in line for word in words):
                found.append(process)
    return found
