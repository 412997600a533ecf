"""Adds a column to reducing or aggregating state, one value for each row of the current batch.

Keys whose vectorized result provably equals row-by-row addition are folded at once; the rest are added row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from statecore.errors import StateError, StateTypeError
from statecore.model import AggregateFunction, parse_type
from statecore.model.arrow_values import from_arrow, to_arrow
from statecore.model.values import MisfitError
from statecore.state.batches import BatchKeys, Mask
from statecore.state.folding import folding
from statecore.state.keyed_backend import KeyedScope
from statecore.state.tables import StateTable


class BatchState(Protocol):
    """Keyed state that a column can be folded into."""

    backend: KeyedScope
    table: StateTable
    conform: Callable[[Any], Any]

    def batch(self) -> BatchKeys:
        """Return the keys of the current batch."""

    def batch_values(self, keys: BatchKeys, absent: Any) -> list[Any]:
        """Return the value that an addition to each key folds into; ``absent`` for a key without one."""

    def write_batch(self, keys: BatchKeys, stored: Sequence[Any]) -> None:
        """Replace the stored value of each key."""

    def add(self, value: Any) -> None:
        """Fold one value in."""


class ReducingBatchState(BatchState, Protocol):
    """Reducing state."""

    reduce: Callable[[Any, Any], Any]


class AggregatingBatchState(BatchState, Protocol):
    """Aggregating state."""

    aggregate: AggregateFunction

    def replace(self, accumulator: Any) -> None:
        """Store an accumulator under the current key."""

    def empty_accumulator(self) -> Any:
        """Return an empty accumulator in its stored form; None when it cannot be stored yet."""


def reduce_column(state: ReducingBatchState, values: pa.Array) -> pa.Array:
    """Fold a column, which may be chunked, into reducing state; return the new value of each key of the batch."""
    keys, column = state.batch(), _column(values)
    _require_a_value_per_row(state, column, keys)
    stored_type = _stored_type(state)
    known = folding(state.reduce, state.table.type)
    numbers = None if known is None else known.column(column.drop_null())
    certain = _without_nulls(keys, column)
    if known is not None and numbers is not None:
        index = keys.index[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else keys.index
        folded, sure = known.fold(state.batch_values(keys, known.start), numbers, index)
        certain &= sure
        if certain.all():
            state.write_batch(keys, folded.tolist())
            return pa.array(folded).cast(stored_type)
        state.write_batch(keys.only(certain)[0], folded[certain].tolist())
    else:
        certain[:] = False
    _add_by_row(state, keys, column, ~certain)
    return to_arrow(state.batch_values(keys, None), stored_type)


def aggregate_column(state: AggregatingBatchState, values: pa.Array) -> pa.Array:
    """Fold a column into aggregating state; return the new accumulator of each key of the batch."""
    keys, column = state.batch(), _column(values)
    _require_a_value_per_row(state, column, keys)
    certain = _without_nulls(keys, column)
    whole = bool(certain.all())
    part, rows = (keys, None) if whole else keys.only(certain)
    folded = _aggregated(state, part, column if rows is None else column.filter(pa.array(rows)))
    if folded is None:
        certain[:] = False
    else:
        _write_accumulators(state, part, folded)
        if whole:
            return folded
    _add_by_row(state, keys, column, ~certain)
    return to_arrow(state.batch_values(keys, None), _stored_type(state))


def _column(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    raise StateError(
        f"found {type(values).__name__} in add_batch; expected an Arrow array with a value for each row of the batch; "
        "pass a column of the batch, or the result of a pyarrow.compute function on one"
    )


def _require_a_value_per_row(state: BatchState, column: pa.Array, keys: BatchKeys) -> None:
    if len(column) != len(keys.index):
        raise StateError(
            f"found {len(column)} values for state {state.table.name!r}; expected one for each of the "
            f"{len(keys.index)} rows of the batch; make the column from the whole batch"
        )


def _stored_type(state: BatchState) -> pa.DataType:
    return parse_type(state.table.type).arrow()


def _without_nulls(keys: BatchKeys, column: pa.Array) -> Mask:
    """Return which keys have no null among their values: the effect of a null depends on the values around it."""
    certain = np.ones(len(keys.scopes), np.bool_)
    if column.null_count:
        certain[keys.index[column.is_null().to_numpy(zero_copy_only=False)]] = False
    return certain


def _add_by_row(state: BatchState, keys: BatchKeys, column: pa.Array, of: Mask) -> None:
    rows = np.flatnonzero(of[keys.index])
    backend, scopes, key_groups = state.backend, keys.scopes, keys.key_groups.tolist()
    try:
        for at, value in zip(keys.index[rows].tolist(), from_arrow(column.take(pa.array(rows))), strict=True):
            backend.set_current_key(scopes[at], key_groups[at])
            state.add(value)
    finally:
        backend.forget_current_key()


def _aggregated(state: AggregatingBatchState, keys: BatchKeys, column: pa.Array) -> pa.Array | None:
    created = state.empty_accumulator()
    if created is None or not keys.scopes:
        return None
    stored_type = _stored_type(state)
    stored = to_arrow(state.batch_values(keys, created), stored_type)
    folded = state.aggregate.add_batch(column, stored, pa.array(keys.index))
    if folded is None:
        return None
    if isinstance(folded, pa.ChunkedArray):
        folded = folded.combine_chunks()
    try:
        if len(folded) == len(keys.scopes):
            return folded.cast(stored_type)
    except (AttributeError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    raise StateTypeError(
        f"found {_described(folded)} from add_batch for state {state.table.name!r}; expected {len(keys.scopes)} "
        f"accumulators of type {stored_type}, one for each that it received; return them in the same order"
    )


def _described(value: Any) -> str:
    return f"{len(value)} of type {value.type}" if isinstance(value, pa.Array) else repr(value)


def _write_accumulators(state: AggregatingBatchState, keys: BatchKeys, folded: pa.Array) -> None:
    values = from_arrow(folded)
    try:
        stored = None if folded.null_count else list(map(state.conform, values))
    except MisfitError:
        stored = None
    if stored is not None:
        state.write_batch(keys, stored)
        return
    # One by one, so that null clears its key and an error names the key of the value that does not fit.
    backend = state.backend
    try:
        for scope, key_group, value in zip(keys.scopes, keys.key_groups.tolist(), values, strict=True):
            backend.set_current_key(scope, key_group)
            state.replace(value)
    finally:
        backend.forget_current_key()
