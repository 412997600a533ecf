"""Builds a new checkpoint, which appears at its target whole or not at all.

Locally, the checkpoint is made in a sibling folder and renamed at the end::

    .<name>.attempt-<token>/lock            held until the attempt ends, however it ends
    .<name>.attempt-<token>/checkpoint/     becomes <name>

S3 has no rename. Unchanged files are copied to the target at once; changed files are written to a local folder and
uploaded. The logs come last, because they make it a checkpoint. Meanwhile an object marks it as incomplete::

    .statecore-incomplete                   token of the running attempt; deleted at the end

The next attempt removes the files of an interrupted one; ``is_left_over`` detects them if none follows. One that still
runs meets the token of its successor, or a file of its, and stops: uploads never replace a file.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from statecore.errors import AlreadyExistsError, CheckpointRefusedError, MissingFileError, StorageError
from statecore.queries.copying.transfer import Brought, bring, create
from statecore.queries.progress import Report, quiet
from statecore.queries.reading.checkpoint import COMMITS, METADATA, OFFSETS
from statecore.queries.reading.files import (
    INCOMPLETE,
    checksum_paths,
    files_below,
    is_hidden_checksum,
    is_local,
    local_path,
)
from statecore.queries.reading.operators import moved_metadata, versioned_metadata
from statecore.queries.reading.origin import ORIGIN
from statecore.storage import FileEntry, LocalFileStore, open_store, split_url
from statecore.storage.parallel import all_in_parallel
from statecore.storage.urls import normal_url, parse_url
from statecore.storage.workspaces import workspace

_LOCK, _CHECKPOINT = "lock", "checkpoint"
_TOKEN = 12
_ATTEMPT = re.compile(rf"\..+\.attempt-[0-9a-f]{{{_TOKEN}}}")

# The commits make it a checkpoint, so they come last.
_LOGS = (METADATA, OFFSETS, ORIGIN, COMMITS)


class Staging(ABC):
    """A place where a checkpoint is made.

    Attributes:
        target: URL where it will appear.
        folder: Local folder to write its files to.

    """

    target: str
    folder: Path

    @property
    def url(self) -> str:
        """The local folder as a URL."""
        return str(self.folder)

    @property
    def store(self) -> LocalFileStore:
        """The files in the local folder."""
        return LocalFileStore(self.folder)

    @abstractmethod
    def take(self, source: str, files: Sequence[FileEntry], report: Report = quiet) -> Brought:
        """Copy files of the checkpoint at ``source`` unchanged.

        Raises:
            MissingFileError: A file is gone.
            StorageError: The storage fails.

        """

    def settle(self) -> None:
        """Rewrite metadata to name the target instead of the staging folder; publishing does this in any case."""
        store = self.store
        for path in versioned_metadata(store):
            data = store.read(path)
            moved = moved_metadata(data, path, self.target)
            if moved != data:
                # A new file: the old one may be a hard link. Its checksums are no longer right.
                store.write(path, moved)
                store.delete_all(checksum_paths(path))


class _Local(Staging):
    def __init__(self, target: str, folder: Path) -> None:
        self.target, self.folder = target, folder

    def take(self, source: str, files: Sequence[FileEntry], report: Report = quiet) -> Brought:
        return bring(source, str(self.folder), files, report)

    def publish(self) -> None:
        self.settle()
        _sync(self.folder)
        target = Path(self.target)
        try:
            # Replaces an empty folder and nothing else.
            self.folder.rename(target)
        except OSError:
            raise _exists(self.target) from None
        _sync_folder(target.parent)


class _S3(Staging):
    def __init__(self, target: str, folder: Path) -> None:
        self.target, self.folder = target, folder
        self._store, self._token = open_store(target), uuid.uuid4().hex

    def take(self, source: str, files: Sequence[FileEntry], report: Report = quiet) -> Brought:
        # Only files of a local file system have Hadoop's checksums.
        files = [entry for entry in files if not is_hidden_checksum(entry.path)]
        here = [entry for entry in files if _is_log(entry.path) or "/_metadata/" in entry.path]
        there = [entry for entry in files if entry not in here]
        # Links to the local folder are none of the target.
        small = replace(bring(source, self.url, here), linked=0)
        return small + bring(source, self.target, there, report)

    def claim(self) -> None:
        """Claim the target for this attempt; remove the files of an interrupted one."""
        files = files_below(self.target)
        if files and all(entry.path != INCOMPLETE for entry in files):
            raise _exists(self.target)
        self._store.write(INCOMPLETE, self._token.encode())
        self._store.delete_all(entry.path for entry in files if entry.path != INCOMPLETE)

    def publish(self) -> None:
        self.settle()
        files = [entry for entry in files_below(self.url) if not is_hidden_checksum(entry.path)]
        self._require_ours()
        self._create([entry for entry in files if not _is_log(entry.path)])
        self._require_ours()
        for log in _LOGS:
            self._create([entry for entry in files if entry.path.split("/")[0] == log])
        # An attempt that began meanwhile has removed files of this one.
        self._require_ours()
        self._store.delete(INCOMPLETE)

    def _create(self, files: Sequence[FileEntry]) -> None:
        """Upload files that another attempt has not uploaded: what it has may be of another batch."""
        try:
            create(self.folder, self.target, files)
        except AlreadyExistsError:
            raise _another(self.target) from None

    def discard(self) -> None:
        """Remove everything that this attempt has written."""
        self._require_ours()
        # The mark goes last, so that an interrupted removal is seen.
        self._store.delete_all(entry.path for entry in files_below(self.target) if entry.path != INCOMPLETE)
        self._store.delete(INCOMPLETE)

    def _require_ours(self) -> None:
        try:
            owner = self._store.read(INCOMPLETE).decode(errors="replace")
        except MissingFileError:
            owner = None
        if owner != self._token:
            raise _another(self.target)


@contextmanager
def staged(target: str, source: str) -> Iterator[Staging]:
    """Yield a staging area; publish the checkpoint when the block ends, remove it when the block fails.

    Args:
        target: A local path or ``s3://bucket/prefix``, where nothing is, or an empty folder.
        source: URL of the checkpoint that it is made from; neither may lie in the other.

    Raises:
        CheckpointRefusedError: The target exists, lies in the source or around it, or another attempt is at work.
        ConfigurationError: The URL of the target is none, or that of a root.
        StorageError: The storage fails.

    """
    place = str(local_path(target)) if is_local(target) else open_store(normal_url(target)).url
    # Refuses what no later listing could name, such as a root.
    split_url(place)
    _refuse_overlap(place, source)
    with _locally(place) if is_local(place) else _in_s3(place) as staging:
        yield staging


def is_left_over(url: str) -> bool:
    """Return whether a folder is left over from an interrupted attempt or removal.

    In S3 a running attempt looks the same as an interrupted one: check how long ago the last file was written.

    Raises:
        StorageError: The storage fails.

    """
    if is_local(url) and _ATTEMPT.fullmatch(local_path(url).name):
        with _failures(url):
            return _is_free(local_path(url) / _LOCK)
    return open_store(normal_url(url)).size(INCOMPLETE) is not None


@contextmanager
def _locally(target: str) -> Iterator[Staging]:
    final = Path(target)
    with _failures(target):
        if final.is_symlink() or (final.exists() and not (final.is_dir() and not any(final.iterdir()))):
            raise _exists(target)
        final.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_overs(final)
        attempt, lock = _begin_attempt(final)
    with lock:
        try:
            with _failures(target):
                (attempt / _CHECKPOINT).mkdir()
            staging = _Local(target, attempt / _CHECKPOINT)
            yield staging
            with _failures(target):
                staging.publish()
        finally:
            shutil.rmtree(attempt, ignore_errors=True)


def _begin_attempt(final: Path) -> tuple[Path, BinaryIO]:
    """Make a folder for an attempt, with a lock that this process holds until it ends."""
    while True:
        folder = final.parent / f".{final.name}.attempt-{uuid.uuid4().hex[:_TOKEN]}"
        folder.mkdir()
        # Until the lock is held, another attempt takes the folder for a left-over and may remove it.
        with suppress(FileNotFoundError):
            lock = (folder / _LOCK).open("wb")
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_there(folder / _LOCK, lock.fileno()):
                return folder, lock
            lock.close()


@contextmanager
def _failures(target: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"found {error.strerror or error} at {error.filename or target}; expected to make {target}; free space "
            "there, or grant this process's user access"
        ) from error


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_left_overs(final: Path) -> None:
    prefix = f".{final.name}.attempt-"
    # Compared as text: a name may contain characters that are patterns.
    for folder in (each for each in final.parent.iterdir() if each.name.startswith(prefix)):
        if not _is_free(folder / _LOCK):
            raise CheckpointRefusedError(
                f"found an attempt at {final} that is at work ({folder.name}); expected this one alone; wait "
                "for the other, or choose another target"
            )
        shutil.rmtree(folder, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    """Return whether no attempt holds a lock; one that was killed early has no lock file."""
    try:
        # For writing, which NFS asks for.
        with lock.open("r+b") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


@contextmanager
def _in_s3(target: str) -> Iterator[Staging]:
    with workspace("checkpoint") as made:
        folder = made / _CHECKPOINT
        folder.mkdir()
        staging = _S3(target, folder)
        staging.claim()
        try:
            yield staging
            staging.publish()
        except BaseException:
            # The error that led here says more than one of the removal; the mark stays, for the next attempt.
            with suppress(StorageError, CheckpointRefusedError):
                staging.discard()
            raise


def _refuse_overlap(target: str, source: str) -> None:
    if is_local(target) != is_local(source):
        return
    if is_local(target):
        one, other = Path(target).parts, local_path(source).parts
    else:
        places = parse_url(target), parse_url(normal_url(source))
        one, other = ((place.bucket, *place.parts) for place in places)
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        raise CheckpointRefusedError(
            f"found the target {target} and the checkpoint {source}, one in the other; expected separate places; "
            "choose a target elsewhere"
        )


def _another(target: str) -> CheckpointRefusedError:
    return CheckpointRefusedError(
        f"found another attempt at {target}; expected this one alone; wait for the other, or choose another target"
    )


def _is_log(path: str) -> bool:
    return path.split("/")[0] in _LOGS


def _exists(target: str) -> CheckpointRefusedError:
    return CheckpointRefusedError(
        f"found {target} already there; expected a new or empty folder; choose another target, or remove it"
    )


def _sync(folder: Path) -> None:
    """Sync the files that this attempt wrote; hard links share the durability of their originals."""
    files: list[Path] = []
    for directory, _, names in os.walk(folder):
        files += (path for name in names if (path := Path(directory, name)).stat().st_nlink == 1)
        files.append(Path(directory))
    all_in_parallel(_sync_folder, files)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
