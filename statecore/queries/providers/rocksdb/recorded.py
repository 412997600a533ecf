"""Reads the metadata of Spark's RocksDB snapshots without Spark.

::

    <version>[_<id>].zip          a snapshot: RocksDB's small files, and ``metadata``, which counts keys and names
    SSTs/<number>-<uuid>.sst      the tables of one or more snapshots
    <version>[_<id>].changelog    what a version changes; with changelog checkpointing only some versions are snapshots

Snapshot ``metadata`` is ``v<n>`` and a JSON object.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.files import read_checked
from statecore.queries.reading.logs import decoded, json_object
from statecore.queries.reading.stores import StateStore
from statecore.storage import FileStore

_METADATA = "metadata"
# Errors that Python's zip reader raises for damaged bytes.
_NO_ZIP = (zipfile.BadZipFile, zlib.error, struct.error, KeyError, ValueError, RuntimeError, OSError, EOFError)
_UNKNOWN = -1


class _Table(msgspec.Struct):
    dfsSstFileName: str
    sizeBytes: int


class _Snapshot(msgspec.Struct):
    sstFiles: list[_Table]
    numKeys: int
    numInternalKeys: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of one state partition.

    Attributes:
        path: Its zip file, relative to the checkpoint.
        tables: Path and size in bytes of each table.
        keys: Number of keys in the query's own column families, or None where Spark did not count.
        internal_keys: The same for column families that Spark adds, such as indexes of times to live.

    """

    path: str
    tables: tuple[tuple[str, int], ...]
    keys: int | None
    internal_keys: int | None

    @property
    def all_keys(self) -> int | None:
        """Number of keys in all column families, or None where Spark did not count."""
        return None if self.keys is None or self.internal_keys is None else self.keys + self.internal_keys


def snapshot_path(store: StateStore, partition: int, version: int, unique_id: str | None) -> str:
    """Return the path of a version's snapshot, relative to the checkpoint."""
    return f"{store.folder(partition)}/{version}{'' if unique_id is None else f'_{unique_id}'}.zip"


def recorded_keys(
    files: FileStore, store: StateStore, version: int, unique_ids: Sequence[str] | None = None
) -> tuple[int | None, ...]:
    """Return how many keys Spark recorded for each state partition, those of its own column families included.

    Args:
        files: The checkpoint.
        store: The state store.
        version: Version of the state: a batch's number + 1.
        unique_ids: Id of the version's file in each partition, in checkpoint format 2.

    Returns:
        A number for each partition; None where the version is a changelog, or where Spark did not count.

    Raises:
        CheckpointDamagedError: A snapshot is not whole.
        StorageError: The storage fails.

    """
    keys: list[int | None] = []
    for partition in range(store.partitions):
        # Without keys, all state is in partition 0, and the commit names no other.
        named = unique_ids is None or partition < len(unique_ids)
        unique_id = unique_ids[partition] if unique_ids is not None and named else None
        snapshot = read_snapshot(files, snapshot_path(store, partition, version, unique_id)) if named else None
        keys.append(None if snapshot is None else snapshot.all_keys)
    return tuple(keys)


def read_snapshot(files: FileStore, path: str) -> Snapshot | None:
    """Read a snapshot's zip file; None when there is no such file.

    Raises:
        CheckpointDamagedError: The file is not whole.
        StorageError: The storage fails.

    """
    if files.size(path) is None:
        return None
    data = read_checked(files, path)
    where = f"{path} in the checkpoint {files.url}"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            broken = archive.testzip()
            text = decoded(archive.read(_METADATA), where)
    except _NO_ZIP as error:
        raise _damaged(where, str(error)) from error
    if broken is not None:
        raise _damaged(where, f"a wrong checksum of {broken}")
    metadata = msgspec.convert(json_object(text.partition("\n")[2], where, _Snapshot), _Snapshot)
    folder = path.rpartition("/")[0]
    return Snapshot(
        path,
        tuple((f"{folder}/SSTs/{table.dfsSstFileName}", table.sizeBytes) for table in metadata.sstFiles),
        _counted(metadata.numKeys),
        _counted(metadata.numInternalKeys),
    )


def _counted(keys: int) -> int | None:
    return None if keys <= _UNKNOWN else keys


def _damaged(where: str, found: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"found {where} not whole ({found}); expected the zip file that Spark wrote; restore the checkpoint from a "
        "clone or a backup"
    )
