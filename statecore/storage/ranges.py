"""Random-access reads from storage that serves byte ranges."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# About the number of bytes that storage sends within the latency of a request.
_READ_AHEAD_BYTES = 256 * 1024


class RangeReader(io.RawIOBase):
    """A file object that fetches only the ranges that are read.

    Every read sends at most one request: a large read fetches exactly its range, a small one reads ahead.

    Args:
        fetch: Returns the bytes from the first offset (inclusive) to the second (exclusive).
        size: Size of the whole file in bytes.

    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._position = 0
        self._ahead = b""
        self._ahead_from = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the offset of the next read; fetches nothing."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer up to the end of the file."""
        view = memoryview(buffer).cast("B")
        data = self._read(self._position, min(self._position + len(view), self._size))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _read(self, start: int, end: int) -> bytes | memoryview:
        if start >= end:
            return b""
        if start < self._ahead_from or end > self._ahead_from + len(self._ahead):
            if end - start >= _READ_AHEAD_BYTES:
                return self._fetch(start, end)
            self._ahead = self._fetch(start, min(start + _READ_AHEAD_BYTES, self._size))
            self._ahead_from = start
        return memoryview(self._ahead)[start - self._ahead_from : end - self._ahead_from]
