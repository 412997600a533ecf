"""Puts a copy in the place of the checkpoint that it was made from, in one step.

::

    P                          the checkpoint, before and afterwards
    .P.statecore-next          the copy: whole, and proven; gone afterwards
    .P.statecore-before        the previous checkpoint; the next replacement removes it
    .P.statecore-lock          held by the programs that run the query, or replace P

Linux exchanges two folders of one file system atomically (``renameat2``), so a kill leaves the previous checkpoint at
P, or the new one. A place without that, such as S3 or a volume that is mounted at P itself, is refused.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from statecore.errors import CheckpointError, CheckpointRefusedError, StorageError
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint
from statecore.queries.reading.files import checksum_paths, is_local, local_path
from statecore.queries.reading.operators import moved_metadata, versioned_metadata
from statecore.queries.reading.origin import read_origin
from statecore.storage import LocalFileStore

log = logging.getLogger(__name__)

_REMEDY = "copy it with `statecore checkpoint rescale`, and start the query with the copy as its checkpointLocation"
_AT_CWD, _RENAME_EXCHANGE = -100, 2
_locks: dict[Path, BinaryIO] = {}


def copy_of(url: str) -> Path:
    """Return where the copy of a checkpoint lies until it replaces it."""
    return _beside(url, "next")


def before(url: str) -> Path:
    """Return where the previous checkpoint lies."""
    return _beside(url, "before")


def hold(url: str) -> None:
    """Let no other program replace a checkpoint until this process ends: it runs the query.

    Where this process may not write beside the checkpoint, nobody is kept away.

    Raises:
        CheckpointRefusedError: Another program replaces it now.

    """
    with suppress(OSError):
        _lock(url, fcntl.LOCK_SH)


@contextmanager
def alone_at(url: str) -> Iterator[None]:
    """Let no other program run the query of a checkpoint, or replace it, during the block; then hold it.

    Raises:
        CheckpointRefusedError: Another program does.

    """
    _lock(url, fcntl.LOCK_EX)
    try:
        yield
    finally:
        _lock(url, fcntl.LOCK_SH)


def _lock(url: str, kind: int) -> None:
    path = _beside(url, "lock")
    held = _locks.get(path) or path.open("wb")
    try:
        fcntl.flock(held, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointRefusedError(
            f"found another program that runs the query of {local_path(url)}, or replaces its checkpoint; expected "
            "this one alone; end the other program first"
        ) from None
    # Until the process ends, however it ends.
    _locks[path] = held


def require_replaceable(url: str) -> None:
    """Refuse a place where two folders cannot be exchanged in one step.

    Raises:
        CheckpointRefusedError: It is S3, a mount point, or a file system without an atomic exchange.

    """
    if not is_local(url):
        raise CheckpointRefusedError(
            f"found the checkpoint {url} in an object store, which cannot exchange two folders in one step; expected "
            f"it on a file system; {_REMEDY}"
        )
    folder = local_path(url)
    if folder.stat().st_dev != folder.parent.stat().st_dev:
        raise _mounted(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.statecore-", dir=folder.parent) as made:
            one, other = Path(made, "one"), Path(made, "other")
            one.mkdir()
            other.mkdir()
            _exchange(one, other)
    except OSError as error:
        raise CheckpointRefusedError(
            f"found that two folders beside {folder} cannot be exchanged in one step ({error.strerror}); expected a "
            f"file system that can, such as ext4, xfs or btrfs, and the right to write there; {_REMEDY}"
        ) from None


def discard(url: str) -> None:
    """Remove a copy that did not replace its checkpoint; keep a previous checkpoint that a kill left in its place."""
    folder, copy = local_path(url), copy_of(url)
    origin = read_origin(LocalFileStore(folder))
    if origin is not None and origin.path == str(folder) and copy.exists():
        with suppress(CheckpointError):
            left = open_checkpoint(str(copy))
            if (left.batch, left.pending, left.partitions) == (origin.batch, origin.pending, origin.partitions_before):
                _keep(url)
    shutil.rmtree(copy, ignore_errors=True)


def replace(url: str) -> None:
    """Put the copy of a checkpoint in its place; its query is stopped.

    Raises:
        CheckpointRefusedError: The query has begun a batch since the copy was made, or the checkpoint is a mount point.
        StorageError: The file system fails; the checkpoint is as it was.

    """
    folder, copy = local_path(url), copy_of(url)
    checkpoint, origin = open_checkpoint(str(folder)), read_origin(LocalFileStore(copy))
    made_at = None if origin is None else (origin.query_id, origin.batch, origin.pending)
    if made_at != (checkpoint.query_id, checkpoint.batch, checkpoint.pending):
        raise _begun(folder)
    _point_to(copy, folder)
    try:
        _exchange(folder, copy)
        # A query that ran at the old number until now has logged its batches in what is the copy's place now.
        if newest_batches(LocalFileStore(copy)) != newest_batches(LocalFileStore(folder)):
            _exchange(folder, copy)
            raise _begun(folder)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EXDEV):
            raise _mounted(folder) from None
        raise StorageError(
            f"found {error.strerror or error} at {error.filename or folder}; expected to put {copy} in the place of "
            f"{folder}; grant this process's user access to {folder.parent}"
        ) from error
    _sync(folder.parent)
    _keep(url)


def _keep(url: str) -> None:
    """Let the previous checkpoint, which lies where the copy was, stay until the next replacement."""
    copy, kept = copy_of(url), before(url)
    try:
        if kept.exists():
            shutil.rmtree(kept)
        copy.rename(kept)
    except OSError as error:
        log.warning("the previous checkpoint stays in %s: %s", copy, error)
        return
    _point_to(kept, kept)


def _mounted(folder: Path) -> CheckpointRefusedError:
    return CheckpointRefusedError(
        f"found a file system mounted at {folder}; expected the checkpoint in a folder of it, so that a copy fits "
        f"beside; move it one folder deeper, or {_REMEDY}"
    )


def _begun(folder: Path) -> CheckpointRefusedError:
    return CheckpointRefusedError(
        f"found a batch in {folder} that was begun after it was copied; expected none; stop every program that runs "
        "the query, then start one again"
    )


def _beside(url: str, name: str) -> Path:
    folder = local_path(url)
    return folder.with_name(f".{folder.name}.statecore-{name}")


def _exchange(one: Path, other: Path) -> None:
    """Exchange two folders in one step; OSError if the system or the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, "only Linux can")
    if libc.renameat2(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def _point_to(checkpoint: Path, root: Path) -> None:
    """Let the metadata of operators name schema files below ``root``."""
    store = LocalFileStore(checkpoint)
    for path in versioned_metadata(store):
        data = store.read(path)
        moved = moved_metadata(data, path, str(root))
        if moved != data:
            # A new file: the old one may be a hard link. Its checksums are no longer right.
            store.write(path, moved)
            store.delete_all(checksum_paths(path))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
