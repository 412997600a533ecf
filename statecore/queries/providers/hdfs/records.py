"""Parses the records of a state file; runs of records with equal sizes are parsed at once.

::

    key bytes (4 bytes, big-endian), key, value bytes, value      a row that was put
    key bytes, key, -1                                            a row that was removed
    -1                                                            the end of the file
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statecore.errors import CheckpointDamagedError
from statecore.queries.rows.byte_columns import ByteColumn

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

REMOVED = -1
END = struct.pack(">i", -1)

_SIZE = struct.Struct(">i")
_BYTES = _SIZE.size
# A run of equal records is looked for in windows that grow, so that a short run costs little.
_FIRST_WINDOW = 64
# After a run shorter than this, some records are read one by one before the next look: twice as many each time.
_SHORT_RUN = 16
_LONGEST_STEP = 1 << 14


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one or several files, oldest first.

    Attributes:
        keys: Key of each record.
        values: Value of each; its size is -1 where the record removes the key.

    """

    keys: ByteColumn
    values: ByteColumn

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice | Ints | Flags) -> Records:
        return Records(self.keys[rows], self.values[rows])

    @property
    def removals(self) -> Flags:
        """Which records remove their keys."""
        removed: Flags = self.values.sizes == REMOVED
        return removed


def parse(content: bytes, path: str) -> Records:
    """Parse the records of a file.

    Args:
        content: The file, decompressed.
        path: Its path, for errors.

    Raises:
        CheckpointDamagedError: The file is cut, holds more than its end, or a size in it cannot be true.

    """
    data = np.frombuffer(content, np.uint8)
    starts, key_sizes, value_sizes, end = _positions(content, data, path)
    if end + _BYTES != len(content):
        raise _damaged(path, end, f"{len(content) - end - _BYTES:,} bytes after the end mark")
    keys = ByteColumn(data, starts + _BYTES, key_sizes)
    return Records(keys, ByteColumn(data, starts + 2 * _BYTES + key_sizes, value_sizes))


def _positions(content: bytes, data: npt.NDArray[np.uint8], path: str) -> tuple[Ints, Ints, Ints, int]:
    """Return position, key size and value size of each record, and the position of the end mark."""
    parts: list[tuple[Ints, Ints, Ints]] = []
    at, step = 0, _SHORT_RUN
    while sizes := _sizes(content, at, path):
        key_size, value_size = sizes
        length = 2 * _BYTES + key_size + max(value_size, 0)
        count = _run(data, at, key_size, length)
        if count >= _SHORT_RUN:
            parts.append((at + length * np.arange(count), np.full(count, key_size), np.full(count, value_size)))
            at, step = at + length * count, _SHORT_RUN
        else:
            at, table = _singles(content, at, step, path)
            parts.append((table[:, 0], table[:, 1], table[:, 2]))
            step = min(step * 2, _LONGEST_STEP)
    if not parts:
        none = np.empty(0, np.int64)
        return none, none, none, at
    starts, key_sizes, value_sizes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return starts, key_sizes, value_sizes, at


def _singles(content: bytes, at: int, most: int, path: str) -> tuple[int, Ints]:
    """Read up to ``most`` records one by one; return where the next begins, and position and sizes of each."""
    records: list[tuple[int, int, int]] = []
    while len(records) < most and (sizes := _sizes(content, at, path)):
        records.append((at, *sizes))
        at += 2 * _BYTES + sizes[0] + max(sizes[1], 0)
    return at, np.array(records, np.int64)


def _sizes(content: bytes, at: int, path: str) -> tuple[int, int] | None:
    """Return the sizes of key and value of the record at a position; None at the end mark."""
    left = len(content) - at
    if left < _BYTES:
        raise _damaged(path, at, "the end of the file without an end mark")
    (key_size,) = _SIZE.unpack_from(content, at)
    if key_size == REMOVED:
        return None
    if not 0 <= key_size <= left - 2 * _BYTES:
        raise _damaged(path, at, f"a key of {key_size:,} bytes, and {left:,} bytes until the end")
    (value_size,) = _SIZE.unpack_from(content, at + _BYTES + key_size)
    if not REMOVED <= value_size <= left - 2 * _BYTES - key_size:
        raise _damaged(path, at, f"a value of {value_size:,} bytes, and {left:,} bytes until the end")
    return key_size, value_size


def _run(data: npt.NDArray[np.uint8], at: int, key_size: int, length: int) -> int:
    """Return how many records from a position on have the sizes of the first."""
    most = (len(data) - at) // length
    shape, steps = (most, _BYTES), (length, 1)
    view: Any = np.lib.stride_tricks.as_strided
    key_heads = view(data[at:], shape, steps)
    value_heads = view(data[at + _BYTES + key_size :], shape, steps)
    done, window = 0, _FIRST_WINDOW
    while done < most:
        part = slice(done, done + window)
        same = (key_heads[part] == key_heads[0]).all(axis=1) & (value_heads[part] == value_heads[0]).all(axis=1)
        if not same.all():
            return done + int(same.argmin())
        done, window = min(done + window, most), window * 4
    return most


def serialise(keys: ByteColumn, values: ByteColumn) -> npt.NDArray[np.uint8]:
    """Return the bytes of records that put rows."""
    key_matrix, value_matrix = keys.matrix(), values.matrix()
    if key_matrix is None or value_matrix is None:
        columns = (_heads(keys.sizes), keys.to_arrow(), _heads(values.sizes), values.to_arrow())
        return ByteColumn.of(pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))).data
    width = key_matrix.shape[1]
    out = np.empty((len(keys), 2 * _BYTES + width + value_matrix.shape[1]), np.uint8)
    out[:, :_BYTES] = np.frombuffer(_SIZE.pack(width), np.uint8)
    out[:, _BYTES : _BYTES + width] = key_matrix
    out[:, _BYTES + width : 2 * _BYTES + width] = np.frombuffer(_SIZE.pack(value_matrix.shape[1]), np.uint8)
    out[:, 2 * _BYTES + width :] = value_matrix
    return out.reshape(-1)


def _heads(sizes: Ints) -> pa.Array:
    """Return sizes as a column of four bytes each."""
    starts = _BYTES * np.arange(len(sizes), dtype=np.int64)
    return ByteColumn(sizes.astype(">i4").view(np.uint8), starts, np.full(len(sizes), _BYTES)).to_arrow()


def _damaged(path: str, at: int, found: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"found {found} at byte {at:,} of what {path} holds; expected records and an end mark, as Spark writes them; "
        "restore the checkpoint from a clone or a backup"
    )
