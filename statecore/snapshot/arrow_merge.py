"""Merges state files column by column, without a Python object per row.

A row replaces what older rows say of its key and window, so the newest row of each counts; where rows of one scope do
not simply replace each other (the entries of a map), or Arrow cannot tell keys apart as we do, ``live_rows`` does it.
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
    key_columns,
    read_base,
    read_changelog,
    stored_fields,
)
from statecore.snapshot.manifest import FileKind
from statecore.state import TableSchema


def can_merge(keys: pa.Schema, schema: TableSchema) -> bool:
    """Tell whether ``merged_base`` can lay files of this state together."""
    return schema.kind is not StateKind.MAP and not any(
        pa.types.is_nested(key.type) or pa.types.is_floating(key.type) for key in keys
    )


def merged_base(
    files: Sequence[tuple[bytes, FileKind, KeyGroupRange]], keys: pa.Schema, schema: TableSchema
) -> pa.Table | None:
    """Return what files hold when they are applied one after the other, sorted by key group and key.

    Files are given with the key groups to take of them, oldest first; no base follows another file of its key groups,
    and ``can_merge`` is true of the schema. None when a file has columns of other types: look at its values then.
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
    """Return a file's columns in the order of ``fields``, with a mark for what is deleted; None if one does not fit."""
    # A program may have renamed the key's columns since; their order is what counts.
    names = key_columns(table)
    table = table.rename_columns(dict(zip(names, [field.name for field in fields[: len(names)]], strict=True)))
    columns = []
    for field in fields:
        if field.name in table.column_names:
            if table.schema.field(field.name).type != field.type:
                return None
            columns.append(table.column(field.name))
        elif field.name in (WINDOW_START, WINDOW_END):
            # Written before the state met its first window.
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            return None
    deleted = table.column(DELETED) if DELETED in table.column_names else pa.array(np.zeros(table.num_rows, bool))
    names = [*(field.name for field in fields), DELETED]
    return pa.table([*columns, deleted], names=names)


def _newest(table: pa.Table, scope: Sequence[str]) -> pa.Table:
    """Return the newest row of each scope, without those that say that it is deleted, in the order of the scopes."""
    # Keys that stand beside their like cost a base half the bytes. The sort is stable: the newest is the last.
    # Arrow would take a name that begins with a dot for a path: columns are named by number.
    columns = pa.table(
        [table.column(name) for name in (KEY_GROUP, *scope)], names=[str(i) for i in range(len(scope) + 1)]
    )
    order = pc.sort_indices(columns, sort_keys=[(name, "ascending") for name in columns.column_names])
    table = table.take(order).combine_chunks()
    is_last = np.ones(table.num_rows, bool)
    is_last[:-1] = ~reduce(np.logical_and, [_like_the_next(table.column(name)) for name in scope])
    return table.filter(pa.array(is_last & ~table.column(DELETED).to_numpy()))


def _like_the_next(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Tell of each value but the last whether the next is the same; nulls are."""
    values, following = column.slice(0, max(len(column) - 1, 0)), column.slice(1)
    both_null = pc.and_(values.is_null(), following.is_null())
    return pc.or_(pc.equal(values, following).fill_null(False), both_null).to_numpy()  # type: ignore[no-any-return]
