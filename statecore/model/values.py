"""The stored form of values: every write converts a value to the form that a restore from Arrow returns.

==========================================  =============================================================
type                                        stored as
==========================================  =============================================================
scalar                                      the form of ``leaves``; NaN and -0.0 are kept
array                                       list; from a list or tuple
map                                         dict without a None key; from a dict
struct                                      named tuple of ``row_class``; from a dict, tuple, list or dataclass
==========================================  =============================================================

A stored value equals its copy after a round trip through Arrow, types included, and shares nothing mutable with the
value that the caller passed.
"""

from __future__ import annotations

import reprlib
from collections import namedtuple
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NoReturn

from statecore.errors import UnsupportedTypeError
from statecore.model.key_hash import key_check
from statecore.model.leaves import INTEGER_BITS, Check, MisfitError, leaf_check, nullable
from statecore.model.parsing import parse_type
from statecore.model.row_classes import is_row_class, row_items
from statecore.model.types import ArrayType, AtomicType, DataType, Field, MapType, StringType, StructType

__all__ = ["MisfitError", "ValueType", "map_key_type", "row_class", "value_type"]


@dataclass(frozen=True, slots=True)
class ValueType:
    """How values of one type are stored.

    Attributes:
        ddl: Canonical type.
        conform: Returns the stored form of a value, not shared with the caller; None stays None. Raises MisfitError.
        copy: Returns a deep copy of a stored value; None for a type whose stored values are immutable.

    """

    ddl: str
    conform: Check
    copy: Check | None


@lru_cache(maxsize=1024)
def row_class(names: tuple[str, ...]) -> partial[Any]:
    """Return the constructor of a named tuple with these fields; a name that is not an identifier becomes ``_i``.

    Its one argument is the class.
    """
    row: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    # Like _make without its Python frame and length check: this runs for every record.
    return partial(tuple.__new__, row)


@lru_cache(maxsize=1024)
def value_type(ddl: str) -> ValueType:
    """Return the stored form of a Spark type; a map with arrays in its keys is also an UnsupportedTypeError."""
    data_type = parse_type(ddl)
    return ValueType(data_type.ddl(), _conform(data_type), _copy(data_type))


@lru_cache(maxsize=1024)
def map_key_type(ddl: str) -> Check:
    """Return a function that makes a user key of map state canonical, as ``canonical_key`` defines it.

    The function raises MisfitError, also for None; a type that cannot be a key raises UnsupportedTypeError.
    """
    data_type = parse_type(ddl)
    check = key_check(data_type)
    # The fast path returns the value itself, which may not be canonical for a double.
    return check if data_type == AtomicType("double") else _quick(data_type, check)


# --- stored form ---


def _conform(data_type: DataType) -> Check:
    match data_type:
        case StructType():
            return _struct_conform(data_type)
        case ArrayType():
            return _array_conform(data_type)
        case MapType():
            return _map_conform(data_type)
    return _quick(data_type, nullable(leaf_check(data_type)))


def _required(conform: Check, ddl: str) -> Check:
    def required(value: Any) -> Any:
        if value is None:
            raise MisfitError(None, f"{ddl} not null")
        return conform(value)

    return required


def _quick(data_type: DataType, check: Check) -> Check:
    """Add a fast path for the common case of a type: state is written for every record."""
    match data_type:
        case AtomicType(name) if name in INTEGER_BITS:
            return _quick_integer(INTEGER_BITS[name], check)
        case AtomicType("boolean"):
            return lambda value: value if value is True or value is False else check(value)
        case AtomicType("double"):
            return lambda value: value if type(value) is float else check(value)
        case StringType():
            return lambda value: value if type(value) is str and value.isascii() else check(value)
    return check


def _quick_integer(bits: int, check: Check) -> Check:
    low, high = -1 << (bits - 1), (1 << (bits - 1)) - 1
    return lambda value: value if type(value) is int and low <= value <= high else check(value)


