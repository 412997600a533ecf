"""Spark types and values mapped to PostgreSQL.

==================================  ============================================================
Spark                               PostgreSQL
==================================  ============================================================
boolean, tinyint, smallint, int     boolean, smallint, smallint, integer
bigint, float, double               bigint, real, double precision
decimal(p,s)                        numeric(p,s)
string, binary                      text, bytea
date, timestamp, timestamp_ntz      date, timestamp with time zone, timestamp without time zone
array of one of the above           array of that type
struct, map, array of these         jsonb
==================================  ============================================================

An array of arrays is jsonb as well, because PostgreSQL arrays must be rectangular. In jsonb, a number that JSON lacks
is the string ``NaN``, ``Infinity`` or ``-Infinity``; bytes are Base64, times ISO 8601, map keys strings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from statecore.model import ArrayType, AtomicType, DataType, DecimalType, MapType, StringType, StructType

_JSON = msgspec.json.Encoder(decimal_format="number")
_ATOMS = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}

Convert = Callable[[Any], Any]


def column_type(data_type: DataType) -> str:
    """Return the PostgreSQL type of a column, as ``format_type`` prints it."""
    match data_type:
        case AtomicType(name):
            return _ATOMS[name]
        case DecimalType(precision, scale):
            return f"numeric({precision},{scale})"
        case StringType():
            return "text"
        case ArrayType(element) if not _has_parts(element):
            return f"{column_type(element)}[]"
    return "jsonb"


def converter(data_type: DataType) -> Convert:
    """Return a function that converts a value of ``from_arrow`` to a value for COPY."""
    if column_type(data_type) != "jsonb":
        return lambda value: value
    convert = _json(data_type)
    return lambda value: None if value is None else _JSON.encode(convert(value)).decode()


def _has_parts(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType | MapType | StructType)


def _json(data_type: DataType) -> Convert:
    """Return a function that converts a value so that msgspec encodes it as JSON without loss."""
    match data_type:
        case AtomicType("float" | "double"):
            return _finite
        case ArrayType(element):
            return _array(_json(element))
        case MapType(key, value_type):
            return _map(_json(key), _json(value_type))
        case StructType(fields):
            return _struct([(field.name, _json(field.type)) for field in fields])
    return lambda value: value


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _array(item: Convert) -> Convert:
    return _nullable(lambda value: list(map(item, value)))


def _struct(parts: Sequence[tuple[str, Convert]]) -> Convert:
    return _nullable(lambda value: {name: part(item) for (name, part), item in zip(parts, value, strict=True)})


def _map(key: Convert, item: Convert) -> Convert:
    return _nullable(lambda value: {_text(key(name)): item(part) for name, part in value.items()})


def _text(value: Any) -> str:
    """Return a map key as a string: itself, or its JSON text."""
    return value if isinstance(value, str) else _JSON.encode(value).decode().strip('"')


def _finite(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
