"""Outputs to other operators, as Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from statecore.errors import StateTypeError
from statecore.model import Field, StructType, arrow_schema
from statecore.model.arrow_values import to_arrow
from statecore.runtime.messages import ATTEMPT, COMMIT, PHASE, SUBTASK, TIMESTAMP, OperatorSpec, crossing_column
from statecore.runtime.worker.output_schema import cast_to_schema
from statecore.state.process import MAIN_OUTPUT

_FIXED = ((SUBTASK, "int", pa.int32()), (COMMIT, "string", pa.string()), (ATTEMPT, "bigint", pa.int64()),
          (PHASE, "int", pa.int32()), (TIMESTAMP, "bigint", pa.int64()))  # fmt: skip


def crossing_ddl(spec: OperatorSpec) -> str:
    """Return the columns that a subtask returns to Spark: crossing rows and commits."""
    fixed = [f"{name} {ddl}" for name, ddl, _ in _FIXED]
    outputs = [f"{crossing_column(spec, each.tag)} {StructType(each.fields).ddl()}" for each in spec.crossings]
    return ", ".join(fixed + outputs)


class CrossingRows:
    """Collects the outputs that other operators read, in batches.

    Args:
        spec: The operator.
        subtask: Index of the subtask.
        attempt: Number of this attempt.

    """

    def __init__(self, spec: OperatorSpec, subtask: int, attempt: int) -> None:
        self._subtask = subtask
        self._attempt = attempt
        self._fields: dict[str, Sequence[Field]] = {each.tag: each.fields for each in spec.crossings}
        self._columns = {tag: crossing_column(spec, tag) for tag in self._fields}
        self._types = {tag: pa.struct(list(arrow_schema(fields))) for tag, fields in self._fields.items()}
        self._made: dict[str, list[tuple[pa.Array, pa.Array]]] = {tag: [] for tag in self._fields}
        self._values: dict[str, list[Any]] = {tag: [] for tag in self._fields}
        self._times: dict[str, list[int | None]] = {tag: [] for tag in self._fields}
        self._schema = pa.schema(
            [
                *((name, arrow) for name, _, arrow in _FIXED),
                *((self._columns[tag], t) for tag, t in self._types.items()),
            ]
        )

    def emit(self, tag: str, value: Any, timestamp_ms: int | None) -> None:
        """Add one output; outputs without a reader are dropped."""
        values = self._values.get(tag)
        if values is not None:
            values.append(value)
            self._times[tag].append(timestamp_ms)

    def emit_all(self, values: Sequence[Any], timestamp_ms: int | None) -> None:
        """Add outputs of the main output, with one event time."""
        if MAIN_OUTPUT in self._values:
            self._values[MAIN_OUTPUT].extend(values)
            self._times[MAIN_OUTPUT].extend(repeat(timestamp_ms, len(values)))

    def emit_batch(self, tag: str, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        """Add many outputs as columns; outputs without a reader are dropped."""
        if tag in self._values:
            self._close(tag)
            made = cast_to_schema(rows, pa.schema(list(self._types[tag])), "for another operator")
            self._made[tag].append((made.to_struct_array(), timestamps_ms))

    def batches(self, phase: int) -> list[pa.RecordBatch]:
        """Return the batches added since the last call."""
        batches = []
        for tag, column in self._columns.items():
            self._close(tag)
            for rows, times in self._made[tag]:
                batches.append(self._batch({column: rows, TIMESTAMP: times}, len(rows), phase))
            self._made[tag] = []
        return batches

    def _close(self, tag: str) -> None:
        """Convert the collected rows to columns."""
        if self._values[tag]:
            self._made[tag].append((self._rows(tag, self._values[tag]), pa.array(self._times[tag], pa.int64())))
            self._values[tag], self._times[tag] = [], []

    def commits(self, commits: Sequence[str]) -> pa.RecordBatch:
        """Return commits, this subtask's or others', as rows."""
        return self._batch({COMMIT: list(commits)}, len(commits), None)

    def _rows(self, tag: str, values: list[Any]) -> pa.Array:
        try:
            return to_arrow(values, self._types[tag])
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
            raise StateTypeError(
                f"found an output {tag or 'of the main output'!r} that does not fit: {error}; expected rows with the "
                f"columns {', '.join(f'{f.name} {f.type.ddl()}' for f in self._fields[tag])}; yield a tuple with these "
                "columns"
            ) from error

    def _batch(self, columns: dict[str, Any], count: int, phase: int | None) -> pa.RecordBatch:
        attempt = None if phase is None else self._attempt
        given = {SUBTASK: [self._subtask] * count, ATTEMPT: [attempt] * count, PHASE: [phase] * count, **columns}
        arrays = [_column(given.get(field.name, [None] * count), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(values: Any, arrow_type: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, arrow_type)
