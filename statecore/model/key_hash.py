"""Canonical keys and their key groups: the Python twin of ``pmod(xxhash64(key columns…), max_parallelism)``.

The rules are those of Spark's ``XxHash64`` expression: XXH64 with seed 42; each column's hash is the seed of the next.

==========================================  ===========================================
type                                        what is hashed
==========================================  ===========================================
null                                        nothing; the hash stays unchanged
boolean, tinyint, smallint, int             the value as 4 bytes, little-endian
bigint                                      the value as 8 bytes, little-endian
float, double                               IEEE bits as 4 or 8 bytes; one NaN, -0.0 as 0.0
date                                        days since 1970-01-01 as 4 bytes
timestamp, timestamp_ntz                    microseconds since 1970-01-01 as 8 bytes
decimal up to 18 digits                     the unscaled value as 8 bytes
wider decimal                               the unscaled value, shortest two's complement, big-endian
string, binary                              the (UTF-8) bytes
array, struct                               element after element, field after field
==========================================  ===========================================

Every function raises UnsupportedTypeError for a type that cannot be a key, and StateTypeError for a key that does not
fit its types.

Spark normalises NaN and -0.0 only for the hash and keeps them in the key columns, so this module makes keys canonical
after they leave the JVM.
"""

from __future__ import annotations

import math
import reprlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from xxhash import xxh64_intdigest

from statecore.errors import StateTypeError
from statecore.model.key_groups import check_max_parallelism
from statecore.model.leaves import EXACT, Check, MisfitError, leaf_check, nullable, round_to_float
from statecore.model.parsing import parse_type
from statecore.model.types import ArrayType, AtomicType, DataType, DecimalType, StringType, StructType, require_key_type

KeyEncoder = Callable[[tuple[Any, ...]], tuple[Any, ...]]

_SPARK_SEED = 42
_LONG_DECIMAL_DIGITS = 18

_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH_NTZ = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Field:
    """Compiled functions of one key field.

    Attributes:
        ddl: Canonical type.
        check: Returns the canonical value, or raises MisfitError.
        encode: Like ``check`` but unchecked, for values from Arrow; None when those are already canonical.
        hash: Hashes a canonical value with a seed.

    """

    ddl: str
    check: Callable[[Any], Any]
    encode: Callable[[Any], Any] | None
    hash: Callable[[Any, int], int]


def canonical_key(key: tuple[Any, ...], key_types: Sequence[str]) -> tuple[Any, ...]:
    """Return the canonical form of ``key``: equal keys have equal canonical forms.

    NaN becomes ``math.nan`` itself, -0.0 becomes 0.0, floats get float precision, structs and arrays become tuples,
    binary becomes bytes, timestamps become aware in UTC (naive ones are read as UTC), decimals get the scale of their
    type.

    Args:
        key: One value per key field; structs as tuples, rows or dicts.
        key_types: Spark DDL of each key field.

    Raises:
        StateTypeError: The key does not fit the types.
        UnsupportedTypeError: A type cannot be a key.

    """
    fields = _compile(tuple(key_types))
    if not isinstance(key, tuple) or len(key) != len(fields):
        raise StateTypeError(
            f"found the key {reprlib.repr(key)}; expected a tuple with one value for each of the key types "
            f"{list(key_types)}; give a key of one field as a tuple, too: (value,)"
        )
    return tuple([_checked(index, field, value) for index, (field, value) in enumerate(zip(fields, key, strict=True))])


def hash_key(key: tuple[Any, ...], key_types: Sequence[str]) -> int:
    """Return Spark's ``xxhash64`` of the key columns, a signed 64-bit integer."""
    seed = _SPARK_SEED
    for field, value in zip(_compile(tuple(key_types)), canonical_key(key, key_types), strict=True):
        seed = field.hash(value, seed)
    return seed - (1 << 64) if seed >> 63 else seed


def key_group_for(key: tuple[Any, ...], key_types: Sequence[str], max_parallelism: int) -> int:
    """Return the key group of ``key``, the same as the JVM computes.

    Raises:
        InvalidParallelismError: ``max_parallelism`` is out of bounds.
        StateTypeError: The key does not fit the types.
        UnsupportedTypeError: A type cannot be a key.

    """
    check_max_parallelism(max_parallelism)
    return hash_key(key, key_types) % max_parallelism


def key_encoder(key_types: Sequence[str]) -> KeyEncoder:
    """Return a fast ``canonical_key`` without checks, for keys from Arrow's ``to_pylist``."""
    encoders = [field.encode for field in _compile(tuple(key_types))]
    if not any(encoders):
        return _unchanged
    if len(encoders) == 1:
        only = encoders[0]
        assert only is not None
        return lambda key: (only(key[0]),)
    return lambda key: tuple(
        [value if encode is None else encode(value) for encode, value in zip(encoders, key, strict=True)]
    )


def is_canonical(key_types: Sequence[str]) -> bool:
    """Return whether keys from Arrow are already canonical, so that they compare column by column."""
    return key_encoder(key_types) is _unchanged


def key_check(data_type: DataType) -> Check:
    """Return a function that makes a key field canonical; it raises MisfitError, also for None."""
    require_key_type(data_type)
    return _checker(data_type)


