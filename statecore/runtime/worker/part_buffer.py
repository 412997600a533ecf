"""Concatenates consecutive parts of a subtask's input; Spark delivers rows a few thousand at a time.

A batch function gets the rows of an epoch as one batch, so its outputs do not depend on Spark's batches. For a function
over records, larger parts can be grouped by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from statecore.functions import BatchProcessFunction
from statecore.runtime.messages import OperatorSpec
from statecore.runtime.worker.input import Part

# Text columns address their bytes with 31 bits.
_BATCH = (4 * 1024**2, 1024**3)
_TO_GROUP = (256 * 1024, 128 * 1024**2)


class PartBuffer:
    """Buffers parts until a part of another kind follows, or until they are large."""

    def __init__(self, spec: OperatorSpec) -> None:
        takes_batches = isinstance(spec.function, BatchProcessFunction)
        self._most_rows, self._most_bytes = _BATCH if takes_batches else _TO_GROUP
        self._passes = not takes_batches and (spec.ordered or not spec.key_fields)
        self._parts: list[Part] = []
        self._rows = 0
        self._bytes = 0

    def add(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Add parts; yield those that are complete."""
        for part in parts:
            if self._passes:
                yield part
                continue
            if not self._fits(part):
                yield from self.flush()
            self._parts.append(part)
            self._rows += part.rows.num_rows
            self._bytes += part.rows.nbytes

    def flush(self) -> Iterator[Part]:
        """Yield the buffered parts as one."""
        if self._parts:
            first = self._parts[0]
            yield Part(first.phase, first.input, pa.concat_batches([part.rows for part in self._parts]))
        self._parts, self._rows, self._bytes = [], 0, 0

    def _fits(self, part: Part) -> bool:
        if not self._parts:
            return True
        first = self._parts[0]
        alike = (part.phase, part.input) == (first.phase, first.input)
        fits = self._rows + part.rows.num_rows <= self._most_rows and self._bytes + part.rows.nbytes <= self._most_bytes
        return alike and fits
