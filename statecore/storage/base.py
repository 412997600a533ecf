"""The narrow waist between this library and wherever its files lie."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Protocol

import pyarrow as pa

from statecore.errors import UnsafePathError


class FileStore(Protocol):
    """A flat set of immutable files below one root.

    Paths are relative to the root, use ``/`` and never leave it. A file is visible whole or not at all, and is
    durable when the call that wrote it returns.
    """

    @property
    def url(self) -> str:
        """Where the root is; ``open_store(url)`` opens it again, in any process."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file; its name must be unique to its writer (an attempt token), because a file there is replaced."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create a file unless it exists.

        Raises:
            AlreadyExistsError: The file exists; nothing was changed.

        """

    def read(self, path: str) -> bytes:
        """Return the whole file.

        Raises:
            MissingFileError: There is no such file.

        """

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any offset; the caller closes it.

        Raises:
            MissingFileError: There is no such file.

        """

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None when there is no such file."""

    def list(self, prefix: str) -> list[str]:
        """Return the paths of all files below the folder ``prefix``, sorted."""

    def move(self, source: str, target: str) -> None:
        """Give a file another path; a file at ``target`` is replaced.

        Raises:
            MissingFileError: There is no file at ``source``.

        """

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""


def safe_path(path: str) -> str:
    """Return ``path`` when it stays below its root.

    Raises:
        UnsafePathError: The path is empty, absolute, or climbs with ``..``.

    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or "\\" in path:
        raise UnsafePathError(
            f"found the path {path!r}; expected a relative path that stays below the root of its store; "
            "check who wrote the manifest that names it"
        )
    return path