def _struct_conform(data_type: StructType) -> Check:
    ddl, names = data_type.ddl(), tuple(field.name for field in data_type.fields)
    known, width, make = frozenset(names), len(names), row_class(names)
    parts = [_field_conform(field) for field in data_type.fields]

    def conform(value: Any) -> Any:
        if isinstance(value, (tuple, list)) and len(value) == width:
            items: Sequence[Any] = value
        elif isinstance(value, dict) and value.keys() <= known:
            items = [value.get(name) for name in names]
        elif value is None:
            return None
        elif is_row_class(type(value)):
            items = _items(value, names, ddl)
        else:
            raise MisfitError(value, ddl, fields=fields_off(value, names))
        try:
            return make([part(item) for part, item in zip(parts, items, strict=True)])
        except MisfitError:
            _locate(zip(names, parts, items, strict=True))

    return conform


def _items(value: Any, names: Sequence[str], ddl: str) -> Sequence[Any]:
    try:
        return row_items(value, names) or ()
    except ValueError as error:
        raise MisfitError(value, ddl, fields=str(error)) from None


def fields_off(value: object, names: Sequence[str]) -> str:
    """Describe the missing and surplus fields of a value; empty for a value that is not a row."""
    if not isinstance(value, (tuple, list, dict)):
        return ""
    # A dict may omit fields; they count as missing only when it also has an unknown one.
    given = list(value) if isinstance(value, dict) else getattr(value, "_fields", names[: len(value)])
    missing, unknown = [name for name in names if name not in given], [name for name in given if name not in names]
    said = [f"{what} field {name!r}" for what, off in (("missing", missing), ("unknown", unknown)) for name in off]
    return ", ".join(said) or f"{len(value)} values for {len(names)} fields"


def _field_conform(field: Field) -> Check:
    conform = _conform(field.type)
    return conform if field.nullable else _required(conform, field.type.ddl())


def _array_conform(data_type: ArrayType) -> Check:
    ddl, element = data_type.ddl(), _conform(data_type.element)

    def conform(value: Any) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise MisfitError(value, ddl)
        try:
            return list(map(element, value))
        except MisfitError:
            _locate((f"[{index}]", element, item) for index, item in enumerate(value))

    return conform


def _map_conform(data_type: MapType) -> Check:
    if _holds_array(data_type.key):
        raise UnsupportedTypeError(
            f"found the type {data_type.ddl()!r}; expected a map whose keys hold no arrays, which Python cannot look "
            "up; use map state, whose keys may hold arrays, or an array of structs with a key and a value"
        )
    ddl, item = data_type.ddl(), _conform(data_type.value)
    key = _required(_conform(data_type.key), data_type.key.ddl())

    def conform(value: Any) -> dict[Any, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise MisfitError(value, ddl)
        try:
            entries = dict(zip(map(key, value), map(item, value.values()), strict=True))
        except MisfitError:
            _locate(
                chain(
                    (("key", key, map_key) for map_key in value),
                    ((f"[{reprlib.repr(map_key)}]", item, part) for map_key, part in value.items()),
                )
            )
        if len(entries) != len(value):  # different keys became equal in their stored form
            raise MisfitError(value, ddl)
        return entries

    return conform


def _holds_array(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_holds_array(field.type) for field in data_type.fields)
    return isinstance(data_type, ArrayType)


def _locate(parts: Iterable[tuple[str, Check, Any]]) -> NoReturn:
    """Raise the MisfitError of the first part that does not fit, with its path.

    Called only after a misfit, so that fitting values do not pay for tracking paths.
    """
    for step, conform, item in parts:
        try:
            conform(item)
        except MisfitError as misfit:
            raise misfit.within(step) from None
    raise AssertionError("every part fits")


# --- copies of stored values ---


def _copy(data_type: DataType) -> Check | None:
    match data_type:
        case ArrayType(element):
            item = _copy(element)
            return nullable(list if item is None else lambda value: list(map(item, value)))
        case MapType(_, entry):
            part = _copy(entry)
            return nullable(dict if part is None else lambda value: {key: part(each) for key, each in value.items()})
        case StructType(fields):
            return _struct_copy(fields)
    return None


def _struct_copy(fields: tuple[Field, ...]) -> Check | None:
    copies = [_copy(field.type) for field in fields]
    if not any(copies):
        return None
    make = row_class(tuple(field.name for field in fields))
    return nullable(
        lambda value: make([item if copy is None else copy(item) for copy, item in zip(copies, value, strict=True)])
    )
