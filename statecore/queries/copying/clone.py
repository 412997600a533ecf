"""Clones a checkpoint: a copy at its newest committed batch, from which Spark resumes as from the original.

The clone has the logs and the sources' files unchanged. That includes a batch that is logged but not committed: a sink
that already has its rows must get the same rows again. State is cloned up to the version of the newest committed batch.
Only metadata that names files by absolute paths is rewritten.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError, MissingFileError, NotProvenError
from statecore.queries.copying.staging import Staging, staged
from statecore.queries.copying.transfer import Brought
from statecore.queries.progress import Report, quiet
from statecore.queries.reading.checkpoint import (
    ATTEMPTS,
    COMMITS,
    METADATA,
    OFFSETS,
    ROCKSDB,
    SparkCheckpoint,
    has_changed,
    open_checkpoint,
    require_unchanged,
)
from statecore.queries.reading.files import INCOMPLETE, files_below, is_local, local_path
from statecore.queries.reading.origin import ORIGIN, origin_of, write_origin
from statecore.queries.reading.state_files import require_state
from statecore.storage import FileEntry, LocalFileStore, open_store
from statecore.storage.urls import normal_url

# With checksums beside them: `12.delta`, `12_<id>.zip`, `.12.delta.crc`, `12_<id>.zip.crc`, `.12_<id>.zip.crc.crc`.
_STATE = re.compile(r"state/\d+/\d+(?:/[^/]+)?/\.?(\d+)(?:_[^/.]+)?\.(?:delta|snapshot|zip|changelog)(?:\.crc)*")
_TABLE = re.compile(r"state/.+\.sst(?:\.crc)?")
_LOG = re.compile(rf"(?:{OFFSETS}|{COMMITS})/\.?(\d+)(?:\.crc)*")
_METADATA = re.compile(r"state/\d+/_metadata/v2/\.?(\d+)(?:\.crc)*")
_TEMPORARY = re.compile(r"(?:.*/)?[^/]*\.tmp(?:\.crc)?")


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone that was made.

    Attributes:
        path: URL of the checkpoint.
        target: URL of the clone.
        query_id: Id of the query, the same in both.
        batch: The newest committed batch.
        pending: The batch that is logged and not committed, if any.
        partitions: Number of state partitions.
        files: Number of files.
        bytes: Their size.
        linked: How many of them are hard links.

    """

    path: str
    target: str
    query_id: str
    batch: int
    pending: int | None
    partitions: int
    files: int
    bytes: int
    linked: int


