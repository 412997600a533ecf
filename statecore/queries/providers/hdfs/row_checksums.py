"""Checksums of single rows, which Spark 4.1 and newer can write into state files.

::

    row that was put       key, and as its value: CRC-32C of key and value (4 bytes, little-endian), value
    row that was removed   as its key: CRC-32C of the key, key

A key and its value keep their checksum in every state partition.
"""

from __future__ import annotations

from collections.abc import Iterator

import google_crc32c
import numpy as np

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.hdfs.records import Records
from statecore.queries.rows.byte_columns import ByteColumn

ROW_CHECKSUM_SETTING = "spark.sql.streaming.stateStore.rowChecksum.enabled"

_BYTES = 4


def checked(records: Records, path: str) -> Records:
    """Verify the checksum of each record.

    Returns:
        The records, with keys alone as the keys of removals; values still have their checksums.

    Raises:
        CheckpointDamagedError: A record differs from its checksum, or has none.

    """
    removals = records.removals
    keys = records.keys
    short = np.where(removals, keys.sizes, records.values.sizes) < _BYTES
    if short.any():
        raise _damaged(path, int(short.argmax()), "without a checksum")
    # What a removal has in front of its key, other records have in front of their value.
    moved = np.where(removals, _BYTES, 0)
    bare = ByteColumn(keys.data, keys.starts + moved, keys.sizes - moved)
    for row, (key, value, is_removal) in enumerate(zip(keys.values(), _contents(records), removals, strict=True)):
        stored, expected = (
            (key, google_crc32c.value(key[_BYTES:]))
            if is_removal
            else (
                value,
                google_crc32c.extend(google_crc32c.value(key), value[_BYTES:]),
            )
        )
        if int.from_bytes(stored[:_BYTES], "little") != expected:
            raise _damaged(path, row, "that differs from its checksum")
    return Records(bare, records.values)


def _contents(records: Records) -> Iterator[bytes]:
    return ByteColumn(records.values.data, records.values.starts, np.maximum(records.values.sizes, 0)).values()


def _damaged(path: str, row: int, what: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"found record {row:,} of {path} {what}; expected the rows that Spark wrote, with checksums as "
        f"{ROW_CHECKSUM_SETTING} in the offset log says; restore the checkpoint from a clone or a backup"
    )
