"""Rows declared by a class, a dataclass or a ``typing.NamedTuple``, instead of by Spark DDL.

==========================================  ============================================================
annotation                                  column
==========================================  ============================================================
``bool``, ``int``, ``float``, ``str``       boolean, bigint, double, string
``bytes``, ``date``, ``datetime``           binary, date, timestamp
``list[T]``, ``dict[K, V]``                 array, map
a dataclass or ``NamedTuple``               struct
``Annotated[T, "decimal(12,2)"]``           that type
``T | None``                                the column of ``T``, nullable; all others are NOT NULL
==========================================  ============================================================
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any

from statecore.errors import UnsupportedTypeError
from statecore.model.parsing import parse_type
from statecore.model.types import ArrayType, AtomicType, DataType, Field, MapType, StringType, StructType

_ATOMS: dict[object, DataType] = {
    bool: AtomicType("boolean"),
    int: AtomicType("bigint"),
    float: AtomicType("double"),
    str: StringType(),
    bytes: AtomicType("binary"),
    date: AtomicType("date"),
    datetime: AtomicType("timestamp"),
}


def row_ddl(declared: object) -> str:
    """Return the DDL of a row that a class declares; a text is returned as it is.

    Raises:
        UnsupportedTypeError: A field's annotation has no Spark type, or the object declares no row.

    """
    if isinstance(declared, str):
        return declared
    return ", ".join(field.ddl() for field in _fields(declared, ()))


def row_items(value: object, names: Sequence[str]) -> tuple[Any, ...] | None:
    """Return the fields of an instance of a dataclass in the order of ``names``; None for anything else.

    As with a dict, missing fields are None.

    Raises:
        ValueError: The instance has a field of another name.

    """
    cls: Any = type(value)
    return _getter(cls, tuple(names))(value) if is_row_class(cls) else None


def is_row_class(cls: type) -> bool:
    """Return whether a class is a dataclass, whose instances are rows by field name."""
    return hasattr(cls, "__dataclass_fields__")


@lru_cache(maxsize=1024)
def _getter(cls: type, names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    own = [field.name for field in dataclasses.fields(cls)]
    unknown, missing = sorted(set(own) - set(names)), set(names) - set(own)
    if unknown:
        raise ValueError(f"{cls.__name__} has {'fields' if unknown[1:] else 'field'} {', '.join(map(repr, unknown))}")
    if missing:
        return lambda value: tuple(None if name in missing else getattr(value, name) for name in names)
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _fields(cls: object, within: tuple[object, ...]) -> tuple[Field, ...]:
    """Return the fields that a class declares; ``within`` are the classes that it is part of."""
    names = _names(cls)
    if names is None or not names:
        raise UnsupportedTypeError(
            f"found {cls!r} as the columns of a row; expected Spark DDL such as 'k string, total bigint', or a "
            "dataclass or NamedTuple with annotated fields; declare one of them"
        )
    assert isinstance(cls, type)
    if cls in within:
        raise UnsupportedTypeError(
            f"found the class {cls.__name__} within itself; expected a row of finite depth; refer to the inner row by "
            "a key"
        )
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise UnsupportedTypeError(
            f"found an annotation in the class {cls.__name__} that cannot be resolved ({error}); expected names of the "
            "module; define or import them at the top level of the module"
        ) from error
    return tuple(_field(f"{cls.__name__}.{name}", name, hints.get(name), (*within, cls)) for name in names)


def _names(cls: object) -> list[str] | None:
    if not isinstance(cls, type):
        return None
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(getattr(cls, "_fields", ())) if issubclass(cls, tuple) else None


def _field(place: str, name: str, hint: object, within: tuple[object, ...]) -> Field:
    inner, nullable = _without_none(hint)
    return Field(name, _type(place, inner, within), nullable)


def _without_none(hint: object) -> tuple[object, bool]:
    """Return ``T`` of ``T | None``, and whether None was allowed."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        inner, nullable = _without_none(arguments[0])
        return typing.Annotated[(inner, *arguments[1:])], nullable
    if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return next(each for each in arguments if each is not type(None)), True
    return hint, False


def _type(place: str, hint: object, within: tuple[object, ...]) -> DataType:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        # Other annotations are for other tools.
        ddl = next((each for each in arguments[1:] if isinstance(each, str)), None)
        return _type(place, arguments[0], within) if ddl is None else parse_type(ddl)
    if hint in _ATOMS:
        return _ATOMS[hint]
    if origin is list and len(arguments) == 1:
        return ArrayType(_type(place, _without_none(arguments[0])[0], within))
    if origin is dict and len(arguments) == 2:
        key, value = arguments
        return MapType(_type(place, key, within), _type(place, _without_none(value)[0], within))
    if _names(hint):
        return StructType(_fields(hint, within))
    remedy = "write Annotated[Decimal, 'decimal(12,2)']" if hint is Decimal else "write Annotated[…, 'DDL type']"
    raise UnsupportedTypeError(
        f"found {getattr(hint, '__name__', hint)} as the type of {place}; expected bool, int, float, str, bytes, date, "
        f"datetime, list[…], dict[…, …], a dataclass or NamedTuple, or one of them | None; {remedy}"
    )