def clone(checkpoint: SparkCheckpoint, target: str, report: Report = quiet, *, running: bool = False) -> Clone:
    """Clone a checkpoint.

    Args:
        checkpoint: The checkpoint; it is only read.
        target: Where to: a local path or ``s3://bucket/prefix``, where nothing is, or an empty folder.
        report: Called with the number of files done, and of all.
        running: Whether the query may be running. The clone then ends with the newest batch that was committed when
            cloning began, and omits a batch that is only logged.

    Raises:
        CheckpointRefusedError: The target exists, lies in the checkpoint or around it, or the query is running.
        CheckpointDamagedError: Files of the newest committed batch are missing.
        NotProvenError: The clone would name the checkpoint.
        StorageError: The storage fails.

    A running query is detected only if it logs or commits a batch meanwhile. It also removes files that it needs no
    more, at any time. The clone is then begun again, from what is there.

    """
    for left in reversed(range(ATTEMPTS)):
        try:
            return _clone(replace(checkpoint, pending=None) if running else checkpoint, target, report, running)
        except MissingFileError as error:
            if not left:
                raise CheckpointRefusedError(
                    f"{str(error).partition('; ')[0]} (files vanished in each of {ATTEMPTS} attempts to copy the "
                    "checkpoint); expected files that stay while they are copied; raise "
                    "spark.sql.streaming.minBatchesToRetain of the query, or stop it, then try again"
                ) from error
        except _ChangedError:
            if not left:
                raise
        except CheckpointDamagedError:
            # What is gone although the query has not gone on is damage.
            if not left or not has_changed(checkpoint):
                raise
        checkpoint = open_checkpoint(checkpoint.url)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def cloned(url: str, scratch: Path) -> Iterator[SparkCheckpoint]:
    """Yield a clone of a checkpoint; it is removed when the block ends.

    Args:
        url: The checkpoint.
        scratch: A local folder that does not exist; on the file system of the checkpoint the clone costs no space.

    Raises:
        CheckpointError: The checkpoint cannot be cloned.
        StorageError: The storage fails.

    """
    try:
        clone(open_checkpoint(url), str(scratch))
        yield open_checkpoint(str(scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def on_this_machine(checkpoint: SparkCheckpoint, folder: Path) -> SparkCheckpoint:
    """Return a checkpoint itself if it is on this machine, else a clone of it in the new folder ``folder``.

    Raises:
        CheckpointError: The checkpoint cannot be cloned.
        StorageError: The storage fails.

    """
    if is_local(checkpoint.url):
        return checkpoint
    clone(checkpoint, str(folder))
    return open_checkpoint(str(folder))


def belongs_into_clone(path: str, checkpoint: SparkCheckpoint) -> bool:
    """Return whether a file of a checkpoint, at a path relative to it, belongs into a clone of it."""
    if path in (ORIGIN, INCOMPLETE, *(f".{name}.crc" for name in (ORIGIN, INCOMPLETE))) or _TEMPORARY.fullmatch(path):
        return False
    # An attempt at the pending batch may have left the state that Spark needs next, see attempts.py.
    attempted = checkpoint.pending is not None and checkpoint.checkpoint_format == 1
    newest = (
        (_STATE, checkpoint.version + attempted),
        (_LOG, checkpoint.pending or checkpoint.batch),
        (_METADATA, checkpoint.batch),
    )
    return all(int(match[1]) <= limit for pattern, limit in newest if (match := pattern.fullmatch(path)))


def refuse_names_of(source: str, store: LocalFileStore, files: Iterable[FileEntry]) -> None:
    """Refuse a copy whose logs or metadata name the checkpoint that it was made from.

    Args:
        source: URL of the checkpoint.
        store: The copy.
        files: Files of the copy; the sources' files are not checked, because they name the sources' data.

    Raises:
        NotProvenError: A file names the checkpoint; the message says which.
        StorageError: The storage fails.

    """
    roots = {normal_url(source).partition("://")[2]}
    if is_local(source):
        # With links and without: Spark names a checkpoint as it was given.
        roots = {open_store(source).url, str(local_path(source))}
    either = b"|".join(re.escape(root.strip("/").encode()) for root in sorted(roots))
    # As a whole path, not as a part of a longer one.
    name = re.compile(rb"(?<![\w.\-/])/*(?:" + either + rb")(?![\w.\-])")
    for entry in files:
        if _is_text(entry.path) and name.search(store.read(entry.path)):
            raise NotProvenError(
                f"found {entry.path} of the copy that names {source}; expected nothing in the copy to name it; move "
                "the data of the query out of its checkpoint"
            )


class _ChangedError(CheckpointRefusedError):
    """The query wrote to the checkpoint in the meantime."""


def _clone(checkpoint: SparkCheckpoint, target: str, report: Report, running: bool) -> Clone:
    with staged(target, checkpoint.url) as place:
        files = [entry for entry in _files(checkpoint, running) if belongs_into_clone(entry.path, checkpoint)]
        require_state(checkpoint, files)
        brought = place.take(checkpoint.url, files, report)
        if not running:
            _require_unchanged(checkpoint)
        write_origin(place.store, origin_of(checkpoint))
        place.settle()
        refuse_names_of(checkpoint.url, place.store, files_below(place.url))
    return _result(checkpoint, place, brought)


def _files(checkpoint: SparkCheckpoint, running: bool) -> Iterable[FileEntry]:
    """List the files of a checkpoint so that each snapshot of RocksDB comes with its tables."""
    files = {entry.path: entry for entry in files_below(checkpoint.url)}
    if running and checkpoint.provider == ROCKSDB:
        # Spark writes tables before the snapshot that needs them. A listing takes time: it may have the snapshot alone.
        files |= {entry.path: entry for entry in files_below(checkpoint.url) if _TABLE.fullmatch(entry.path)}
    return files.values()


def _require_unchanged(checkpoint: SparkCheckpoint) -> None:
    try:
        require_unchanged(checkpoint)
    except CheckpointRefusedError as change:
        raise _ChangedError(str(change)) from None


def _is_text(path: str) -> bool:
    first, *rest = path.split("/")
    return first in (METADATA, OFFSETS, COMMITS) or (first == "state" and "_metadata" in rest)


def _result(checkpoint: SparkCheckpoint, place: Staging, brought: Brought) -> Clone:
    return Clone(
        path=checkpoint.url,
        target=place.target,
        query_id=checkpoint.query_id,
        batch=checkpoint.batch,
        pending=checkpoint.pending,
        partitions=checkpoint.partitions,
        files=brought.files,
        bytes=brought.bytes,
        linked=brought.linked,
    )
