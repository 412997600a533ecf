"""Columns of bytes that lie in one buffer, described by positions, without copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_LARGEST_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """A value of some bytes for each row.

    Attributes:
        data: The buffer, of bytes.
        starts: Position in the buffer of each value.
        sizes: Number of bytes of each value.

    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice | Ints | Flags) -> ByteColumn:
        return ByteColumn(self.data, self.starts[rows], self.sizes[rows])

    @classmethod
    def of(cls, column: pa.Array) -> ByteColumn:
        """Describe an Arrow column of binary values without nulls; one of the type ``binary`` is not copied."""
        # Spark sends large_binary where its setting useLargeVarTypes is on.
        column = column.cast(pa.binary())
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        first = int(ends[0])
        return cls(held[first : int(ends[-1])], ends[:-1] - first, np.diff(ends))

    @property
    def width(self) -> int | None:
        """Number of bytes of every value; None where they differ, or where there are none."""
        return int(self.sizes[0]) if len(self) and (self.sizes == self.sizes[0]).all() else None

    def matrix(self) -> npt.NDArray[np.uint8] | None:
        """Return the values as the rows of a matrix that shares the buffer; None where they are not evenly spaced."""
        if not self.width:
            return None
        steps = np.diff(self.starts)
        step = int(steps[0]) if len(steps) else self.width
        if step < 0 or (steps != step).any():
            return None
        shape = (len(self), self.width)
        return np.lib.stride_tricks.as_strided(self.data[int(self.starts[0]) :], shape, (step, 1), writeable=False)

    def compact(self) -> ByteColumn:
        """Return the values one behind another in a buffer of their own."""
        return ByteColumn.of(self.to_arrow())

    def to_arrow(self, valid: Flags | None = None) -> pa.Array:
        """Return the values as an Arrow column of the type ``binary``, null where not ``valid``."""
        if valid is not None and valid.all():
            valid = None
        matrix = self.matrix() if valid is None else None
        if matrix is not None:
            offsets = np.arange(0, matrix.size + 1, matrix.shape[1], dtype=np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
            return pa.Array.from_buffers(pa.binary(), len(self), buffers)
        # Arrow cuts the buffer into values and the gaps between them, and copies the values out.
        starts, ends = self.starts, self.starts + self.sizes
        if valid is not None:
            ends = np.maximum.accumulate(np.where(valid, ends, 0))
            starts = np.where(valid, starts, ends)
        if len(self) == 0 or (ends[:-1] > starts[1:]).any() or ends[-1] - starts[0] > _LARGEST_OFFSET:
            return self._one_by_one(valid)
        cuts = np.stack((starts, ends), axis=1).reshape(-1) - starts[0]
        data = pa.py_buffer(self.data[int(starts[0]) : int(ends[-1])])
        pieces = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts.astype(np.int32)), data])
        wanted = np.arange(0, len(cuts), 2)
        return pieces.take(pa.array(wanted, mask=None if valid is None else ~valid))

    def _one_by_one(self, valid: Flags | None) -> pa.Array:
        return pa.array(self.values() if valid is None else self._or_none(valid), pa.binary())

    def _or_none(self, valid: Flags) -> Iterator[Any]:
        return (value if is_valid else None for value, is_valid in zip(self.values(), valid, strict=True))

    def values(self) -> Iterator[bytes]:
        """Yield the values."""
        held = self.data.data
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield bytes(held[start : start + size])
