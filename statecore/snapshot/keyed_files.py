"""Keyed state in files: Parquet bases and Arrow changelogs.

One file holds one state of one subtask::

    <key field> …   one column per key field, under the field's own name
    _key_group      int32; rows are sorted by it
    _value          the state's value; a list state holds a list
    _deleted        changelog only: true where the key was cleared (its _value is null)

A base is Parquet (zstd) with row groups small enough for a reader to skip key groups by statistics. A changelog is an
Arrow IPC file (zstd): quick to write and to replay, and holds the changed keys alone. Every base can be read as a table
by any engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statecore.errors import StateTypeError
from statecore.model import KeyGroupRange, parse_type
from statecore.snapshot.arrow_values import from_arrow, to_arrow

KEY_GROUP = "_key_group"
VALUE = "_value"
DELETED = "_deleted"
RESERVED = frozenset({KEY_GROUP, VALUE, DELETED})

_ROW_GROUP_ROWS = 64 * 1024


class Deleted:
    """Marks a cleared key in a changelog."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DELETED"


DELETE = Deleted()


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """State rows, column by column and sorted by key group; a value is ``DELETE`` where a key was cleared."""

    keys: Sequence[tuple[Any, ...]]
    key_groups: Sequence[int]
    values: Sequence[Any]


def key_schema(fields: Iterable[tuple[str, str]]) -> pa.Schema:
    """Return the Arrow schema of key columns given as (name, Spark DDL type)."""
    return pa.schema([pa.field(name, parse_type(ddl).arrow()) for name, ddl in fields])


def stored_type(kind: str, ddl: str) -> pa.DataType:
    """Return the Arrow type of the column ``_value`` for a kind of state and its declared type."""
    declared = parse_type(ddl).arrow()
    return pa.list_(declared) if kind == "list" else declared


def base_table(rows: KeyedRows, keys: pa.Schema, value_type: pa.DataType, state: str) -> pa.Table:
    """Return rows without deletions as the table of a base.

    Raises:
        StateTypeError: A value does not fit the state's type.

    """
    return _table(rows, keys, value_type, state, deleted=False)


def changelog_table(rows: KeyedRows, keys: pa.Schema, value_type: pa.DataType, state: str) -> pa.Table:
    """Return rows as the table of a changelog.

    Raises:
        StateTypeError: A value does not fit the state's type.

    """
    return _table(rows, keys, value_type, state, deleted=True)


def encode_base(table: pa.Table) -> bytes:
    """Return the Parquet file of a base, whose rows are sorted by key group."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=_ROW_GROUP_ROWS, write_page_checksum=True)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def encode_changelog(table: pa.Table) -> bytes:
    """Return the Arrow file of a changelog."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_base(data: bytes, key_groups: KeyGroupRange) -> KeyedRows:
    """Return the rows of a base within ``key_groups``; row groups outside are skipped by their statistics."""
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        # Counted in leaves: a struct before it takes more than one column.
        column = next(i for i, leaf in enumerate(file.schema) if leaf.path == KEY_GROUP)
        wanted = [
            index
            for index in range(file.metadata.num_row_groups)
            if _overlaps(file.metadata.row_group(index).column(column).statistics, key_groups)
        ]
        return _rows(file.read_row_groups(wanted), key_groups)


def decode_changelog(data: bytes, key_groups: KeyGroupRange) -> KeyedRows:
    """Return the rows of a changelog within ``key_groups``."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        return _rows(reader.read_all(), key_groups)


def _overlaps(statistics: Any, key_groups: KeyGroupRange) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.max >= key_groups.start and statistics.min <= key_groups.end)


def _table(rows: KeyedRows, keys: pa.Schema, value_type: pa.DataType, state: str, *, deleted: bool) -> pa.Table:
    columns: Iterable[Sequence[Any]] = zip(*rows.keys, strict=True) if rows.keys else [()] * len(keys)
    arrays = [to_arrow(list(column), field.type) for column, field in zip(columns, keys, strict=True)]
    fields = [*keys, pa.field(KEY_GROUP, pa.int32(), nullable=False), pa.field(VALUE, value_type)]
    arrays.append(pa.array(rows.key_groups, pa.int32()))
    values = rows.values
    if deleted:
        marks = [value is DELETE for value in values]
        values = [None if gone else value for value, gone in zip(values, marks, strict=True)]
        fields.append(pa.field(DELETED, pa.bool_(), nullable=False))
    arrays.append(_value_array(values, value_type, rows.keys, state))
    if deleted:
        arrays.append(pa.array(marks, pa.bool_()))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _value_array(
    values: Sequence[Any], value_type: pa.DataType, keys: Sequence[tuple[Any, ...]], state: str
) -> pa.Array:
    try:
        return to_arrow(values, value_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        for key, value in zip(keys, values, strict=True):
            try:
                to_arrow([value], value_type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
                raise StateTypeError(
                    f"found {value!r} in state {state!r} under key {key!r}; expected a value of type {value_type}; "
                    "convert it before it is written, or declare another type"
                ) from error
        raise


def _rows(table: pa.Table, key_groups: KeyGroupRange) -> KeyedRows:
    groups = table.column(KEY_GROUP)
    inside = pc.and_(pc.greater_equal(groups, key_groups.start), pc.less_equal(groups, key_groups.end))
    table = table.filter(inside)
    names = [name for name in table.column_names if name not in RESERVED]
    columns = [from_arrow(table.column(name)) for name in names]
    return KeyedRows(list(zip(*columns, strict=True)), table.column(KEY_GROUP).to_pylist(), stored_values(table))


def stored_values(table: pa.Table) -> list[Any]:
    """Return the values of a table as whoever restores it gets them; ``DELETE`` where a key was cleared."""
    values = from_arrow(table.column(VALUE))
    if DELETED in table.column_names:
        marks = table.column(DELETED).to_pylist()
        values = [DELETE if gone else value for value, gone in zip(values, marks, strict=True)]
    return values
