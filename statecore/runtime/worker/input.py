"""The input of a subtask: splits Arrow batches into records, broadcast records and forwarded commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statecore.model import key_encoder
from statecore.model.arrow_values import from_arrow
from statecore.model.key_hash import KeyEncoder
from statecore.model.values import row_class
from statecore.runtime.messages import (
    AFTER_WATERMARK,
    ATTEMPT,
    BROADCAST,
    COMMIT,
    KEY_GROUP,
    MAIN,
    PHASE,
    TIMESTAMP,
    OperatorSpec,
)
from statecore.state.batches import BatchKeys, records_by_key
from statecore.state.process import Record


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one kind.

    Attributes:
        phase: Whether they were produced before or after the watermark advanced.
        broadcast: Whether they belong to the broadcast input.
        rows: The rows.

    """

    phase: int
    broadcast: bool
    rows: pa.RecordBatch


class SubtaskInput:
    """Splits the batches of a subtask, in order.

    Args:
        spec: The operator.
        watermark_ms: The watermark under which the records of sources are processed; None before the first one.

    Attributes:
        read_from: Attempts of other operators that this subtask has read from.
        rows, broadcast_rows: Records so far.
        late_rows, late_broadcast_rows: Source records whose event time the watermark had reached.
        max_event_time_ms, max_broadcast_event_time_ms: The newest event time so far among the records of sources.

    """

    def __init__(self, spec: OperatorSpec, watermark_ms: int | None) -> None:
        self._spec = spec
        self._watermark_ms = watermark_ms
        self._main: _Rows | None = None
        self._broadcast: _Rows | None = None
        self.read_from: set[int] = set()
        self.rows = 0
        self.broadcast_rows = 0
        self.late_rows = 0
        self.late_broadcast_rows = 0
        self.max_event_time_ms: int | None = None
        self.max_broadcast_event_time_ms: int | None = None

    def commits(self, batch: pa.RecordBatch) -> list[str]:
        """Return the commits of other operators in a batch; note the attempts that produced its rows."""
        if COMMIT not in batch.schema.names:
            return []
        self.read_from.update(pc.unique(batch.column(ATTEMPT)).drop_null().to_pylist())
        return [commit for commit in batch.column(COMMIT).to_pylist() if commit is not None]

    def parts(self, batch: pa.RecordBatch) -> Iterator[Part]:
        """Yield the records of a batch, without marker rows and commits."""
        is_main = batch.column(MAIN).is_valid()
        if BROADCAST not in batch.schema.names and PHASE not in batch.schema.names:
            # The common case: one source, and every row is a record, except the marker of a subtask without records.
            rows = batch if batch.column(MAIN).null_count == 0 else batch.filter(is_main)
            if rows.num_rows:
                yield Part(AFTER_WATERMARK, False, rows)
            return
        is_broadcast = pa.array(np.zeros(batch.num_rows, bool))
        if BROADCAST in batch.schema.names:
            is_broadcast = batch.column(BROADCAST).is_valid()
        rows = batch.append_column("_broadcast", is_broadcast).filter(pc.or_(is_main, is_broadcast))
        yield from _runs(rows)

    def records(self, part: Part) -> Iterator[Record]:
        """Yield the records of a part of the main input, grouped by key unless the job requests an order.

        Grouped records find their key's state in the CPU's cache: memory access is the main cost of a keyed function.
        """
        spec = self._spec
        if spec.key_fields and not spec.ordered:
            rows, by_key, stamps = self.batch(part)
            assert by_key is not None
            return records_by_key(rows, by_key, stamps)
        if self._main is None:
            spec = self._spec
            keys = [field.name for field in spec.key_fields]
            self._main = _Rows(part.rows.column(MAIN).type, spec.event_time, keys)
            self._encode: KeyEncoder | None = key_encoder([f.type for f in spec.key_fields]) if keys else None
        records = part.rows.column(MAIN)
        times, newest = self._main.times(part.rows, records)
        self.rows += part.rows.num_rows
        self.late_rows += self._main.late(records, self._watermark_ms)
        self.max_event_time_ms = _newer(self.max_event_time_ms, newest)
        keys_of, values = self._main.keys_and_values(records)
        if self._encode is None:
            return zip(repeat(()), repeat(-1), values, times)
        groups = part.rows.column(KEY_GROUP).to_pylist()
        return zip(map(self._encode, keys_of), groups, values, times, strict=True)

    def batch(self, part: Part) -> tuple[pa.RecordBatch, BatchKeys | None, pa.Array | None]:
        """Return the records of a part of the main input as columns, their keys and their event times."""
        spec, records = self._spec, part.rows.column(MAIN)
        rows = pa.RecordBatch.from_arrays(records.flatten(), names=[field.name for field in records.type])
        times = _event_times(part.rows, rows, spec.event_time)
        self.rows += rows.num_rows
        if spec.event_time is not None:
            if self._watermark_ms is not None:
                self.late_rows += pc.sum(pc.less_equal(times, self._watermark_ms)).as_py() or 0
            self.max_event_time_ms = _newer(self.max_event_time_ms, pc.max(times).as_py())
        if not spec.key_fields:
            return rows, None, times
        key_types = [field.type for field in spec.key_fields]
        fields = rows.select([field.name for field in spec.key_fields])
        return rows, BatchKeys.of(fields, key_types, part.rows.column(KEY_GROUP)), times

    def broadcast_records(self, part: Part) -> Iterator[tuple[Any, int | None]]:
        """Yield the records of a part of the broadcast input, with their event time."""
        if self._broadcast is None:
            self._broadcast = _Rows(part.rows.column(BROADCAST).type, self._spec.broadcast_event_time, [])
        records = part.rows.column(BROADCAST)
        times, newest = self._broadcast.times(part.rows, records)
        self.broadcast_rows += part.rows.num_rows
        self.late_broadcast_rows += self._broadcast.late(records, self._watermark_ms)
        self.max_broadcast_event_time_ms = _newer(self.max_broadcast_event_time_ms, newest)
        _, values = self._broadcast.keys_and_values(records)
        return zip(values, times, strict=False)


