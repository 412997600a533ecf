"""Checks that the files of a state store are whole, because Spark overlooks some damage (4.3.0).

When a damaged block ends an iterator of RocksDB, Spark takes it for the end of the rows and silently drops the rest.
Spark does not verify the checksums of changelogs when it decompresses them.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from statecore.errors import CheckpointDamagedError, MissingFileError
from statecore.queries.providers.hdfs.codecs import CODEC_SETTING, codec
from statecore.queries.providers.rocksdb.damage import cause_of
from statecore.queries.providers.rocksdb.recorded import read_snapshot, snapshot_path
from statecore.queries.reading.checkpoint import read_commit, read_offsets
from statecore.queries.reading.files import is_local, local_path, read_checked
from statecore.queries.reading.operators import read_operators

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statecore.queries.reading.stores import StateStore
    from statecore.storage import FileStore

_CODEC = "lz4"
_WITH_LINEAGE = ("v3", "v4")


def require_whole(
    spark: SparkSession, files: FileStore, store: StateStore, batch: int, checkpoint_format: int, partitions: int
) -> None:
    """Check every file that Spark reads a state store from: the newest snapshots, and changelogs since.

    Args:
        spark: A session; RocksDB's own check of tables runs in the driver's JVM.
        files: The checkpoint.
        store: The state store.
        batch: Number of the committed batch whose state is to be read.
        checkpoint_format: State checkpoint format, 1 or 2.
        partitions: Number of state partitions that have files.

    Raises:
        CheckpointDamagedError: A file is missing or not whole.
        StorageError: The storage fails.

    """
    ids = _unique_ids(files, store, batch) if checkpoint_format > 1 else None
    codec_name = read_offsets(files, batch).conf.get(CODEC_SETTING, _CODEC)
    for partition in range(partitions):
        sizes = {entry.path: entry.size for entry in files.list(store.folder(partition))}
        newest = _Version(batch + 1, None if ids is None else _named(ids, partition, files.url))
        _Partition(spark, files, store, partition, codec_name, sizes).require_version(newest)


def _unique_ids(files: FileStore, store: StateStore, batch: int) -> list[str]:
    """Return the id of a store's newest file in each partition."""
    ids = (read_commit(files, batch).unique_ids or {}).get(store.operator, ())
    stores = next(each.stores for each in read_operators(files, batch) if each.number == store.operator)
    place = [each.name for each in stores].index(store.name)
    return [partition[place] for partition in ids]


def _named(ids: list[str], partition: int, url: str) -> str:
    if partition >= len(ids):
        raise CheckpointDamagedError(
            f"found no file named for state partition {partition} in the newest commit of the checkpoint {url}; "
            "expected one for each state partition; restore the checkpoint from a clone or a backup"
        )
    return ids[partition]


@dataclass(frozen=True, slots=True)
class _Version:
    number: int
    unique_id: str | None


@dataclass(frozen=True, slots=True)
class _Partition:
    spark: SparkSession
    files: FileStore
    store: StateStore
    partition: int
    codec: str
    sizes: Mapping[str, int]

    def require_version(self, newest: _Version) -> None:
        """Check the newest snapshot and the changelogs since, from the newest on."""
        for version in self._back_from(newest):
            path = snapshot_path(self.store, self.partition, version.number, version.unique_id)
            if path in self.sizes:
                self._require_snapshot(path)
                return

    def _back_from(self, newest: _Version) -> Iterator[_Version]:
        """Yield versions back to the first, and check the changelog of each that needs it."""
        yield newest
        lineage = self._require_changelog(newest)
        older = [_Version(number, None) for number in range(1, newest.number)] if newest.unique_id is None else lineage
        for version in reversed(older):
            yield version
            self._require_changelog(version)

    def _require_changelog(self, version: _Version) -> list[_Version]:
        """Check a changelog; in checkpoint format 2, return the versions that it builds on."""
        snapshot = snapshot_path(self.store, self.partition, version.number, version.unique_id)
        path = f"{snapshot.removesuffix('.zip')}.changelog"
        if path not in self.sizes:
            raise CheckpointDamagedError(
                f"found neither {snapshot} nor {path} in the checkpoint {self.files.url}; expected one of them; "
                "restore the checkpoint from a clone or a backup"
            )
        # Decompressing verifies the checksums of the blocks.
        content = codec(self.codec).decompress(read_checked(self.files, path), path)
        try:
            return _lineage(content) if version.unique_id is not None else []
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise CheckpointDamagedError(
                f"found the changelog {path} in the checkpoint {self.files.url} that does not say which versions it "
                "builds on; expected their list; restore the checkpoint from a clone or a backup"
            ) from error

    def _require_snapshot(self, path: str) -> None:
        snapshot = read_snapshot(self.files, path)
        for table, size in () if snapshot is None else snapshot.tables:
            actual_size = self.sizes.get(table)
            if actual_size is None:
                raise self._damaged(f"no file {table}")
            if actual_size != size:
                raise self._damaged(f"{table} with {actual_size:,} bytes, and {size:,} in {path}")
            if problem := self._problem_of_table(table):
                raise self._damaged(f"{table} not whole ({problem})")

    def _problem_of_table(self, path: str) -> str | None:
        """Return RocksDB's error if a block of a table differs from its checksum; None if the table is whole."""
        if is_local(self.files.url):
            return _problem(self.spark, str(local_path(self.files.url) / path))
        with tempfile.NamedTemporaryFile(suffix=".sst") as copy:
            try:
                copy.write(self.files.read(path))
            except MissingFileError:
                return "it is gone"
            copy.flush()
            return _problem(self.spark, copy.name)

    def _damaged(self, found: str) -> CheckpointDamagedError:
        return CheckpointDamagedError(
            f"found {found} in the checkpoint {self.files.url}; expected the table that Spark wrote; restore the "
            "checkpoint from a clone or a backup"
        )


def _problem(spark: SparkSession, path: str) -> str | None:
    rocks: Any = spark.sparkContext._jvm.org.rocksdb  # type: ignore[union-attr]
    options = rocks.Options()
    table = rocks.SstFileReader(options)
    try:
        table.open(path)
        table.verifyChecksum()
    except Py4JError as error:
        return cause_of(error)
    finally:
        table.close()
        options.close()
    return None


def _lineage(content: bytes) -> list[_Version]:
    """Return the versions that a changelog builds on, oldest first.

    It begins with its version and, as JSON, the list of versions; both are strings of Java: their length in two
    bytes, big-endian, then their bytes.
    """
    (size,) = struct.unpack_from(">H", content)
    if content[2 : 2 + size].decode() not in _WITH_LINEAGE:
        raise ValueError("no lineage")
    start = 2 + size
    (size,) = struct.unpack_from(">H", content, start)
    listed = json.loads(content[start + 2 : start + 2 + size])
    return [_Version(int(each["version"]), str(each["checkpointUniqueId"])) for each in listed]
