"""The input of a subtask: splits Arrow batches into the records of its inputs and forwarded commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise, repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statecore.model import key_encoder
from statecore.model.arrow_values import from_arrow
from statecore.model.values import row_class
from statecore.runtime.messages import (
    AFTER_WATERMARK,
    ATTEMPT,
    COMMIT,
    KEY_GROUP,
    MEMBER,
    PHASE,
    TIMESTAMP,
    OperatorSpec,
    StreamRead,
)
from statecore.state.batches import BatchKeys, records_by_key
from statecore.state.process import Record

# In place of the number of an input: rows of both, in one order.
MERGED = -1
_INPUT = "_input"


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one kind.

    Attributes:
        phase: Whether they were produced before or after the watermark advanced.
        input: The number of the input that they belong to, or ``MERGED``.
        rows: The rows.

    """

    phase: int
    input: int
    rows: pa.RecordBatch


class SubtaskInput:
    """Splits the batches of a subtask, in order.

    Args:
        spec: The operator.
        watermark_ms: The watermark under which the records of sources are processed; None before the first one.

    Attributes:
        read_from: Attempts of other operators that this subtask has read from.

    """

    def __init__(self, spec: OperatorSpec, watermark_ms: int | None) -> None:
        self._spec = spec
        self._watermark_ms = watermark_ms
        self._key_types = [field.type for field in spec.key_fields]
        self._encode = key_encoder(self._key_types)
        self._read = [[StreamRead() for _ in each.event_times] for each in spec.inputs]
        self.read_from: set[int] = set()

    @property
    def read(self) -> tuple[StreamRead, ...]:
        """What was read so far from each stream, input by input."""
        return tuple(chain.from_iterable(self._read))

    def commits(self, batch: pa.RecordBatch) -> list[str]:
        """Return the commits of other operators in a batch; note the attempts that produced its rows."""
        if COMMIT not in batch.schema.names:
            return []
        self.read_from.update(pc.unique(batch.column(ATTEMPT)).drop_null().to_pylist())
        return [commit for commit in batch.column(COMMIT).to_pylist() if commit is not None]

    def parts(self, batch: pa.RecordBatch) -> Iterator[Part]:
        """Yield the records of a batch, without marker rows and commits."""
        columns = [batch.column(each.column) for each in self._spec.inputs]
        if len(columns) == 1 and PHASE not in batch.schema.names:
            # The common case: one source, and every row is a record, except the marker of a subtask without records.
            rows = batch if columns[0].null_count == 0 else batch.filter(columns[0].is_valid())
            if rows.num_rows:
                yield Part(AFTER_WATERMARK, 0, rows)
            return
        is_second = columns[-1].is_valid() if len(columns) > 1 else pa.array(np.zeros(batch.num_rows, bool))
        rows = batch.append_column(_INPUT, is_second.cast(pa.int8()))
        yield from _runs(rows.filter(pc.or_(columns[0].is_valid(), is_second)), merged=self._spec.merged)

    def records(self, part: Part) -> Iterator[Record]:
        """Yield the records of a part, grouped by key unless the job requests an order.

        Grouped records find their key's state in the CPU's cache: memory access is the main cost of a keyed function.
        """
        if self._spec.inputs[part.input].keys and not self._spec.ordered:
            rows, by_key, stamps = self.batch(part)
            assert by_key is not None
            return records_by_key(rows, by_key, stamps)
        return self._in_order(part.rows, part.input)

    def merged_records(self, part: Part) -> Iterator[tuple[int, Iterator[Record]]]:
        """Yield runs of records of one input, with its number; consume each run before the next."""
        numbers = part.rows.column(_INPUT).to_numpy()
        records = [self._in_order(part.rows.filter(pa.array(numbers == each)), each) for each in (0, 1)]
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]):
            number = int(numbers[start])
            yield number, islice(records[number], end - start)

    def batch(self, part: Part) -> tuple[pa.RecordBatch, BatchKeys | None, pa.Array | None]:
        """Return the records of a part as columns, their keys and their event times."""
        rows, times = self._columns(part.rows, part.input)
        keys = self._spec.inputs[part.input].keys
        if not keys:
            return rows, None, times
        return rows, BatchKeys.of(rows.select(list(keys)), self._key_types, part.rows.column(KEY_GROUP)), times

    def _in_order(self, part: pa.RecordBatch, number: int) -> Iterator[Record]:
        rows, times = self._columns(part, number)
        columns = dict(zip(rows.schema.names, map(from_arrow, rows.columns), strict=True))
        values = map(row_class(tuple(columns)), zip(*columns.values(), strict=True))
        at = repeat(None) if times is None else times.to_pylist()
        keys = self._spec.inputs[number].keys
        if not keys:
            return zip(repeat(()), repeat(-1), values, at)
        scopes = map(self._encode, zip(*(columns[name] for name in keys), strict=True))
        return zip(scopes, part.column(KEY_GROUP).to_pylist(), values, at, strict=False)

    def _columns(self, part: pa.RecordBatch, number: int) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Return the records of one input as columns, and their event times; count them."""
        spec = self._spec.inputs[number]
        records = part.column(spec.column)
        rows = pa.RecordBatch.from_arrays(records.flatten(), names=[field.name for field in records.type])
        streams = [_event_times(part, rows, name) for name in spec.event_times]
        if len(streams) == 1:
            self._count(number, 0, rows.num_rows, streams[0])
            return rows, streams[0]
        members = part.column(MEMBER)
        timed = [pa.nulls(rows.num_rows, pa.int64()) if times is None else times for times in streams]
        for member, times in enumerate(timed):
            own = pc.equal(members, member)
            self._count(number, member, pc.sum(own).as_py() or 0, times.filter(own))
        return rows, pc.choose(members, *timed)

    def _count(self, number: int, member: int, rows: int, times: pa.Array | None) -> None:
        before = self._read[number][member]
        late, newest = 0, None
        # The event time of another operator's output comes with it; only that of sources makes watermarks.
        if self._spec.inputs[number].event_times[member] is not None:
            if self._watermark_ms is not None:
                late = pc.sum(pc.less_equal(times, self._watermark_ms)).as_py() or 0
            newest = pc.max(times).as_py()
        latest = max((time for time in (before.max_event_time_ms, newest) if time is not None), default=None)
        self._read[number][member] = StreamRead(before.rows + rows, before.late_rows + late, latest)


def _event_times(part: pa.RecordBatch, records: pa.RecordBatch, event_time: str | None) -> pa.Array | None:
    """Return the event time of each row in ms; None when none can have one."""
    if event_time is None:
        return part.column(TIMESTAMP) if TIMESTAMP in part.schema.names else None
    column = records.column(event_time).cast(pa.int64())
    # Arrow counts a timestamp in microseconds, and rounding down is also right before 1970.
    return pa.array(column.fill_null(0).to_numpy() // 1000, mask=column.is_null().to_numpy(zero_copy_only=False))


def _runs(rows: pa.RecordBatch, *, merged: bool) -> Iterator[Part]:
    if not rows.num_rows:
        return
    inputs = np.full(rows.num_rows, MERGED) if merged else rows.column(_INPUT).to_numpy()
    phases = np.full(rows.num_rows, AFTER_WATERMARK)
    if PHASE in rows.schema.names:
        phases = pc.fill_null(rows.column(PHASE), AFTER_WATERMARK).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero((np.diff(phases) != 0) | (np.diff(inputs) != 0)) + 1), rows.num_rows]
    for start, end in pairwise(starts):
        yield Part(int(phases[start]), int(inputs[start]), rows.slice(start, end - start))