class _Rows:
    """Converts the rows of one input to Python values."""

    def __init__(self, row_type: pa.StructType, event_time: str | None, keys: list[str]) -> None:
        names = [row_type.field(i).name for i in range(row_type.num_fields)]
        self._make = row_class(tuple(names))
        self._keys = [names.index(key) for key in keys]
        self._event_time = None if event_time is None else names.index(event_time)

    def keys_and_values(self, records: pa.StructArray) -> tuple[Iterator[tuple[Any, ...]], Iterator[Any]]:
        columns = [from_arrow(column) for column in records.flatten()]
        return zip(*(columns[i] for i in self._keys), strict=True), map(self._make, zip(*columns, strict=True))

    def times(self, rows: pa.RecordBatch, records: pa.StructArray) -> tuple[Iterable[int | None], int | None]:
        """Return the event time of each row in ms, and the newest one of a source."""
        if self._event_time is not None:
            # Rounding down is also right before 1970.
            times = [None if us is None else us // 1000 for us in self._event_times_us(records).to_pylist()]
            return times, max((time for time in times if time is not None), default=None)
        if TIMESTAMP in rows.schema.names:
            return rows.column(TIMESTAMP).to_pylist(), None
        return repeat(None, rows.num_rows), None

    def late(self, records: pa.StructArray, watermark_ms: int | None) -> int:
        """Return how many rows of a source are not after the watermark."""
        if self._event_time is None or watermark_ms is None:
            return 0
        in_time_us = max((watermark_ms + 1) * 1000, -(2**63))
        return pc.sum(pc.less(self._event_times_us(records), in_time_us)).as_py() or 0

    def _event_times_us(self, records: pa.StructArray) -> pa.Int64Array:
        assert self._event_time is not None
        # Arrow counts a timestamp in microseconds.
        return records.flatten()[self._event_time].cast(pa.int64())


def _event_times(part: pa.RecordBatch, records: pa.RecordBatch, event_time: str | None) -> pa.Array | None:
    """Return the event time of each row in ms; None when none can have one."""
    if event_time is None:
        return part.column(TIMESTAMP) if TIMESTAMP in part.schema.names else None
    column = records.column(event_time).cast(pa.int64())
    # Arrow counts a timestamp in microseconds, and rounding down is also right before 1970.
    return pa.array(column.fill_null(0).to_numpy() // 1000, mask=column.is_null().to_numpy(zero_copy_only=False))


def _runs(rows: pa.RecordBatch) -> Iterator[Part]:
    if not rows.num_rows:
        return
    broadcast = rows.column("_broadcast").to_numpy(zero_copy_only=False)
    phases = np.full(rows.num_rows, AFTER_WATERMARK)
    if PHASE in rows.schema.names:
        phases = pc.fill_null(rows.column(PHASE), AFTER_WATERMARK).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero((np.diff(phases) != 0) | (np.diff(broadcast.astype(int)) != 0)) + 1), rows.num_rows]
    for start, end in pairwise(starts):
        yield Part(int(phases[start]), bool(broadcast[start]), rows.slice(start, end - start))


def _newer(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)
