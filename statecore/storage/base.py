"""The Protocol of a file store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

import msgspec
import pyarrow as pa

from statecore.errors import UnsafePathError


class FileEntry(msgspec.Struct, frozen=True):
    """A file in a listing.

    Attributes:
        path: Path relative to the root of the store.
        size: Size in bytes.
        modified_ms: Time of the write in ms since 1970-01-01 UTC, by the storage's clock. On S3, a move is a copy, so
            this is the time of the last move.

    """

    path: str
    size: int
    modified_ms: int


class FileStore(Protocol):
    """A flat set of immutable files below one root.

    Paths are relative to the root, use ``/`` and never leave the root. A file is visible whole or not at all, and
    durable when the call that wrote it returns. A store can be pickled for use in another process.

    Every method raises ``StorageError`` when the storage fails (disk full, access denied, no such bucket, no answer)
    and ``UnsafePathError`` for a path that leaves the root.
    """

    @property
    def url(self) -> str:
        """URL of the root; ``open_store(url)`` opens the same store in any process."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file, replacing any other at ``path``; make the name unique per writer (an attempt token)."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create a file; AlreadyExistsError, without any change, when it exists."""

    def read(self, path: str) -> bytes:
        """Return the whole file; MissingFileError when there is none."""

    def read_range(self, path: str, start: int, size: int) -> bytes:
        """Return ``size`` bytes, at least one, from offset ``start``; fewer where the file ends before.

        Raises:
            MissingFileError: There is no such file.

        """

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any offset; the caller closes it. MissingFileError when there is none."""

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None when there is no such file."""

    def folders(self, prefix: str) -> list[str]:
        """Return the paths of the folders directly below the folder ``prefix``, sorted."""

    def list(self, prefix: str, *, after: str = "") -> list[FileEntry]:
        """Return all files below the folder ``prefix`` whose paths come after ``after``, sorted by path."""

    def move(self, source: str, target: str) -> None:
        """Rename a file, replacing any other at ``target``.

        An interrupted move can be repeated: the file stays at ``source`` until it is whole at ``target``.

        Raises:
            MissingFileError: There is no file at ``source``.

        """

    def delete(self, path: str) -> None:
        """Delete a file; no error when it is missing."""

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files, as many in one request as the storage takes; no error when some are missing."""

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Remove what ``list`` hides below the folder ``prefix``, unless it was modified since a time.

        These are the temporary files of killed writers, and empty folders. An object store has neither.
        """


def safe_path(path: str) -> str:
    """Return ``path`` if it stays below its root; refuse any other with UnsafePathError."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or "\\" in path:
        raise UnsafePathError(
            f"found the path {path!r}; expected a relative path that stays below the root of its store, without a "
            "backslash; check the origin of the manifest or argument that names it"
        )
    return path


T = TypeVar("T")


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most ``size``."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch
