"""Reads Spark's UnsafeRow bytes into Arrow columns, all rows at once.

::

    row     ┌ nulls: 1 bit a field, in words of 8 bytes ┐┌ 8 bytes a field ┐┌ variable part ┐
    array   ┌ count: 8 bytes ┐┌ nulls: 1 bit an element, in words ┐┌ elements of their width ┐┌ variable part ┐

A field of a fixed width lies in its 8 bytes. Any other lies in the variable part: its 8 bytes hold the offset from the
start of the row or array (upper half) and the size in bytes (lower half). Decimals of up to 18 digits are fixed, wider
ones are big-endian integers in the variable part. All else is little-endian.

The columns hash in Spark as the fields did: ``carried_type`` says which types stand in for those that do not pass
through Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import types as spark

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.rows.byte_columns import ByteColumn

Array: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_WORD = 8
_COMPACT_DIGITS = 18
_DECIMAL_BYTES = 16
_BINARY_COLLATION = "UTF8_BINARY"


@dataclass(frozen=True, slots=True)
class _Fixed:
    """How values of a fixed width lie in a row.

    Attributes:
        dtype: Of a value, in numpy.
        arrow: Type of the column.

    """

    dtype: str
    arrow: pa.DataType


_FIXED: dict[type[spark.DataType], _Fixed] = {
    spark.BooleanType: _Fixed("u1", pa.bool_()),
    spark.ByteType: _Fixed("i1", pa.int8()),
    spark.ShortType: _Fixed("<i2", pa.int16()),
    spark.IntegerType: _Fixed("<i4", pa.int32()),
    spark.LongType: _Fixed("<i8", pa.int64()),
    spark.FloatType: _Fixed("<f4", pa.float32()),
    spark.DoubleType: _Fixed("<f8", pa.float64()),
    spark.DateType: _Fixed("<i4", pa.date32()),
    spark.TimestampType: _Fixed("<i8", pa.timestamp("us", tz="UTC")),
    spark.TimestampNTZType: _Fixed("<i8", pa.timestamp("us")),
}

# Spark hashes these as the integers that they are stored as; not all of them pass through Arrow.
_AS_INTEGERS: dict[type[spark.DataType], spark.DataType] = {
    spark.YearMonthIntervalType: spark.IntegerType(),
    spark.DayTimeIntervalType: spark.LongType(),
    spark.TimeType: spark.LongType(),
}


def carried_type(kind: spark.DataType, field: str = "") -> spark.DataType:
    """Return the Spark type of the column that ``decode`` makes of a field.

    It is the type of the field, except that intervals and times of day become the integers that Spark stores and
    hashes, in structs and arrays too, and a user-defined type becomes the type it is stored as.

    Args:
        kind: Type of the field.
        field: Name of the field, for the error.

    Raises:
        CheckpointRefusedError: Rows with such a key cannot be placed: maps, variants, calendar intervals, strings with
            a collation.

    """
    if isinstance(kind, spark.UserDefinedType):
        return carried_type(kind.sqlType(), field)
    if isinstance(kind, spark.StructType):
        return spark.StructType(
            [spark.StructField(each.name, carried_type(each.dataType, f"{field}.{each.name}")) for each in kind.fields]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(carried_type(kind.elementType, f"{field}[]"))
    if type(kind) in _AS_INTEGERS:
        return _AS_INTEGERS[type(kind)]
    if isinstance(kind, spark.StringType):
        if kind.collation != _BINARY_COLLATION:
            raise _refused(field, f"string collate {kind.collation}")
        return spark.StringType()
    if type(kind) in _FIXED or isinstance(kind, spark.BinaryType | spark.DecimalType | spark.NullType):
        return kind
    raise _refused(field, kind.simpleString())


def decode(rows: ByteColumn, fields: int, kinds: Iterable[spark.DataType]) -> list[pa.Array]:
    """Return the leading fields of rows as columns.

    Floating-point values keep the bits that are stored.

    Args:
        rows: The rows, without nulls.
        fields: Number of all fields of a row.
        kinds: Types of the leading fields to return, as ``carried_type`` gives them.

    Returns:
        A column for each of ``kinds``.

    Raises:
        CheckpointDamagedError: A row is too short, or a field leads out of its row.

    """
    padding = -len(rows.data) % _WORD
    data = np.concatenate((rows.data, np.zeros(padding + _WORD, np.uint8)))
    region = _Region(data, rows.starts, rows.sizes, np.ones(len(rows), np.bool_))
    return _fields(region, fields, kinds)


@dataclass(frozen=True, slots=True)
class _Region:
    """Rows or arrays within ``data``; those that are not ``valid`` start at 0, where they may be read as any other."""

    data: Array
    starts: Ints
    sizes: Ints
    valid: Flags

    def __len__(self) -> int:
        return len(self.starts)

    def read(self, dtype: str, at: Ints) -> Array:
        """Return a value for each position; all positions are multiples of the size of a value."""
        width = np.dtype(dtype).itemsize
        return self.data[: len(self.data) // width * width].view(dtype)[at // width]

    def check(self, fits: Flags, what: str) -> None:
        """Raise CheckpointDamagedError where a valid one does not fit."""
        wrong = self.valid & ~fits
        if wrong.any():
            raise CheckpointDamagedError(
                f"found {what} in {int(wrong.sum()):,} of {len(self):,} rows of a state store; expected rows as Spark "
                "writes them; restore the checkpoint from a clone or a backup"
            )


def _fields(rows: _Region, fields: int, kinds: Iterable[spark.DataType]) -> list[pa.Array]:
    null_words = (fields + 63) // 64
    rows.check((rows.starts % _WORD == 0) & (rows.sizes >= _WORD * (null_words + fields)), "a row of a wrong size")
    columns = []
    for index, kind in enumerate(kinds):
        nulls = rows.read("<u8", rows.starts + _WORD * (index // 64))
        valid = rows.valid & ((nulls >> np.uint64(index % 64)) & np.uint64(1) == 0)
        columns.append(_column(rows, rows.starts + _WORD * (null_words + index), valid, kind))
    return columns


def _column(rows: _Region, at: Ints, valid: Flags, kind: spark.DataType) -> pa.Array:
    """Return the values at positions ``at``, one for each row or array of ``rows``."""
    fixed = _FIXED.get(type(kind))
    if isinstance(kind, spark.NullType):
        return pa.nulls(len(at))
    if isinstance(kind, spark.BooleanType):
        return pa.array(rows.read("u1", at) != 0, mask=~valid)
    if fixed is not None:
        values = rows.read(fixed.dtype, at)
        return pa.Array.from_buffers(fixed.arrow, len(at), [_bitmap(valid), pa.py_buffer(values)])
    if isinstance(kind, spark.DecimalType) and kind.precision <= _COMPACT_DIGITS:
        low = rows.read("<i8", at)
        return _decimals(np.stack((low, low >> 63), axis=1), valid, kind)
    words = rows.read("<i8", at)
    offsets, sizes = np.where(valid, words >> 32, 0), np.where(valid, words & 0xFFFFFFFF, 0)
    region = _Region(rows.data, np.where(valid, rows.starts + offsets, 0), sizes, valid)
    region.check((offsets >= 0) & (offsets + sizes <= rows.sizes), f"a {kind.typeName()} that leads out of its row")
    return _VARIABLE[type(kind)](region, kind)


def _strings(region: _Region, kind: spark.DataType) -> pa.Array:
    column = ByteColumn(region.data, region.starts, region.sizes).to_arrow(region.valid)
    return column.view(pa.string()) if isinstance(kind, spark.StringType) else column


def _wide_decimals(region: _Region, kind: spark.DataType) -> pa.Array:
    assert isinstance(kind, spark.DecimalType)
    region.check((region.sizes >= 1) & (region.sizes <= _DECIMAL_BYTES), "a decimal without digits, or with too many")
    # The first byte carries the sign.
    sign = np.where(region.data[region.starts] >= 0x80, 0xFF, 0).astype(np.uint8)
    little_endian = np.empty((len(region), _DECIMAL_BYTES), np.uint8)
    for place in range(_DECIMAL_BYTES):
        at = np.where(place < region.sizes, region.starts + region.sizes - 1 - place, 0)
        little_endian[:, place] = np.where(place < region.sizes, region.data[at], sign)
    return _decimals(little_endian, region.valid, kind)


def _structs(region: _Region, kind: spark.DataType) -> pa.Array:
    assert isinstance(kind, spark.StructType)
    columns = _fields(region, len(kind.fields), [each.dataType for each in kind.fields])
    types = [pa.field(each.name, column.type) for each, column in zip(kind.fields, columns, strict=True)]
    return pa.Array.from_buffers(pa.struct(types), len(region), [_bitmap(region.valid)], children=columns)


def _arrays(region: _Region, kind: spark.DataType) -> pa.Array:
    assert isinstance(kind, spark.ArrayType)
    region.check((region.starts % _WORD == 0) & (region.sizes >= _WORD), "an array of too few bytes")
    counts = np.where(region.valid, region.read("<i8", region.starts), 0)
    null_bytes = (counts + 63) // 64 * _WORD
    width = _element_bytes(kind.elementType)
    fits = (counts >= 0) & (counts <= region.sizes)
    region.check(fits & (_WORD + null_bytes + counts * width <= region.sizes), "an array with more elements than bytes")
    ends = np.cumsum(counts)
    owner = np.repeat(np.arange(len(region)), counts)
    index = np.arange(len(owner)) - np.repeat(ends - counts, counts)
    starts = region.starts[owner]
    nulls = region.data[starts + _WORD + index // 8] >> (index % 8).astype(np.uint8) & 1
    valid = nulls == 0
    elements = _Region(region.data, starts, region.sizes[owner], np.ones(len(owner), np.bool_))
    values = _column(elements, starts + _WORD + null_bytes[owner] + index * width, valid, kind.elementType)
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    buffers = [_bitmap(region.valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.list_(pa.field("element", values.type)), len(region), buffers, children=[values])


_VARIABLE: dict[type[spark.DataType], Callable[[_Region, spark.DataType], pa.Array]] = {
    spark.StringType: _strings,
    spark.BinaryType: _strings,
    spark.DecimalType: _wide_decimals,
    spark.StructType: _structs,
    spark.ArrayType: _arrays,
}


def _element_bytes(kind: spark.DataType) -> int:
    fixed = _FIXED.get(type(kind))
    return _WORD if fixed is None else np.dtype(fixed.dtype).itemsize


def _decimals(little_endian: Array, valid: Flags, kind: spark.DecimalType) -> pa.Array:
    arrow = pa.decimal128(kind.precision, kind.scale)
    return pa.Array.from_buffers(arrow, len(valid), [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(little_endian))])


def _bitmap(valid: Flags) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _refused(field: str, kind: str) -> CheckpointRefusedError:
    return CheckpointRefusedError(
        f"found the key {field} of the type {kind}; expected a type whose hash places rows: a number, date, time, "
        "interval, string without a collation, binary, or structs and arrays of them; start the query anew with "
        "another key, for example a string made from it"
    )
