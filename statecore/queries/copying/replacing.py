"""Puts a copy in the place of the checkpoint that it was made from, in one step.

::

    P                          the checkpoint, before and afterwards
    .P.statecore-next          the copy: whole, and proven; gone afterwards
    .P.statecore-before        the previous checkpoint; the next replacement removes it
    .P.statecore-lock          held by the program that looks at P, or replaces it

Linux exchanges two folders of one file system atomically (``renameat2``), so a kill leaves the previous checkpoint at
P, or the new one. A place without that, such as S3 or a volume that is mounted at P itself, is refused.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statecore.errors import CheckpointRefusedError, StorageError
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint
from statecore.queries.reading.files import checksum_paths, is_local, local_path
from statecore.queries.reading.operators import moved_metadata, versioned_metadata
from statecore.queries.reading.origin import read_origin
from statecore.storage import LocalFileStore

_AT_CWD, _RENAME_EXCHANGE = -100, 2


def copy_of(url: str) -> Path:
    """Return where the copy of a checkpoint lies until it replaces it."""
    return _beside(url, "next")


def before(url: str) -> Path:
    """Return where the previous checkpoint lies."""
    return _beside(url, "before")


@contextmanager
def alone_at(url: str) -> Iterator[None]:
    """Let no other program replace a checkpoint during the block; the end of this process ends the claim.

    Raises:
        CheckpointRefusedError: Another program is at work.

    """
    lock = _beside(url, "lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("wb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointRefusedError(
                f"found another program that looks at {local_path(url)}, or replaces it; expected this one alone; let "
                "one program at a time run the query"
            ) from None
        yield


def require_replaceable(url: str) -> None:
    """Refuse a place where two folders cannot be exchanged in one step.

    Raises:
        CheckpointRefusedError: It is S3, a mount point, or a file system without an atomic exchange.

    """
    remedy = "copy it with `statecore checkpoint rescale`, and start the query with the copy as its checkpointLocation"
    if not is_local(url):
        raise CheckpointRefusedError(
            f"found the checkpoint {url} in an object store, which cannot exchange two folders in one step; expected "
            f"it on a file system; {remedy}"
        )
    folder = local_path(url)
    if folder.stat().st_dev != folder.parent.stat().st_dev:
        raise CheckpointRefusedError(
            f"found a file system mounted at {folder}; expected the checkpoint in a folder of it, so that a copy fits "
            f"beside; move it one folder deeper, or {remedy}"
        )
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.statecore-", dir=folder.parent) as made:
        one, other = Path(made, "one"), Path(made, "other")
        one.mkdir()
        other.mkdir()
        try:
            _exchange(one, other)
        except OSError as error:
            raise CheckpointRefusedError(
                f"found that the file system of {folder} cannot exchange two folders in one step ({error.strerror}); "
                f"expected one that can, such as ext4, xfs or btrfs; {remedy}"
            ) from None


def discard(url: str) -> None:
    """Remove a copy that did not replace its checkpoint."""
    shutil.rmtree(copy_of(url), ignore_errors=True)


def replace(url: str) -> None:
    """Put the copy of a checkpoint in its place; its query is stopped.

    Raises:
        CheckpointRefusedError: The query has begun a batch since the copy was made.
        StorageError: The file system fails.

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
        _sync(folder.parent)
        shutil.rmtree(before(url), ignore_errors=True)
        copy.rename(before(url))
    except OSError as error:
        raise StorageError(
            f"found {error.strerror or error} at {error.filename or folder}; expected to put {copy} in the place of "
            f"{folder}; grant this process's user access to {folder.parent}"
        ) from error
    _point_to(before(url), before(url))


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
