"""Outputs to other operators, as Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from statecore.model import Field, OutputTag, StructType, arrow_schema
from statecore.runtime.messages import ATTEMPT, COMMIT, PHASE, SUBTASK, TIMESTAMP, OperatorSpec, crossing_column
from statecore.state.output_schema import cast_to_schema, convert_to_schema
from statecore.state.process import MAIN_OUTPUT

_PURPOSE = "for another operator"

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
        self._made: dict[str, list[tuple[pa.Array, pa.Array]]] = {tag: [] for tag in self._fields}
        self._values: dict[str, list[Any]] = {tag: [] for tag in self._fields}
        self._times: dict[str, list[int | None]] = {tag: [] for tag in self._fields}
        self._schema = pa.schema(
            [
                *((name, arrow) for name, _, arrow in _FIXED),
                *((self._columns[tag], pa.struct(list(arrow_schema(each)))) for tag, each in self._fields.items()),
            ]
        )

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        """Add one output; outputs without a reader are dropped."""
        values = self._values.get(tag.name)
        if values is not None:
            values.append(value)
            self._times[tag.name].append(timestamp_ms)

    def emit_all(self, values: Sequence[Any], timestamp_ms: int | None) -> None:
        """Add outputs of the main output, with one event time."""
        if MAIN_OUTPUT in self._values:
            self._values[MAIN_OUTPUT].extend(values)
            self._times[MAIN_OUTPUT].extend(repeat(timestamp_ms, len(values)))

    def emit_batch(self, tag: OutputTag | None, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        """Add many outputs as columns; outputs without a reader are dropped."""
        name = MAIN_OUTPUT if tag is None else tag.name
        if name in self._values:
            self._close(name)
            fitting = cast_to_schema(rows, self._fields[name], _PURPOSE)
            self._made[name].append((fitting.to_struct_array(), timestamps_ms))

    def batches(self, phase: int) -> list[pa.RecordBatch]:
        """Return the batches added since the last call."""
        batches = []
        for tag, column in self._columns.items():
            self._close(tag)
            for rows, times in self._made[tag]:
                batches.append(self._batch({column: rows, TIMESTAMP: times}, len(rows), phase, self._attempt))
            self._made[tag] = []
        return batches

    def _close(self, tag: str) -> None:
        """Convert the collected rows to columns."""
        if self._values[tag]:
            rows = convert_to_schema(self._values[tag], self._fields[tag], _PURPOSE)
            self._made[tag].append((rows, pa.array(self._times[tag], pa.int64())))
            self._values[tag], self._times[tag] = [], []

    def own_commit(self, commit: str) -> pa.RecordBatch:
        """Return this subtask's commit as a row."""
        return self._batch({COMMIT: [commit]}, 1, None, self._attempt)

    def passed_on(self, commits: Sequence[str]) -> pa.RecordBatch:
        """Return the commits of other subtasks as rows."""
        return self._batch({COMMIT: list(commits)}, len(commits), None, None)

    def _batch(self, columns: dict[str, Any], count: int, phase: int | None, attempt: int | None) -> pa.RecordBatch:
        given = {SUBTASK: [self._subtask] * count, ATTEMPT: [attempt] * count, PHASE: [phase] * count, **columns}
        arrays = [_column(given.get(field.name, [None] * count), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(values: Any, arrow_type: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, arrow_type)
