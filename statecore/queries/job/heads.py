"""The heads of a query: the checkpoints that it has resumed from, in the job's store.

::

    <store>/heads/00000001.json       the checkpoint that the query begins with
    <store>/heads/00000002.json       its copy with another number of state partitions
    <store>/heads/00000002.started    a driver has started the query on it

A driver resumes from the newest state that the heads name, whatever the catalog says: that may be lost, or restored
from a backup. Of two processes that append a head at once, one wins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import msgspec

from statecore.errors import AlreadyExistsError, CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.job.new_checkpoint import is_copied
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint, query_id
from statecore.queries.reading.origin import read_origin
from statecore.storage import open_store
from statecore.storage.urls import normal_url

_FOLDER = "heads"


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint that a query resumes from.

    Attributes:
        number: Its number, from 1.
        checkpoint: URL of the checkpoint.
        is_base: Whether batches of earlier heads do not matter: the first head, or another start that a user asked for.
        query_id: Id of the query; None before its first batch.
        after: Newest committed batch when the head was appended; None before the first.
        generation: Newest generation of the job when the head was appended.
        reason: Why it was appended.
        time_ms: When, in ms since 1970-01-01 UTC.

    """

    number: int
    checkpoint: str
    is_base: bool
    query_id: str | None
    after: int | None
    generation: int
    reason: str
    time_ms: int


_DECODER = msgspec.json.Decoder(Head)


class Heads:
    """The heads of the query in one job's store, as they are when this is created.

    Args:
        store: URL of the job's store.

    Raises:
        CheckpointDamagedError: A head cannot be read; also of each method.
        StorageError: The storage fails; also of each method.

    """

    def __init__(self, store: str) -> None:
        self._files = open_store(store)
        paths = (entry.path for entry in self._files.list(_FOLDER) if entry.path.endswith(".json"))
        self._newest_first: list[Callable[[], Head]] = [
            partial(self._read, path) for path in sorted(paths, reverse=True)
        ]
        self.newest = next(iter(self), None)
        """The newest head; None before the first."""

    def __iter__(self) -> Iterator[Head]:
        """Yield the heads, newest first."""
        return (read() for read in self._newest_first)

    def append(self, checkpoint: str, reason: str, generation: int, *, is_base: bool = False) -> Head:
        """Append a head after the newest one, and return it; the newest itself if it is of this checkpoint.

        Raises:
            CheckpointRefusedError: Another process has appended a head since this was created.

        """
        newest = self.newest
        if newest is not None and newest.checkpoint == checkpoint:
            return newest
        store = open_store(normal_url(checkpoint))
        committed, logged = newest_batches(store)
        head = Head(
            number=1 if newest is None else newest.number + 1,
            checkpoint=checkpoint,
            is_base=is_base or newest is None,
            query_id=None if logged is None else query_id(store),
            after=committed,
            generation=generation,
            reason=reason,
            time_ms=time.time_ns() // 1_000_000,
        )
        try:
            self._files.put_if_absent(_path(head.number), msgspec.json.format(msgspec.json.encode(head), indent=1))
        except AlreadyExistsError:
            raise CheckpointRefusedError(
                f"found head {head.number} in {self._files.url} appended by another process; expected to append "
                f"{checkpoint} after head {head.number - 1}; wait until that process has ended, then try again"
            ) from None
        self._newest_first.insert(0, lambda: head)
        self.newest = head
        return head

    def mark_started(self, head: Head) -> None:
        """Record that a driver is about to start the query on a head's checkpoint."""
        with suppress(AlreadyExistsError):
            self._files.put_if_absent(_started(head.number), b"")

    def has_begun(self, head: Head) -> bool:
        """Return whether a sink may have a batch that the query computed on this head's checkpoint.

        A copy has the batch that was logged and not committed when it was made. Once the query was started on the copy,
        a sink may have the batch from there.

        Raises:
            CheckpointDamagedError: The checkpoint has lost its batches, or a file of it is not whole.

        """
        store = open_store(normal_url(head.checkpoint))
        origin, (_, logged) = read_origin(store), newest_batches(store)
        if logged is None:
            if head.after is None:
                return False
            raise CheckpointDamagedError(
                f"found no batch in {head.checkpoint}; expected batch {head.after} or a later one, because the query "
                "has resumed from there; restore it from a backup, or begin elsewhere: `statecore start --from … "
                "--roll-back`"
            )
        if origin is None or logged > (origin.batch if origin.pending is None else origin.pending):
            return True
        return origin.pending is not None and self._files.size(_started(head.number)) is not None

    def with_newest_state(self) -> list[Head]:
        """Return the heads with the newest state, oldest first: the last one begun, and its copies since.

        Raises:
            CheckpointError: A checkpoint cannot be read.

        """
        later: list[Head] = []
        for head in self:
            if self.has_begun(head) or head.is_base:
                return [head, *(each for each in reversed(later) if is_copied(head.checkpoint, each.checkpoint))]
            later.append(head)
        return []

    def fitting(self, partitions: int) -> Head | None:
        """Return the newest head with the newest state and so many state partitions, or without a batch; None if none.

        Raises:
            CheckpointError: A checkpoint cannot be read.

        """
        return next(
            (head for head in reversed(self.with_newest_state()) if _partitions(head) in (None, 0, partitions)), None
        )

    def _read(self, path: str) -> Head:
        try:
            return _DECODER.decode(self._files.read(path))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CheckpointDamagedError(
                f"found {self._files.url.rstrip('/')}/{path}, which is no head of a query ({error}); expected one "
                "written by statecore; restore the file from a backup"
            ) from error


def _partitions(head: Head) -> int | None:
    """Return the number of state partitions of a head's checkpoint; None before its first batch."""
    committed, _ = newest_batches(open_store(normal_url(head.checkpoint)))
    return None if committed is None else open_checkpoint(head.checkpoint).partitions


def _path(number: int) -> str:
    return f"{_FOLDER}/{number:08d}.json"


def _started(number: int) -> str:
    return f"{_FOLDER}/{number:08d}.started"
