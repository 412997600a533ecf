"""One state partition of a store: the files that make a version up, and their rows.

A file ``<version>.delta`` holds what a batch changed, ``<version>.snapshot`` all rows after it. A version is the newest
snapshot that is not newer, and all deltas after that; without any snapshot, all deltas from the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.hdfs.codecs import CODEC_SETTING, Codec, codec
from statecore.queries.providers.hdfs.newest import newest_of_each_key
from statecore.queries.providers.hdfs.records import END, Records, parse, serialise
from statecore.queries.providers.hdfs.row_checksums import ROW_CHECKSUM_SETTING, checked
from statecore.queries.reading.files import read_checked
from statecore.queries.rows.byte_columns import ByteColumn
from statecore.storage import FileStore

_SNAPSHOT = re.compile(r"(\d+)\.snapshot")
# Spark's default if the offset log has no setting.
_DEFAULT_CODEC = "lz4"


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The state files of one state partition.

    Attributes:
        store: The checkpoint.
        folder: Folder of the partition's files, relative to the checkpoint.
        codec: How the files are compressed.
        has_row_checksums: Whether each row has a checksum.

    """

    store: FileStore
    folder: str
    codec: Codec
    has_row_checksums: bool

    @classmethod
    def of(cls, store: FileStore, folder: str, conf: Mapping[str, str]) -> StateFiles:
        """Describe the files by the settings in an offset log; CheckpointRefusedError for a codec not covered."""
        name = conf.get(CODEC_SETTING, _DEFAULT_CODEC)
        return cls(store, folder, codec(name), conf.get(ROW_CHECKSUM_SETTING, "false").lower() == "true")

    def exist(self) -> bool:
        """Return whether there are state files."""
        return any(self._is_own(entry.path) for entry in self.store.list(self.folder))

    def load(self, version: int) -> Records:
        """Return the rows of a version, each key once.

        Values keep the checksum that they may have in front.

        Raises:
            CheckpointDamagedError: A file is missing, not whole, or differs from a checksum.
            StorageError: The storage fails.

        """
        if version == 0:
            return _nothing()
        snapshot = self._newest_snapshot(version)
        paths = [f"{self.folder}/{snapshot}.snapshot"] if snapshot else []
        deltas = [f"{self.folder}/{each}.delta" for each in range(snapshot + 1, version + 1)]
        loaded = [self._read(path) for path in paths + deltas]
        if not deltas:
            self._require_no_removals(loaded[0], paths[0])
            return loaded[0]
        return newest_of_each_key(loaded)

    def save(self, version: int, contents: list[memoryview]) -> int:
        """Write a version as a snapshot, durably, and return the size of its file in bytes.

        Args:
            version: The version; no file of it exists yet.
            contents: Records, in the form of ``serialise``.

        Raises:
            StorageError: The storage fails.

        """
        file = self.codec.compress(memoryview(b"".join((*contents, END))))
        self.store.write(f"{self.folder}/{version}.snapshot", file)
        return len(file)

    def _newest_snapshot(self, version: int) -> int:
        """Return the version of the newest snapshot up to a version; 0 where there is none."""
        names = (entry.path.removeprefix(f"{self.folder}/") for entry in self.store.list(self.folder))
        versions = [int(match[1]) for name in names if (match := _SNAPSHOT.fullmatch(name))]
        return max((each for each in versions if each <= version), default=0)

    def _read(self, path: str) -> Records:
        records = parse(self.codec.decompress(read_checked(self.store, path), path), path)
        return checked(records, path) if self.has_row_checksums else records

    def _is_own(self, path: str) -> bool:
        return re.fullmatch(r"\d+\.(?:delta|snapshot)", path.removeprefix(f"{self.folder}/")) is not None

    def _require_no_removals(self, records: Records, path: str) -> None:
        if records.removals.any():
            raise CheckpointDamagedError(
                f"found removed rows in {path}; expected a snapshot to hold rows alone; restore the checkpoint from a "
                "clone or a backup"
            )


def _nothing() -> Records:
    none = np.empty(0, np.int64)
    column = ByteColumn(np.empty(0, np.uint8), none, none)
    return Records(column, column)


__all__ = ["StateFiles", "serialise"]
