"""Keyed state in files: Parquet bases and Arrow changelogs.

One file holds one state of one subtask::

    <key field> …    one column per key field, under the field's own name
    _key_group       int32; rows are sorted by it
    _window_start    windowed states only: int64, ms; null for state of the key alone
    _window_end      windowed states only: int64, ms, exclusive
    _map_key         maps only: the user key; a map has one row per entry
    _value           the value, accumulator or entry's value; the elements of a list; the timers of a key, sorted
    _timestamp_ms    with a time to live only: int64, or a list of them beside the elements of a list
    _deleted         changelogs only: true where something was removed (its _value is null)

A base is Parquet (zstd) with row groups small enough for a reader to skip key groups by statistics. Its footer has the
place and the SHA-256 of each row group, so that a reader can check what it reads without reading all. Keys are stored
as deltas, which are small where merges have sorted the keys of a key group. A changelog is an Arrow IPC file (zstd):
fast to write and to replay, and limited to changes. Its rows are applied in order: a row replaces or removes the state
of its key and window; in a map it replaces or removes one entry, and with a null ``_map_key`` it removes all of them.
Any engine can read a base as a table.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statecore.errors import StateTypeError
from statecore.model import ArrayType, Field, KeyGroupRange, MapType, StateKind, parse_type
from statecore.model.arrow_values import from_arrow, to_arrow
from statecore.snapshot.manifest import FilePart
from statecore.state.tables import Key, TableSchema, Window

KEY_GROUP = "_key_group"
WINDOW_START = "_window_start"
WINDOW_END = "_window_end"
MAP_KEY = "_map_key"
VALUE = "_value"
TIMESTAMP = "_timestamp_ms"
DELETED = "_deleted"
RESERVED = frozenset({KEY_GROUP, WINDOW_START, WINDOW_END, MAP_KEY, VALUE, TIMESTAMP, DELETED})

_ROW_GROUP_ROWS = 64 * 1024
_ROW_GROUPS = b"statecore.row_groups"
_PARTS = msgspec.json.Decoder(tuple[FilePart, ...])
# A Parquet file ends with the length of its footer and four letters.
_LENGTH_BYTES, _END_BYTES = 4, 8

Encoded: TypeAlias = bytes | pa.Buffer
"""The bytes of a file, or as much of them as its reader needs."""

_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of one state, column by column and sorted by key group; a column that its file does not have is None.

    Attributes:
        windows: The window of each row's state, None for state of the key alone.
        map_keys: Each entry's user key, None where a whole map is removed.
        timestamps: In milliseconds; for a list, one per element.
        deleted: Whether a row removes something.

    """

    keys: Sequence[Key]
    key_groups: Sequence[int]
    values: Sequence[Any]
    windows: Sequence[Window | None] | None = None
    map_keys: Sequence[Any] | None = None
    timestamps: Sequence[Any] | None = None
    deleted: Sequence[bool] | None = None


@dataclass(frozen=True, slots=True)
class ChangedArrays:
    """Rows of a changelog as arrays, sorted by key group, of a state that is neither a map nor has a time to live.

    Attributes:
        windows: Start and end of each row's window; None for state of the key alone.

    """

    keys: Sequence[Key]
    key_groups: npt.NDArray[np.int64]
    values: pa.Array
    windows: npt.NDArray[np.int64] | None
    deleted: npt.NDArray[np.bool_]


def key_schema(fields: Iterable[tuple[str, str]]) -> pa.Schema:
    """Return the Arrow schema of key columns given as (name, Spark DDL type)."""
    return pa.schema([pa.field(name, parse_type(ddl).arrow()) for name, ddl in fields])


def stored_fields(schema: TableSchema) -> tuple[Field, ...]:
    """Return the columns of a base after the key columns."""
    number, declared = parse_type("bigint"), parse_type(schema.type)
    fields = [Field(KEY_GROUP, parse_type("int"), nullable=False)]
    if schema.windowed:
        fields += [Field(WINDOW_START, number), Field(WINDOW_END, number)]
    if schema.kind is StateKind.MAP:
        assert isinstance(declared, MapType)
        fields += [Field(MAP_KEY, declared.key), Field(VALUE, declared.value)]
    elif schema.kind in (StateKind.LIST, StateKind.TIMERS):
        fields.append(Field(VALUE, ArrayType(declared)))
    else:
        fields.append(Field(VALUE, declared))
    if schema.stamped:
        fields.append(Field(TIMESTAMP, ArrayType(number) if schema.kind is StateKind.LIST else number))
    return tuple(fields)


def rows_table(rows: KeyedRows, keys: pa.Schema, schema: TableSchema, state: str) -> pa.Table:
    """Return rows as the table of a file: a changelog if ``deleted`` is given, else a base."""
    columns = _stored_columns(rows)
    fields = [field.arrow() for field in stored_fields(schema)]
    arrays = [_array(columns[field.name], field.type, rows.keys, state) for field in fields]
    return _table(rows.keys, keys, fields, arrays, rows.deleted)


