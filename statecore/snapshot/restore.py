"""Keyed state from files into memory, and from memory into rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from statecore.errors import ManifestError
from statecore.model import KeyGroupRange, key_encoder
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import DELETE, KeyedRows, decode_base, decode_changelog
from statecore.snapshot.manifest import FieldRef, FileKind, KeyedFile, OperatorState, StateSchema
from statecore.state import HeapKeyedStateBackend, StateTable
from statecore.state.keyed import Key


def find_operator(operators: Sequence[OperatorState], uid: str, where: str) -> OperatorState:
    """Return the state of an operator in a manifest.

    Raises:
        ManifestError: The manifest has no such operator.

    """
    for operator in operators:
        if operator.uid == uid:
            return operator
    raise ManifestError(
        f"found the operators {[operator.uid for operator in operators]} in {where}; expected {uid!r}; "
        "give the operator the uid that its state was written under"
    )


def find_state(operator: OperatorState, name: str) -> StateSchema:
    """Return what is known of a state of an operator.

    Raises:
        ManifestError: The operator has no such state.

    """
    for state in operator.states:
        if state.name == name:
            return state
    raise ManifestError(
        f"found the states {[state.name for state in operator.states]} in operator {operator.uid!r}; "
        f"expected {name!r}; give one of these names"
    )


def apply_keyed_files(
    backend: HeapKeyedStateBackend,
    store: CheckpointStore,
    operator: OperatorState,
    files: Sequence[KeyedFile],
    first_file: Mapping[int, int],
) -> None:
    """Bring key groups of a backend up to date from files.

    Args:
        backend: Takes the rows, without counting them as changes.
        store: Where the files lie.
        operator: Names the types of key and states.
        files: Oldest first.
        first_file: Per key group the index of the first file it misses; other key groups are left alone.

    Raises:
        MissingFileError, CorruptFileError: A file is not what the manifest says.

    """
    schemas = {state.name: state for state in operator.states if state.scope == "keyed"}
    encode = key_encoder([field.type for field in operator.key_fields])
    for index, item in enumerate(files):
        start, end = item.key_groups
        wanted = {g for g in range(start, end + 1) if g in first_file and first_file[g] <= index}
        if wanted:
            schema = schemas[item.state]
            table = backend.restored_table(item.state, schema.kind, schema.type)
            _apply(store.read_file(item.file), item.kind, table, wanted, encode)


def _apply(data: bytes, kind: FileKind, table: StateTable, wanted: set[int], encode: Callable[[Key], Key]) -> None:
    reader = decode_base if kind is FileKind.BASE else decode_changelog
    rows = reader(data, KeyGroupRange(min(wanted), max(wanted)))
    groups = {key_group: table.group(key_group) for key_group in wanted}
    for key, key_group, value in zip(map(encode, rows.keys), rows.key_groups, rows.values, strict=True):
        values = groups.get(key_group)
        if values is None:
            continue
        if value is DELETE:
            values.pop(key, None)
        else:
            values[key] = value


def all_rows(table: StateTable) -> KeyedRows:
    """Return a table's rows, by key group."""
    keys: list[Key] = []
    key_groups: list[int] = []
    values: list[Any] = []
    for key_group in sorted(table.groups):
        stored = table.groups[key_group]
        keys.extend(stored)
        key_groups.extend(repeat(key_group, len(stored)))
        values.extend(stored.values())
    return KeyedRows(keys, key_groups, values)


def changed_rows(table: StateTable) -> KeyedRows:
    """Return the rows that were written since the changes were last cleared, by key group."""
    keys: list[Key] = []
    key_groups: list[int] = []
    values: list[Any] = []
    for key_group in sorted(table.changed):
        changed, stored = table.changed[key_group], table.groups.get(key_group, {})
        keys.extend(changed)
        key_groups.extend(repeat(key_group, len(changed)))
        values.extend(stored.get(key, DELETE) for key in changed)
    return KeyedRows(keys, key_groups, values)


def describe_key(fields: Sequence[FieldRef]) -> str:
    """Return a key's columns and types for a message."""
    return "(" + ", ".join(f"{field.name} {field.type}" for field in fields) + ")"
