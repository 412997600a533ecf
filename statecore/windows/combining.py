"""Combines the records of a batch to parts of sessions, so that state is touched once for each part.

Without an order that the job asked for, the records of a key may be processed in any order. This one is as good as
others: first, one by one, the records whose own window has ended, since whether they are late, and what they fire,
depends on what is there; then all others by event time. Of these, a record within the gap after another joins the same
session, and none of them fires or is late. So their values can be folded first.

Only where folding first gives the same result: sums, minima and maxima of integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statecore.model import ReducingStateDescriptor
from statecore.state.batches import BatchKeys, Mask
from statecore.state.folding import Folding, folding
from statecore.state.process import Record
from statecore.state.session_columns import NO_PARTS, Parts
from statecore.windows.assigners import EventTimeSessionWindows
from statecore.windows.triggers import EventTimeTrigger


class SessionPart(NamedTuple):
    """Records of a key that are in one session.

    Attributes:
        start, end: Bounds of their windows, taken together.
        value: Their values, folded.

    """

    start: int
    end: int
    value: int


class Combiner:
    """Combines records to parts of sessions.

    Args:
        gap_ms: The sessions' gap.
        column: The column with the values.

    Attributes:
        fold: Folds values.

    """

    def __init__(self, gap_ms: int, column: str, fold: Folding) -> None:
        self._gap_ms, self._column, self.fold = gap_ms, column, fold

    @classmethod
    def of(cls, windows: Any, contents: Any, value: Any, trigger: Any) -> Combiner | None:
        """Return the combiner of a window function; None if its records must be added one by one."""
        if not (
            isinstance(windows, EventTimeSessionWindows)
            and isinstance(contents, ReducingStateDescriptor)
            and isinstance(value, str)
            and isinstance(trigger, EventTimeTrigger)
        ):
            return None
        fold = folding(contents.reduce, contents.type_ddl())
        return cls(windows.gaps()(None), value, fold) if fold is not None and fold.bits else None

    def combine(
        self, rows: pa.RecordBatch, keys: BatchKeys, times: pa.Array | None, watermark: int
    ) -> tuple[Mask, Parts]:
        """Return which rows must be added one by one, before the others, and the parts that the others make."""
        apart = np.ones(rows.num_rows, np.bool_)
        values = rows.column(self._column) if self._column in rows.schema.names else None
        if times is None or values is None or times.null_count or values.null_count:
            return apart, NO_PARTS
        numbers, timestamps = self.fold.column(values), times.to_numpy()
        if numbers is None:
            return apart, NO_PARTS
        chosen = np.flatnonzero(timestamps > watermark + 1 - self._gap_ms)
        chosen = chosen[np.lexsort((timestamps[chosen], keys.index[chosen]))]
        if not len(chosen):
            return apart, NO_PARTS
        key, at = keys.index[chosen], timestamps[chosen]
        begins = np.ones(len(chosen), np.bool_)
        begins[1:] = (np.diff(key) != 0) | (np.diff(at) > self._gap_ms)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(chosen)) - 1
        part = np.cumsum(begins) - 1
        folded, certain = self.fold.fold([self.fold.start] * len(first), numbers[chosen], part)
        apart[chosen[certain[part]]] = False
        first, last = first[certain], last[certain]
        return apart, Parts(key[first], at[first], at[last] + self._gap_ms, folded[certain])


def part_records(parts: Parts, keys: BatchKeys) -> Iterator[Record]:
    """Yield parts as records, to be processed one by one."""
    starts = parts.starts.tolist()
    values = map(SessionPart, starts, parts.ends.tolist(), parts.values.tolist())
    scopes = map(keys.scopes.__getitem__, parts.keys.tolist())
    return zip(scopes, keys.key_groups[parts.keys].tolist(), values, starts, strict=True)