def _unchanged(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return key


def _checked(index: int, field: _Field, value: object) -> object:
    try:
        return field.check(value)
    except MisfitError as misfit:
        inside = "" if misfit.value is value else f" (in {reprlib.repr(value)})"
        raise StateTypeError(
            f"found {reprlib.repr(misfit.value)} of type {type(misfit.value).__name__}{inside} in key field {index}; "
            f"expected a value that fits {misfit.expected}, of the key type {field.ddl}; "
            "convert the value, or declare the key with its real type"
        ) from None


@lru_cache(maxsize=1024)
def _compile(key_types: tuple[str, ...]) -> tuple[_Field, ...]:
    types = map(parse_type, key_types)
    return tuple(_Field(each.ddl(), nullable(key_check(each)), _encoder(each), _hasher(each)) for each in types)


# --- canonical form, checked ---


def _checker(data_type: DataType) -> Callable[[Any], Any]:
    match data_type:
        case StructType():
            return _struct_checker(data_type)
        case ArrayType():
            return _array_checker(data_type)
    check, canonical = leaf_check(data_type), _encoder(data_type)
    return check if canonical is None else lambda value: canonical(check(value))


def _struct_checker(data_type: StructType) -> Callable[[Any], tuple[Any, ...]]:
    ddl, names = data_type.ddl(), [field.name for field in data_type.fields]
    checks = [_checker(field.type) for field in data_type.fields]
    checks = [nullable(c) if f.nullable else c for f, c in zip(data_type.fields, checks, strict=True)]

    def check(value: object) -> tuple[Any, ...]:
        if isinstance(value, dict) and value.keys() == set(names):
            value = tuple(value[name] for name in names)
        if not isinstance(value, tuple) or len(value) != len(names):
            raise MisfitError(value, ddl)
        return tuple([part(item) for part, item in zip(checks, value, strict=True)])

    return check


def _array_checker(data_type: ArrayType) -> Callable[[Any], tuple[Any, ...]]:
    ddl, check_element = data_type.ddl(), nullable(_checker(data_type.element))

    def check(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise MisfitError(value, ddl)
        return tuple([check_element(item) for item in value])

    return check


# --- canonical form, unchecked ---


def _canonical_double(value: float) -> float:
    # math.nan is a single object, and tuples and dicts compare by identity first, so this NaN equals itself.
    return value + 0.0 if value == value else math.nan


def _canonical_float(value: float) -> float:
    return _canonical_double(round_to_float(value))


def _canonical_timestamp(value: datetime) -> datetime:
    if value.tzinfo is UTC:
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _encoder(data_type: DataType) -> Callable[[Any], Any] | None:
    match data_type:
        case StructType():
            return nullable(_struct_encoder(data_type))
        case ArrayType(element):
            inner = _encoder(element)
            if inner is None:
                return nullable(tuple)
            return nullable(lambda value: tuple([inner(item) for item in value]))
        case AtomicType(name) if name in _ATOM_ENCODERS:
            return nullable(_ATOM_ENCODERS[name])
    return None


def _struct_encoder(data_type: StructType) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in data_type.fields]
    encoders = [_encoder(field.type) for field in data_type.fields]

    def encode(value: Any) -> tuple[Any, ...]:
        items = [value[name] for name in names] if isinstance(value, dict) else value
        return tuple([item if part is None else part(item) for part, item in zip(encoders, items, strict=True)])

    return encode


_ATOM_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "float": _canonical_float,
    "double": _canonical_double,
    "binary": bytes,
    "timestamp": _canonical_timestamp,
}


# --- hash of canonical values ---


def _hasher(data_type: DataType) -> Callable[[Any, int], int]:
    match data_type:
        case StructType(fields):
            parts = [_hasher(field.type) for field in fields]
            return lambda value, seed: seed if value is None else _chain(zip(parts, value, strict=True), seed)
        case ArrayType(element):
            part = _hasher(element)
            return lambda value, seed: _chain(((part, item) for item in value or ()), seed)
    to_bytes = _byte_view(data_type)
    return lambda value, seed: seed if value is None else xxh64_intdigest(to_bytes(value), seed)


def _chain(parts: Iterable[tuple[Callable[[Any, int], int], Any]], seed: int) -> int:
    for part, value in parts:
        seed = part(value, seed)
    return seed


def _byte_view(data_type: DataType) -> Callable[[Any], bytes]:
    match data_type:
        case StringType():
            return str.encode
        case DecimalType(precision, scale):
            if precision <= _LONG_DECIMAL_DIGITS:
                return lambda value: _LONG.pack(_unscaled(value, scale))
            return lambda value: _big_integer_bytes(_unscaled(value, scale))
        case AtomicType(name):
            return _ATOM_BYTES[name]
    raise AssertionError(f"no hash for {data_type.ddl()}")


def _unscaled(value: Decimal, scale: int) -> int:
    return int(value.scaleb(scale, context=EXACT))


def _big_integer_bytes(number: int) -> bytes:
    """Return the same bytes as Java's ``BigInteger.toByteArray``."""
    magnitude = ~number if number < 0 else number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


_ATOM_BYTES: dict[str, Callable[[Any], bytes]] = {
    "boolean": _INT.pack,
    "tinyint": _INT.pack,
    "smallint": _INT.pack,
    "int": _INT.pack,
    "bigint": _LONG.pack,
    "float": _FLOAT.pack,
    "double": _DOUBLE.pack,
    "binary": bytes,
    "date": lambda value: _INT.pack(value.toordinal() - _EPOCH_DAY),
    "timestamp": lambda value: _LONG.pack((value - _EPOCH_UTC) // _MICROSECOND),
    "timestamp_ntz": lambda value: _LONG.pack((value - _EPOCH_NTZ) // _MICROSECOND),
}
