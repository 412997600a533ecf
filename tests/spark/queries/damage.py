"""Damage to the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], None]


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    _replace(path, bytes(data))


def truncate(path: Path) -> None:
    """Leave the first half of a file."""
    data = path.read_bytes()
    _replace(path, data[: len(data) // 2])


def empty(path: Path) -> None:
    """Leave nothing of a file."""
    _replace(path, b"")


def remove(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def _replace(path: Path, data: bytes) -> None:
    # Another file: the old one may be linked from elsewhere.
    path.unlink()
    path.write_bytes(data)


DAMAGES: dict[str, Damage] = {"flipped": flip, "truncated": truncate, "empty": empty, "removed": remove}
