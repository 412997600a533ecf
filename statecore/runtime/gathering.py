"""Puts neighbouring parts of a subtask's input together, so that a function over batches gets large ones.

Spark hands rows over some thousand at a time; a function over batches gets the epoch's as one, whatever they came in,
so that its outputs do not depend on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from statecore.runtime.subtask_input import Part

_ROWS = 4 * 1024 * 1024
# Columns of text address their bytes with 31 bits.
_BYTES = 1024**3


class Gathering:
    """Holds parts back until another kind follows, or until they are large.

    Args:
        whole: Whether it does; if not, every part goes on as it is.

    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._parts: list[Part] = []
        self._rows = 0
        self._bytes = 0

    def add(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Take parts, and yield what does not go together with later ones any more."""
        for part in parts:
            if not self._whole:
                yield part
                continue
            if not self._takes(part):
                yield from self.rest()
            self._parts.append(part)
            self._rows += part.rows.num_rows
            self._bytes += part.rows.nbytes

    def rest(self) -> Iterator[Part]:
        """Yield what is held back."""
        if self._parts:
            first = self._parts[0]
            yield Part(first.phase, first.broadcast, pa.concat_batches([part.rows for part in self._parts]))
        self._parts, self._rows, self._bytes = [], 0, 0

    def _takes(self, part: Part) -> bool:
        alike = not self._parts or part.phase == self._parts[0].phase
        return alike and self._rows + part.rows.num_rows <= _ROWS and self._bytes + part.rows.nbytes <= _BYTES
