"""Converts stored values of an older type to the type that a program declares now.

==========================================  =============================================================
change                                      stored value becomes
==========================================  =============================================================
field added, nullable                       None
field dropped                               dropped
fields reordered                            same values, matched by name, case-sensitive
field renamed by ``renames``                same value
NOT NULL removed                            same value
tinyint → smallint → int → bigint           same number
float → double                              same number
tinyint, smallint → float                   same number
tinyint, smallint, int → double             same number
integers → decimal                          same number, if the decimal holds every value of the type
decimal → decimal                           same number, if neither side of the point gets shorter
==========================================  =============================================================

The changes apply at any depth of structs, array elements and map values; map keys must stay the same. Every other
change is refused, because it would lose or invent data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from statecore.errors import StateMigrationError
from statecore.model.leaves import Check, leaf_check, nullable
from statecore.model.parsing import parse_type
from statecore.model.types import ArrayType, AtomicType, DataType, DecimalType, Field, MapType, StructType
from statecore.model.values import row_class

# Decimal digits of the largest value of the type.
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}

# Wider types with the same Python values, and float types that hold the integer type exactly.
_SAME = {
    "tinyint": {"smallint", "int", "bigint"},
    "smallint": {"int", "bigint"},
    "int": {"bigint"},
    "float": {"double"},
}
_TO_FLOAT = {"tinyint": {"float", "double"}, "smallint": {"float", "double"}, "int": {"double"}}

_OTHER_TYPE = "keep the type, or declare the new one under another name and fill it from this one"
_OTHER_RENAME = "correct or remove the rename"


class _UnfitError(Exception):
    """A refused change: its place, what was found, and the remedy."""

    def __init__(self, path: str, found: str, remedy: str) -> None:
        super().__init__(path, found, remedy)
        self.place = f"at {path!r}" if path else "at the value itself"
        self.found = found
        self.remedy = remedy


def migration(old_ddl: str, new_ddl: str, renames: Mapping[str, str], state: str) -> Check | None:
    """Return the conversion of a stored value from the old type to the new one; None for equal types.

    Values are in the stored form of ``values``, before and after. ``renames`` may stay after the rename is done. A
    field with a dot in its name cannot be renamed.

    Args:
        old_ddl: Stored type as Spark DDL.
        new_ddl: Declared type as Spark DDL.
        renames: Dotted path of old names → new name, e.g. ``{"address.zip": "postcode"}``. Array elements and map
            values have the path of the array or map.
        state: Name of the state, for messages.

    Raises:
        StateMigrationError: A change would lose stored data, or a rename fits neither type.
        UnsupportedTypeError: A DDL is not a type that state supports.

    """
    old, new = parse_type(old_ddl), parse_type(new_ddl)
    walk = _Walk(renames)
    try:
        convert = walk.convert(old, new, ("",))
        walk.require_all_used()
    except _UnfitError as unfit:
        raise StateMigrationError(
            f"found the state {state!r} stored as {old.ddl()} and declared as {new.ddl()}: {unfit.place} "
            f"{unfit.found}; expected a compatible change: a nullable field added, a field dropped, another order, "
            f"a wider number, NOT NULL removed, or a declared rename; {unfit.remedy}"
        ) from None
    if old == new:
        return None
    return _unchanged if convert is None else nullable(convert)


def _unchanged(value: Any) -> Any:
    return value


class _Walk:
    """Walks both types in parallel and builds the conversion.

    A place has several paths: the first is that of the stored type, the others use names from before earlier renames,
    so that renames below a renamed field still apply. None instead of a conversion keeps stored values unchanged. No
    conversion is called with None.
    """

    def __init__(self, renames: Mapping[str, str]) -> None:
        self._renames = renames
        self._used: set[str] = set()

    def require_all_used(self) -> None:
        """Refuse renames whose path leads to no struct."""
        for path in sorted(self._renames.keys() - self._used):
            problem = f"there is no such field to rename to {self._renames[path]!r}"
            raise _UnfitError(path, problem, _OTHER_RENAME)

    def convert(self, old: DataType, new: DataType, paths: tuple[str, ...]) -> Check | None:
        """Return the conversion from the old type to the new."""
        match old, new:
            case StructType(), StructType():
                return self._struct(old, new, paths)
            case ArrayType(), ArrayType():
                return _array(self.convert(old.element, new.element, paths))
            case MapType(), MapType():
                if old.key != new.key:
                    problem = f"map keys change from {old.key.ddl()} to {new.key.ddl()}"
                    raise _UnfitError(paths[0], problem, _OTHER_TYPE)
                return _map(self.convert(old.value, new.value, paths))
        if old == new or _is_same(old, new):
            return None
        if _is_wider(old, new):
            return leaf_check(new)
        raise _UnfitError(paths[0], f"{old.ddl()} becomes {new.ddl()}", _OTHER_TYPE)

    def _struct(self, old: StructType, new: StructType, paths: tuple[str, ...]) -> Check | None:
        before = {field.name: (index, field) for index, field in enumerate(old.fields)}
        sources, earlier = self._sources(set(before), {field.name for field in new.fields}, paths)
        parts: list[Check] = []
        moved = tuple(before) != tuple(field.name for field in new.fields)
        for field in new.fields:
            source = sources.get(field.name)
            if source is None:
                parts.append(_added(field, _below(paths[0], field.name)))
                continue
            index, stored = before[source]
            names = (source, *earlier.get(source, ()))
            below = tuple(_below(path, name) for name in names for path in paths)
            if stored.nullable and not field.nullable:
                raise _UnfitError(below[0], "a nullable field becomes NOT NULL", "remove NOT NULL")
            convert = self.convert(stored.type, field.type, below)
            moved = moved or convert is not None
            parts.append(_picked(index, convert))
        if not moved:
            return None
        make = row_class(tuple(field.name for field in new.fields))
        return lambda row: make([part(row) for part in parts])

    def _sources(
        self, before: set[str], after: set[str], paths: tuple[str, ...]
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Return the old name of each new field, and the names that old fields had before earlier renames."""
        sources = {name: name for name in before}
        earlier: dict[str, list[str]] = {}
        for path, name, target in self._renames_of(paths):
            if target not in after or name in after:
                problem = f"a field is renamed to {target!r}, but the new type has the fields {sorted(after)}"
                raise _UnfitError(path, problem, _OTHER_RENAME)
            if name not in before and target not in before:
                problem = f"a field is renamed to {target!r}, but the old type has the fields {sorted(before)}"
                raise _UnfitError(path, problem, _OTHER_RENAME)
            if name not in before:
                earlier.setdefault(target, []).append(name)
            elif target in sources:
                problem = f"a field is renamed to {target!r}, but another is, too, or already has that name"
                raise _UnfitError(path, problem, _OTHER_RENAME)
            else:
                sources[target] = name
        return sources, earlier

    def _renames_of(self, paths: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
        """Yield path, last name and new name of the renames for fields of the struct at these paths."""
        for path, target in self._renames.items():
            parent, _, name = path.rpartition(".")
            if parent in paths:
                self._used.add(path)
                yield path, name, target


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _added(field: Field, path: str) -> Check:
    if not field.nullable:
        raise _UnfitError(path, "a NOT NULL field is new and has no stored values", "remove NOT NULL")
    return lambda row: None


def _picked(index: int, convert: Check | None) -> Check:
    pick: Check = itemgetter(index)
    if convert is None:
        return pick
    part = nullable(convert)
    return lambda row: part(row[index])


def _array(element: Check | None) -> Check | None:
    if element is None:
        return None
    part = nullable(element)
    return lambda values: list(map(part, values))


def _map(value: Check | None) -> Check | None:
    if value is None:
        return None
    part = nullable(value)
    return lambda entries: {key: part(item) for key, item in entries.items()}


def _is_same(old: DataType, new: DataType) -> bool:
    return isinstance(old, AtomicType) and isinstance(new, AtomicType) and new.name in _SAME.get(old.name, ())


def _is_wider(old: DataType, new: DataType) -> bool:
    match old, new:
        case AtomicType(), AtomicType():
            return new.name in _TO_FLOAT.get(old.name, ())
        case AtomicType(), DecimalType():
            return old.name in _INTEGER_DIGITS and new.precision - new.scale >= _INTEGER_DIGITS[old.name]
        case DecimalType(), DecimalType():
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    return False
