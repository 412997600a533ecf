"""The file in the root of a copy that says where the copy came from. Spark does not look at it."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError, MissingFileError
from statecore.queries.reading.checkpoint import SparkCheckpoint
from statecore.release import RELEASE
from statecore.storage import FileStore, open_store
from statecore.storage.urls import normal_url

ORIGIN = "statecore-origin.json"
_VERSION = 1


class Origin(msgspec.Struct, frozen=True):
    """Where a copy of a checkpoint came from.

    Attributes:
        path: URL of the checkpoint that was copied.
        query_id: Id of its query.
        batch: Its newest committed batch.
        pending: The batch that was logged and not committed, if any.
        action: What was done.
        partitions_before: Number of state partitions there.
        partitions_after: Number of state partitions here.
        release: Release of statecore.
        time_ms: When, in ms since 1970-01-01 UTC.
        version: Version of this file.

    """

    path: str
    query_id: str
    batch: int
    pending: int | None
    action: Literal["clone", "rescale"]
    partitions_before: int
    partitions_after: int
    release: str
    time_ms: int
    version: int = _VERSION


def origin_of(checkpoint: SparkCheckpoint, partitions: int | None = None) -> Origin:
    """Return the origin of a copy: of a rescaled copy if ``partitions`` is given, else of a clone."""
    return Origin(
        path=checkpoint.url,
        query_id=checkpoint.query_id,
        batch=checkpoint.batch,
        pending=checkpoint.pending,
        action="clone" if partitions is None else "rescale",
        partitions_before=checkpoint.partitions,
        partitions_after=checkpoint.partitions if partitions is None else partitions,
        release=RELEASE,
        time_ms=time.time_ns() // 1_000_000,
    )


def write_origin(store: FileStore, origin: Origin) -> None:
    """Write the origin into the root of a copy."""
    store.write(ORIGIN, msgspec.json.format(msgspec.json.encode(origin), indent=2) + b"\n")


def read_origin(store: FileStore) -> Origin | None:
    """Read the origin of a copy; None for a checkpoint that is no copy.

    Raises:
        CheckpointDamagedError: The file is not whole.
        CheckpointRefusedError: Its version is unknown.
        StorageError: The storage fails.

    """
    try:
        data = store.read(ORIGIN)
    except MissingFileError:
        return None
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != _VERSION:
            raise CheckpointRefusedError(
                f"found {ORIGIN} of version {version} in {store.url}; expected version {_VERSION}; use the release of "
                "statecore that wrote it"
            )
        return msgspec.json.decode(data, type=Origin)
    except msgspec.MsgspecError as error:
        raise CheckpointDamagedError(
            f"found {ORIGIN} in {store.url} that cannot be read ({error}); expected what statecore wrote; make the "
            "copy again"
        ) from error


def is_copy(url: str) -> bool:
    """Return whether a URL is that of a checkpoint that statecore has copied, such as a savepoint of a query.

    Raises:
        CheckpointError: The copy's origin cannot be read.
        StorageError: The storage fails.

    """
    return read_origin(open_store(normal_url(url))) is not None


class _Version(msgspec.Struct):
    version: int
