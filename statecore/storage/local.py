"""A file store on a local or mounted file system."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import pyarrow as pa
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from statecore.errors import AlreadyExistsError, MissingFileError, StorageError, UnsafePathError
from statecore.storage.base import FileEntry, safe_path
from statecore.storage.parallel import all_in_parallel

# As in an object store, a folder is not a file and a file has nothing below it.
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)

_TEMPORARY = ".tmp-"
# Each time, another process would have to remove the folder in the moment between its making and its first file.
_ATTEMPTS_TO_WRITE = 5


class LocalFileStore:
    """A ``FileStore`` in a directory that every process of the job can reach.

    The root may be a symbolic link; below it, links that lead out of the root are refused.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()
        self._real_root = os.path.realpath(root)

    def __reduce__(self) -> tuple[type[LocalFileStore], tuple[str]]:
        # Not the resolved root: a link may point elsewhere on another machine.
        return LocalFileStore, (self.url,)

    @property
    def url(self) -> str:
        """Absolute path of the root."""
        return str(self._root)

    def write(self, path: str, data: bytes) -> None:
        """Write a file durably: to a temporary name, synced, then renamed."""
        with self._written(path, data) as (temporary, target):
            temporary.rename(target)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create a file with a hard link, which fails atomically when the name is taken."""
        with self._written(path, data) as (temporary, target):
            try:
                os.link(temporary, target)
            except FileExistsError:
                raise AlreadyExistsError(
                    f"found {path} already there; expected to create it; another writer was first: discard this attempt"
                ) from None

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        with self._translated_errors("read", path):
            try:
                return self._resolve(path).read_bytes()
            except _NO_FILE:
                raise self._missing(path) from None

    def read_range(self, path: str, start: int, size: int) -> bytes:
        """Return some bytes of a file."""
        with self._translated_errors("read", path):
            try:
                with self._resolve(path).open("rb") as file:
                    file.seek(start)
                    return file.read(size)
            except _NO_FILE:
                raise self._missing(path) from None

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any offset."""
        # Check first: pyarrow's error for a folder is indistinguishable from others.
        if self.size(path) is None:
            raise self._missing(path)
        with self._translated_errors("open", path):
            try:
                return pa.OSFile(str(self._resolve(path)), "rb")
            except FileNotFoundError:
                raise self._missing(path) from None

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None when there is no such file."""
        with self._translated_errors("look at", path):
            try:
                status = self._resolve(path).stat()
            except _NO_FILE:
                return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def folders(self, prefix: str) -> list[str]:
        """Return the folders directly below a folder."""
        with self._translated_errors("list", prefix), suppress(*_NO_FILE), os.scandir(self._resolve(prefix)) as entries:
            return sorted(f"{prefix}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False))
        return []

    def list(self, prefix: str, *, after: str = "") -> list[FileEntry]:
        """Return the files below a folder, without the temporary files of writers."""
        with self._translated_errors("list", prefix):
            entries = self._files(self._resolve(prefix), str(PurePosixPath(prefix)))
            return sorted(
                (entry for entry in entries if entry.path > after) if after else entries, key=attrgetter("path")
            )

    def move(self, source: str, target: str) -> None:
        """Rename a file durably."""
        if self.size(source) is None:
            raise self._missing(source)
        with self._translated_errors("move a file to", target):
            destination = self._resolve(target)
            _make_directory(destination.parent)
            try:
                self._resolve(source).rename(destination)
            except FileNotFoundError:
                raise self._missing(source) from None
            _sync_directory(destination.parent)

    def delete(self, path: str) -> None:
        """Delete a file; no error when it is missing."""
        with self._translated_errors("delete", path), suppress(*_NO_FILE):
            self._resolve(path).unlink()

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files, and the folders that this leaves empty; several folders at once."""
        by_folder: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            folder, _, name = path.rpartition("/")
            by_folder[folder].append(name)
        all_in_parallel(lambda each: self._delete_in(*each), by_folder.items())

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Remove old temporary files and empty folders below a folder; a file in use keeps its folder."""
        with self._translated_errors("sweep", prefix):
            for directory, _, names in os.walk(self._resolve(prefix), topdown=False):
                folder = Path(directory)
                for path in (folder / name for name in names if name.startswith(_TEMPORARY)):
                    with suppress(FileNotFoundError):
                        if path.lstat().st_mtime_ns < before_ms * 1_000_000:
                            path.unlink()
                with suppress(OSError):
                    if folder.stat().st_mtime_ns < before_ms * 1_000_000:
                        folder.rmdir()

    def _delete_in(self, folder: str, names: Iterable[str]) -> None:
        # Resolved once per folder: that takes longer than a deletion. A link as the last name is deleted itself.
        parent = self._resolve(folder) if folder else self._root
        with (
            self._translated_errors("delete files in", folder),
            suppress(*_NO_FILE),
            _opened_directory(parent) as directory,
        ):
            for name in names:
                try:
                    os.unlink(name, dir_fd=directory)
                except _NO_FILE:
                    continue
        if folder:
            with suppress(OSError):
                parent.rmdir()

    def _resolve(self, path: str) -> Path:
        full = self._root / safe_path(path)
        if not Path(os.path.realpath(full)).is_relative_to(self._real_root):
            raise UnsafePathError(
                f"found {full}, which leaves its store through a symbolic link; expected a relative path below the "
                f"root {self._root}; remove the link, or mount the folder in its place"
            )
        return full

    @contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        """Yield a synced temporary file and its target; remove the temporary file in any case."""
        target = self._resolve(path)
        temporary = target.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
        with self._translated_errors("write", path):
            try:
                with _opened(temporary) as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield temporary, target
            finally:
                # A temporary file left on a full disk would keep it full.
                temporary.unlink(missing_ok=True)
            _sync_directory(target.parent)

    def _files(self, folder: str | Path, prefix: str, parent: int | None = None) -> Iterator[FileEntry]:
        with suppress(*_NO_FILE), _opened_directory(folder, parent) as directory, os.scandir(directory) as entries:
            for entry in entries:
                path = f"{prefix}/{entry.name}"
                if entry.is_symlink():
                    self._resolve(path)
                if entry.is_dir(follow_symlinks=False):
                    yield from self._files(entry.name, path, directory)
                elif entry.is_file() and not entry.name.startswith(_TEMPORARY):
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        # Another process has deleted it in the meantime.
                        continue
                    yield FileEntry(path, status.st_size, status.st_mtime_ns // 1_000_000)

    @contextmanager
    def _translated_errors(self, verb: str, path: str) -> Iterator[None]:
        """Raise an OSError as StorageError, with path and remedy."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"found {error.strerror or error} at {self._root / path}; expected to {verb} it; {_remedy(error)}"
            ) from error

    def _missing(self, path: str) -> MissingFileError:
        return MissingFileError(
            f"found no file {self._root / path}; expected a file that a manifest names; "
            "restore the file from a backup or resume from another savepoint"
        )


def _remedy(error: OSError) -> str:
    if error.errno in _NO_SPACE:
        return "free space there or raise the quota, then retry"
    if error.errno in _NO_RIGHT:
        return "grant this process's user access to it"
    return "check the disk or the mount, and whether another file or folder has that name"


# A clean-up may remove the folder in between, because it is empty.
@retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(_ATTEMPTS_TO_WRITE), reraise=True)
def _opened(path: Path) -> BinaryIO:
    """Open a new file in a folder, which is made if missing."""
    _make_directory(path.parent)
    return path.open("wb")


@contextmanager
def _opened_directory(path: str | Path, parent: int | None = None) -> Iterator[int]:
    """Open a directory: with names relative to it, the kernel need not walk the path of each file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_directory(directory: Path) -> None:
    """Make a directory and its parents durably, so that a power cut does not lose a folder of synced files."""
    missing = list(takewhile(lambda folder: not folder.exists(), (directory, *directory.parents)))
    directory.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        _sync_directory(made.parent)


def _sync_directory(directory: Path) -> None:
    """Make a new name in a directory durable; otherwise a power cut may lose a written file."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
