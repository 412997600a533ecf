"""Merges state files column by column, without a Python object per row.

A row replaces older rows of its key and window, so only the newest row of each counts. ``live_rows`` merges the rest:
rows that do not replace each other (the entries of a map), and keys that Arrow compares differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statecore.model import KeyGroupRange, StateKind
from statecore.snapshot.keyed_files import (
    DELETED,
    KEY_GROUP,
    TIMESTAMP,
    WINDOW_END,
    WINDOW_START,
    Encoded,
    key_columns,
    read_base,
    read_changelog,
    stored_fields,
)
from statecore.snapshot.manifest import FileKind
from statecore.state import TableSchema


def can_merge(keys: pa.Schema, schema: TableSchema) -> bool:
    """Return whether ``merged_base`` can merge files of this state."""
    return schema.kind is not StateKind.MAP and not any(
        pa.types.is_nested(key.type) or pa.types.is_floating(key.type) for key in keys
    )


def merged_base(
    files: Sequence[tuple[Encoded, FileKind, KeyGroupRange]], keys: pa.Schema, schema: TableSchema
) -> pa.Table | None:
    """Return the combined rows of files that are applied one after the other, sorted by key group and key.

    Each file comes with the key groups to take from it, oldest first. No base follows another file of its key groups,
    and ``can_merge`` holds for the schema. None when a file has columns of other types; then merge row by row.
    """
    fields = [*keys, *(field.arrow() for field in stored_fields(schema))]
    tables = []
    for data, kind, key_groups in files:
        table = _in_form(
            read_base(data, key_groups) if kind is FileKind.BASE else read_changelog(data, key_groups), fields
        )
        if table is None:
            return None
        tables.append(table)
    scope = [*keys.names, *([WINDOW_START, WINDOW_END] if schema.windowed else [])]
    table = _newest(pa.concat_tables(tables), scope)
    return table.select([field.name for field in fields]).cast(pa.schema(fields))


def without_expired(table: pa.Table, ttl_ms: int, now_ms: int) -> pa.Table:
    """Return the rows of a base with one timestamp each that have not expired at ``now_ms``."""
    return table.filter(pc.greater(pc.add(table.column(TIMESTAMP), ttl_ms), now_ms))


def _in_form(table: pa.Table, fields: Sequence[pa.Field]) -> pa.Table | None:
    """Return a file's columns in the order of ``fields``, plus a deletion mark; None if one does not fit."""
    # A program may have renamed the key's columns since, so they are matched by position.
    names = key_columns(table)
    table = table.rename_columns(dict(zip(names, [field.name for field in fields[: len(names)]], strict=True)))
    columns = []
    for field in fields:
        if field.name in table.column_names:
            if table.schema.field(field.name).type != field.type:
                return None
            columns.append(table.column(field.name))
        elif field.name in (WINDOW_START, WINDOW_END):
            # Written before the state's first window.
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            return None
    deleted = table.column(DELETED) if DELETED in table.column_names else pa.array(np.zeros(table.num_rows, bool))
    names = [*(field.name for field in fields), DELETED]
    return pa.table([*columns, deleted], names=names)


def _newest(table: pa.Table, scope: Sequence[str]) -> pa.Table:
    """Return the newest row of each scope, sorted by scope, without deleted ones."""
    # Sorted keys halve the size of a base. The sort is stable, so the newest row comes last.
    # Columns are named by number, because Arrow takes a name with a leading dot for a path.
    columns = pa.table(
        [table.column(name) for name in (KEY_GROUP, *scope)], names=[str(i) for i in range(len(scope) + 1)]
    )
    order = pc.sort_indices(columns, sort_keys=[(name, "ascending") for name in columns.column_names])
    table = table.take(order).combine_chunks()
    is_last = np.ones(table.num_rows, bool)
    is_last[:-1] = ~reduce(np.logical_and, [_like_the_next(table.column(name)) for name in scope])
    return table.filter(pa.array(is_last & ~table.column(DELETED).to_numpy()))


def _like_the_next(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return for each value but the last whether it equals the next one; two nulls do."""
    values, following = column.slice(0, max(len(column) - 1, 0)), column.slice(1)
    both_null = pc.and_(values.is_null(), following.is_null())
    return pc.or_(pc.equal(values, following).fill_null(False), both_null).to_numpy()  # type: ignore[no-any-return]
