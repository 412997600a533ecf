"""Temporary folders that are known to be abandoned once their process is dead.

A process holds a lock on a file in its folder. The operating system releases the lock when the process ends, however it
ends, and keeps it while the process is only stopped.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "statecore-"
_NEW, _LOCK = ".new-lock", ".lock"


@contextmanager
def workspace(name: str) -> Iterator[Path]:
    """Make a temporary folder for the block; ``name`` becomes part of its name."""
    with (
        tempfile.TemporaryDirectory(prefix=f"{PREFIX}{name}-", ignore_cleanup_errors=True) as made,
        (Path(made) / _NEW).open("wb") as lock,
    ):
        # Locked before it has its name: no other process sees it unlocked.
        fcntl.flock(lock, fcntl.LOCK_EX)
        (Path(made) / _NEW).rename(Path(made) / _LOCK)
        yield Path(made)


def remove_abandoned(folder: Path | None = None) -> list[str]:
    """Remove the workspaces of dead processes below the system's temporary folder; return their names.

    A folder without a lock is not removed, nor one of another user.
    """
    removed = []
    for lock in sorted((folder or Path(tempfile.gettempdir())).glob(f"{PREFIX}*/{_LOCK}")):
        # Its process may remove it at the same time.
        with suppress(OSError), lock.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)
            removed.append(lock.parent.name)
    return removed
