"""Files on a local or mounted file system."""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from statecore.errors import AlreadyExistsError, MissingFileError
from statecore.storage.base import safe_path

# A folder is no file, and nothing lies below a file: here as in an object store.
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalFileStore:
    """A ``FileStore`` on a directory that every process of the job can reach."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()

    @property
    def url(self) -> str:
        """Absolute path of the root."""
        return str(self._root)

    def write(self, path: str, data: bytes) -> None:
        """Write a file durably: to a temporary name, synced, then renamed."""
        target = self._target(path)
        temporary = self._write_temporary(target, data)
        temporary.rename(target)
        _sync_directory(target.parent)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create a file by a hard link, which the file system refuses when the name is taken.

        Raises:
            AlreadyExistsError: The file exists.

        """
        target = self._target(path)
        temporary = self._write_temporary(target, data)
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise AlreadyExistsError(
                f"found {path} already there; expected to create it; somebody else was first, so discard this attempt"
            ) from None
        finally:
            temporary.unlink()
        _sync_directory(target.parent)

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        try:
            return self._resolve(path).read_bytes()
        except _NO_FILE:
            raise self._missing(path) from None

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any offset."""
        # pyarrow reports a folder as any OSError, so look first; files do not turn into folders.
        if self.size(path) is None:
            raise self._missing(path)
        try:
            return pa.OSFile(str(self._resolve(path)), "rb")
        except FileNotFoundError:
            raise self._missing(path) from None

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None when there is no such file."""
        try:
            found = self._resolve(path).stat()
        except _NO_FILE:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def list(self, prefix: str) -> list[str]:
        """Return the files below a folder; temporary files of writers at work are left out."""
        folder = self._resolve(prefix)
        found = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".tmp-"))
        return sorted(file.relative_to(self._root).as_posix() for file in found)

    def move(self, source: str, target: str) -> None:
        """Rename a file durably."""
        destination = self._target(target)
        try:
            self._resolve(source).rename(destination)
        except _NO_FILE:
            raise self._missing(source) from None
        _sync_directory(destination.parent)

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""
        with suppress(*_NO_FILE):
            self._resolve(path).unlink()

    def _resolve(self, path: str) -> Path:
        return self._root / safe_path(path)

    def _target(self, path: str) -> Path:
        target = self._resolve(path)
        _make_directory(target.parent)
        return target

    def _missing(self, path: str) -> MissingFileError:
        return MissingFileError(
            f"found no file {self._root / path}; expected it, because a manifest names it; "
            "restore the file from a backup or resume from another savepoint"
        )

    @staticmethod
    def _write_temporary(target: Path, data: bytes) -> Path:
        temporary = target.parent / f".tmp-{uuid.uuid4().hex}"
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            # On a full disk, what is left behind would keep it full.
            temporary.unlink(missing_ok=True)
            raise
        return temporary


def _make_directory(directory: Path) -> None:
    """Make a directory and its parents, each name durable: a power cut must not forget a folder of durable files."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        _sync_directory(made.parent)


def _sync_directory(directory: Path) -> None:
    """Make a new name durable; without it a power cut may forget a file that was written."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
