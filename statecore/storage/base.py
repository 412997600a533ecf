"""The narrow waist between this library and wherever its files lie."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

import pyarrow as pa

from statecore.errors import UnsafePathError


class FileEntry(NamedTuple):
    """A file as a listing shows it.

    Attributes:
        path: Relative to the root of its store.
        size: In bytes.
        modified_ms: When it was written, in milliseconds since 1970 by the clock of the storage; on S3, where a move
            is a copy, when it was moved.

    """

    path: str
    size: int
    modified_ms: int


class FileStore(Protocol):
    """A flat set of immutable files below one root.

    Paths are relative to the root, use ``/`` and never leave it. A file is visible whole or not at all, and is
    durable when the call that wrote it returns. A store can be pickled and used in another process.

    Every method raises ``StorageError`` when the storage fails: a full disk, no access, no such bucket, no answer;
    and ``UnsafePathError`` for a path that leaves the root.
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

    def list(self, prefix: str, *, after: str = "") -> list[FileEntry]:
        """Return all files below the folder ``prefix`` whose paths come after ``after``, sorted by path."""

    def move(self, source: str, target: str) -> None:
        """Give a file another path; a file at ``target`` is replaced.

        It may be repeated when it was cut short: until the file is whole at ``target``, it stays at ``source``.

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
