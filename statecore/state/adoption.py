"""Migrates restored state to the descriptor that a program registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statecore.errors import StateMigrationError
from statecore.model import MapType, StateDescriptor, StateKind, parse_type
from statecore.model.evolution import migration
from statecore.state.tables import StateTable, TableSchema, describe


def adopt(table: StateTable, descriptor: StateDescriptor, wanted: TableSchema, now_ms: int, *, sealed: bool) -> bool:
    """Migrate restored rows to a descriptor.

    Values are converted to the new type. Switching a time to live on stamps them with the current time; switching it
    off drops their timestamps, so expired values become readable again.

    Returns:
        Whether anything but the descriptor changed.

    Raises:
        StateMigrationError: The restored state cannot be migrated, or records were already processed.

    """
    if table.kind is not wanted.kind:
        raise StateMigrationError(
            f"found restored state {table.name!r} as {describe(table.schema)}; expected {describe(wanted)}, as the "
            "program declares it; the kind of a state cannot change: give the new state another name"
        )
    convert = _value_migration(table, descriptor, wanted)
    if convert is None and table.stamped == wanted.stamped:
        return False
    if sealed:
        raise StateMigrationError(
            f"found restored state {table.name!r} as {describe(table.schema)}, requested as {describe(wanted)} while "
            "records are processed; expected it to be registered before the first record; get it in open()"
        )
    # Timestamps can change with or without the type, so one pass does both.
    change = _cell_change(convert, table.stamped, wanted.stamped, now_ms)
    for rows in table.groups.values():
        for scope, stored in rows.items():
            rows[scope] = _changed(table.kind, stored, change)
    table.type, table.stamped = wanted.type, wanted.stamped
    return True


def _value_migration(
    table: StateTable, descriptor: StateDescriptor, wanted: TableSchema
) -> Callable[[Any], Any] | None:
    old, new = table.type, wanted.type
    if table.kind is StateKind.MAP:
        old_map, new_map = parse_type(old), parse_type(new)
        assert isinstance(old_map, MapType)
        assert isinstance(new_map, MapType)
        if old_map.key != new_map.key:
            raise StateMigrationError(
                f"found restored state {table.name!r} as {old}; expected {new}, as the program declares it; the key "
                "type of a map cannot change: give the new state another name"
            )
        old, new = old_map.value.ddl(), new_map.value.ddl()
    return migration(old, new, descriptor.renames, table.name)


def _cell_change(
    convert: Callable[[Any], Any] | None, was_stamped: bool, stamped: bool, now_ms: int
) -> Callable[[Any], Any]:
    def change(stored: Any) -> Any:
        value, timestamp = stored if was_stamped else (stored, now_ms)
        if convert is not None:
            value = convert(value)
        return (value, timestamp) if stamped else value

    return change


def _changed(kind: StateKind, stored: Any, change: Callable[[Any], Any]) -> Any:
    if kind is StateKind.LIST:
        return [change(element) for element in stored]
    if kind is StateKind.MAP:
        return {user_key: change(value) for user_key, value in stored.items()}
    return change(stored)