def arrays_table(rows: ChangedArrays, keys: pa.Schema, schema: TableSchema) -> pa.Table:
    """Return rows as the table of a changelog."""
    columns = {KEY_GROUP: pa.array(rows.key_groups), VALUE: rows.values}
    if rows.windows is not None:
        columns[WINDOW_START], columns[WINDOW_END] = map(pa.array, np.ascontiguousarray(rows.windows.T))
    fields = [field.arrow() for field in stored_fields(schema)]
    arrays = [columns[field.name].cast(field.type) for field in fields]
    return _table(rows.keys, keys, fields, arrays, rows.deleted)


def _table(
    keys: Sequence[Key],
    key_fields: pa.Schema,
    fields: list[pa.Field],
    arrays: list[pa.Array],
    deleted: Sequence[bool] | npt.NDArray[np.bool_] | None,
) -> pa.Table:
    key_arrays = [to_arrow([key[i] for key in keys], field.type) for i, field in enumerate(key_fields)]
    if deleted is not None:
        fields = [*fields, pa.field(DELETED, pa.bool_(), nullable=False)]
        arrays = [*arrays, pa.array(deleted, pa.bool_())]
    return pa.Table.from_arrays([*key_arrays, *arrays], schema=pa.schema([*key_fields, *fields]))


def encode_base(*tables: pa.Table) -> bytes:
    """Return the Parquet file of a base, from tables whose rows, one after the other, are sorted by key group."""
    sink, schema = io.BytesIO(), tables[0].schema
    encodings = {name: _key_encoding(schema.field(name).type) for name in key_columns(tables[0])}
    encodings[VALUE] = _value_encoding(schema.field(VALUE).type)
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        # Keys rarely repeat, so a dictionary costs time and saves nothing. Sorted keys share their prefixes.
        use_dictionary=False,
        column_encoding={name: encoding for name, encoding in encodings.items() if encoding is not None},
        write_page_checksum=True,
    ) as writer:
        parts = [_written(writer, rows, sink) for table in tables for rows in _row_groups(table)]
        writer.add_key_value_metadata({_ROW_GROUPS: msgspec.json.encode(parts)})
    return sink.getvalue()


def _row_groups(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, max(table.num_rows, 1), _ROW_GROUP_ROWS):
        yield table.slice(start, _ROW_GROUP_ROWS)


def _written(writer: pq.ParquetWriter, rows: pa.Table, sink: io.BytesIO) -> FilePart:
    start = sink.tell()
    writer.write_table(rows)
    with sink.getbuffer() as written:
        return FilePart(start=start, size=len(written) - start, sha256=hashlib.sha256(written[start:]).hexdigest())


def footer_of(base: bytes) -> FilePart:
    """Return the part of a base that says where its row groups are, up to the end of the file."""
    size = int.from_bytes(base[-_END_BYTES:][:_LENGTH_BYTES], "little") + _END_BYTES
    return FilePart(start=len(base) - size, size=size, sha256=hashlib.sha256(base[-size:]).hexdigest())


def row_group_parts(metadata: pq.FileMetaData) -> tuple[FilePart, ...]:
    """Return where each row group of a base is."""
    return _PARTS.decode(metadata.metadata[_ROW_GROUPS])


def _key_encoding(key_type: pa.DataType) -> str | None:
    if pa.types.is_string(key_type) or pa.types.is_binary(key_type):
        return "DELTA_BYTE_ARRAY"
    return "DELTA_BINARY_PACKED" if pa.types.is_integer(key_type) else None


def _value_encoding(value_type: pa.DataType) -> str | None:
    """Return the encoding that splits values by byte: the leading bytes are mostly equal, so they compress well."""
    fixed = pa.types.is_int32(value_type) or pa.types.is_int64(value_type) or pa.types.is_floating(value_type)
    return "BYTE_STREAM_SPLIT" if fixed else None


def encode_changelog(table: pa.Table) -> bytes:
    """Return the Arrow file of a changelog."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def merged_changelog(files: Sequence[Encoded], key_groups: Sequence[KeyGroupRange]) -> pa.Table:
    """Return one changelog equivalent to those in ``files``, oldest first, with the key groups to take from each."""
    tables = [read_changelog(data, wanted) for data, wanted in zip(files, key_groups, strict=True)]
    # A program may have renamed the key's columns since, so they are matched by position.
    names = key_columns(tables[-1])
    tables = [table.rename_columns(dict(zip(key_columns(table), names, strict=True))) for table in tables]
    return joined_by_key_group(tables)


def joined_by_key_group(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of changelogs, one after the other within a key group."""
    if len(tables) == 1:
        return tables[0]
    # A changelog written before the state's first window has no window columns.
    table = pa.concat_tables(tables, promote_options="default")
    # Rows of a key group keep their order: the sort is stable.
    return table.take(pc.sort_indices(table.column(KEY_GROUP)))


