"""Files that only their owner may read: they hold settings, and texts of jobs, which may hold secrets."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_FILE, _FOLDER = 0o600, 0o700


def make_private_folder(folder: Path) -> None:
    """Create a missing folder that only its owner can enter; an existing folder keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=_FOLDER, exist_ok=True)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read; leave an existing file unchanged."""
    with suppress(FileExistsError):
        open(path, "xb", opener=_opened).close()


def append_private(path: Path) -> BinaryIO:
    """Open a file to append to; only its owner can read a new one."""
    return open(path, "ab", opener=_opened)


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically with one that only its owner can read."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    with open(new, "xb", opener=_opened) as file:
        file.write(text.encode())
    new.replace(path)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags, _FILE)
