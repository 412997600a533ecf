"""Files that only their owner may read: they hold settings, and texts of jobs, which may hold secrets."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_FILE, _FOLDER = 0o600, 0o700


def make_private_folder(folder: Path) -> None:
    """Create a missing folder for its owner alone; one that exists keeps its mode, which somebody else has chosen."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=_FOLDER, exist_ok=True)


def create_private(path: Path) -> None:
    """Create an empty file that is its owner's alone; one that is there is not opened."""
    with suppress(FileExistsError):
        open(path, "xb", opener=_opened).close()


def append_private(path: Path) -> BinaryIO:
    """Open a file to append to; a new one is its owner's alone."""
    return open(path, "ab", opener=_opened)


def write_private(path: Path, text: str) -> None:
    """Replace a file, in one step, with one that is its owner's alone."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    with open(new, "xb", opener=_opened) as file:
        file.write(text.encode())
    new.replace(path)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags, _FILE)