def read_base(data: Encoded, key_groups: KeyGroupRange) -> pa.Table:
    """Return the rows of a base within ``key_groups``; row groups outside are skipped."""
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        return _within(file.read_row_groups(row_groups_within(file, key_groups)), key_groups)


def row_groups_within(file: pq.ParquetFile, key_groups: KeyGroupRange) -> list[int]:
    """Return the row groups of a base that may have rows of these key groups, by their statistics."""
    # Parquet counts leaves, and a struct before this column has several.
    column = next(i for i, leaf in enumerate(file.schema) if leaf.path == KEY_GROUP)
    return [
        index
        for index in range(file.metadata.num_row_groups)
        if _overlaps(file.metadata.row_group(index).column(column).statistics, key_groups)
    ]


def read_changelog(data: Encoded, key_groups: KeyGroupRange) -> pa.Table:
    """Return the rows of a changelog within ``key_groups``."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        return _within(reader.read_all(), key_groups)


def decode_base(data: Encoded, key_groups: KeyGroupRange, key: Key | None = None) -> KeyedRows:
    """Like ``read_base``, as Python values; with a key, rows of other keys may be left out."""
    return _rows(_of_key(read_base(data, key_groups), key))


def decode_changelog(data: Encoded, key_groups: KeyGroupRange, key: Key | None = None) -> KeyedRows:
    """Like ``read_changelog``, as Python values; with a key, rows of other keys may be left out."""
    return _rows(_of_key(read_changelog(data, key_groups), key))


def rows_per_key_group(file: pa.NativeFile, max_parallelism: int, *, base: bool) -> npt.NDArray[np.int64]:
    """Return the rows per key group of a file; no other column is decoded."""
    if base:
        with pq.ParquetFile(file) as opened:
            groups = opened.read([KEY_GROUP]).column(KEY_GROUP)
    else:
        with pa.ipc.open_file(file) as reader:
            position = reader.schema.get_field_index(KEY_GROUP)
        file.seek(0)
        with pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[position])) as reader:
            groups = reader.read_all().column(KEY_GROUP)
    return np.bincount(groups.to_numpy(), minlength=max_parallelism)


def _overlaps(statistics: Any, key_groups: KeyGroupRange) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.max >= key_groups.start and statistics.min <= key_groups.end)


def _stored_columns(rows: KeyedRows) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {KEY_GROUP: rows.key_groups, VALUE: rows.values}
    if rows.windows is not None:
        bounds = [(None, None) if window is None else window for window in rows.windows]
        columns[WINDOW_START], columns[WINDOW_END] = zip(*bounds, strict=True) if bounds else ((), ())
    if rows.map_keys is not None:
        columns[MAP_KEY] = rows.map_keys
    if rows.timestamps is not None:
        columns[TIMESTAMP] = rows.timestamps
    return columns


def _array(values: Sequence[Any], value_type: pa.DataType, keys: Sequence[Key], state: str) -> pa.Array:
    try:
        return to_arrow(values, value_type)
    except _MISFITS as error:
        for key, value in zip(keys, values, strict=True):
            try:
                to_arrow([value], value_type)
            except _MISFITS:
                raise StateTypeError(
                    f"found {value!r} in state {state!r} under key {key!r}; expected a value of type {value_type}; "
                    "convert it before it is written, or declare another type"
                ) from error
        raise


def key_columns(table: pa.Table) -> list[str]:
    """Return the names of a file's key columns."""
    return [name for name in table.column_names if name not in RESERVED]


def _of_key(table: pa.Table, key: Key | None) -> pa.Table:
    """Leave out rows of other keys, as far as Arrow can compare: not nested values."""
    for name, value in zip(key_columns(table), key or (), strict=False):
        column = table.column(name)
        if value is None:
            table = table.filter(pc.is_null(column))
        elif isinstance(value, float) and math.isnan(value):
            table = table.filter(pc.is_nan(column))
        elif not pa.types.is_nested(column.type):
            table = table.filter(pc.equal(column, pa.scalar(value, column.type)))
    return table


def _within(table: pa.Table, key_groups: KeyGroupRange) -> pa.Table:
    groups = table.column(KEY_GROUP)
    return table.filter(pc.and_(pc.greater_equal(groups, key_groups.start), pc.less_equal(groups, key_groups.end)))


def _rows(table: pa.Table) -> KeyedRows:
    columns = {name: from_arrow(table.column(name)) for name in table.column_names}
    windows = None
    if WINDOW_START in columns:
        ends = zip(columns[WINDOW_START], columns[WINDOW_END], strict=True)
        windows = [None if start is None else Window(start, end) for start, end in ends]
    return KeyedRows(
        keys=list(zip(*(column for name, column in columns.items() if name not in RESERVED), strict=True)),
        key_groups=columns[KEY_GROUP],
        values=columns[VALUE],
        windows=windows,
        map_keys=columns.get(MAP_KEY),
        timestamps=columns.get(TIMESTAMP),
        deleted=columns.get(DELETED),
    )
