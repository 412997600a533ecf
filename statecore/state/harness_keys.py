"""The key of a harness, checked as a job checks its key.

A job knows the columns of its key from its file and their types from its sources. A harness may know the columns, if
they were given and not a function; the types are those that were given, or those of the keys that it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from statecore.errors import ConfigurationError, StateTypeError
from statecore.model import canonical_key, key_group_for, parse_type, require_key_type
from statecore.model.keys import KeyColumn, KeyColumns, check_key, check_renames
from statecore.state.tables import Key

KeyOf = Callable[[Any], Key] | Sequence[str]
"""Returns a record's key, or names the fields that it consists of."""


class HarnessKey:
    """The key of the one or two inputs of a harness, which have its types in common.

    Args:
        function: Name of the function, for messages.
        inputs: Per input its key, None or empty without one, and the renames of its columns.
        types: Spark DDL per column; None to derive them from the keys.

    Raises:
        ConfigurationError: A key is neither a function nor columns, or a rename does not fit.
        UnsupportedTypeError: A type cannot be a key.

    """

    def __init__(
        self,
        function: str,
        inputs: Sequence[tuple[KeyOf | None, Mapping[str, str] | None]],
        types: Sequence[str] | None,
    ) -> None:
        self._inputs = [
            _InputKey(function if number == 0 else f"the second input of {function}", key, renames or {})
            for number, (key, renames) in enumerate(inputs)
        ]
        self._given = types is not None
        self._types: tuple[str | None, ...] | None = None if types is None else tuple(map(_canonical, types))
        self._seen: set[tuple[int, tuple[str | None, ...]]] = set()

    @property
    def is_there(self) -> bool:
        """Whether there is a key."""
        return self._inputs[0].of is not None

    @property
    def columns(self) -> tuple[KeyColumns | None, ...]:
        """Per input the columns of its key as far as they are known."""
        return tuple(each.columns(self._types) for each in self._inputs)

    def restore(self, keys: Sequence[KeyColumns | None]) -> None:
        """Check that state was written under this key, and learn from it what is unknown.

        Args:
            keys: The ``columns`` of the harness that wrote the state.

        Raises:
            StateMigrationError: It was written under another key.

        """
        for each, restored in zip(self._inputs, keys, strict=False):
            check_key(each.owner, restored, each.columns(self._types), each.renames)
            names = tuple(column.name for column in restored or () if column.name is not None)
            each.names = each.names if each.names is not None else names or None
            self._learn(tuple(column.type for column in restored or ()))

    def place(self, value: Any, number: int, max_parallelism: int) -> tuple[Key, int]:
        """Return the key of a record of an input, and its key group.

        Raises:
            ConfigurationError: The key is no tuple.
            StateMigrationError: Its types are not those of the keys before it.
            StateTypeError: It does not fit the types that were given, or has a value of an unknown type.

        """
        of = self._inputs[number].of
        if of is None:
            return (), 0
        key = of(value)
        if not isinstance(key, tuple):
            raise ConfigurationError(
                f"found {key!r} returned by key=; expected the key's columns, since a key is a tuple: (v.k,); "
                "return a tuple, even for one column"
            )
        types = self.types_of([key], number)
        return canonical_key(key, types), key_group_for(key, types, max_parallelism)

    def types_of(self, keys: Iterable[Key], number: int = 0) -> list[str]:
        """Return the types of keys of an input; errors are those of ``place``."""
        if not self._given:
            for key in keys:
                self._check(tuple(map(_derived, key)), number)
        # Null hashes the same for every type.
        return [each or "string" for each in self._types or ()]

    def _check(self, types: tuple[str | None, ...], number: int) -> None:
        if (number, types) not in self._seen:
            each = self._inputs[number]
            check_key(each.owner, each.columns(self._types), each.columns(types), {})
            self._learn(types)
            self._seen.add((number, types))

    def _learn(self, types: tuple[str | None, ...]) -> None:
        known = self._types or ()
        self._types = tuple(old or new for old, new in zip_longest(known, types)) or None


class _InputKey:
    """The key of one input; its names are None where a function makes it."""

    def __init__(self, owner: str, key: KeyOf | None, renames: Mapping[str, str]) -> None:
        self.owner, self.renames = owner, renames
        self.of: Callable[[Any], Key] | None = None
        self.names: tuple[str, ...] | None = None
        if callable(key):
            self.of = key
        elif not key:
            self.names = ()
        else:
            self.names = columns = _checked(key)
            self.of = lambda value: tuple([getattr(value, column) for column in columns])
        check_renames(self.names or (), renames)

    def columns(self, types: tuple[str | None, ...] | None) -> KeyColumns | None:
        """Return the columns with types; None if nothing but their existence is known."""
        if self.of is None:
            return ()
        if self.names is None and types is None:
            return None
        return tuple(KeyColumn(name, ddl) for name, ddl in zip_longest(self.names or (), types or ()))


def _checked(key: object) -> tuple[str, ...]:
    columns = () if isinstance(key, str) or not isinstance(key, Sequence) else tuple(key)
    if not columns or not all(isinstance(each, str) for each in columns) or len(set(columns)) < len(columns):
        raise ConfigurationError(
            f"found key={key!r}; expected a function that returns a record's key as a tuple, or the names of the key's "
            "columns, each once; give key=lambda v: (v.k,) or key=('k',)"
        )
    return columns


def _canonical(ddl: str) -> str:
    parsed = parse_type(ddl)
    require_key_type(parsed)
    return parsed.ddl()


_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "bigint"),
    (float, "double"),
    (str, "string"),
    (bytes, "binary"),
    (datetime, "timestamp"),
    (date, "date"),
    (Decimal, "decimal(38,18)"),
)


def _derived(value: object) -> str | None:
    """Return the type of a value in a key; None for null, which every type has."""
    if value is None:
        return None
    ddl = next((ddl for kind, ddl in _TYPES if isinstance(value, kind)), None)
    if ddl is None:
        raise StateTypeError(
            f"found {value!r} in a key; expected a plain value of a known type; give the harness key_types=…"
        )
    return ddl
