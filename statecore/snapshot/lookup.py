"""The state of one key, from the files of a manifest: without Spark, and without the state of other keys.

::

    key ─► key group ─► subtask ─► its files ─► their rows of the key, oldest file first

Of a large base only the row groups of the key group are read. Arrow compares their rows, and those of the changelogs,
with the key. Only the rows of the key become Python objects.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from statecore.errors import ConfigurationError, StateTypeError
from statecore.model import KeyGroupRange, StateKind, canonical_key, key_group_for, parse_type, subtask_for_key_group
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.live_rows import base_rows, one_row_per_scope, with_session_bounds, without_expired
from statecore.snapshot.manifest import FieldRef, Manifest, OperatorState, StateSchema
from statecore.snapshot.restore import NoClock, apply_keyed_files, describe_key, table_schema
from statecore.state import HeapKeyedStateBackend, Window
from statecore.state.session_columns import SESSIONS_STATE
from statecore.state.tables import GLOBAL_WINDOW, Key


@dataclass(frozen=True, slots=True)
class StateOfKey:
    """What a key has in a state, or in one window of it.

    Attributes:
        state: The state.
        window: The window; None for state of the key alone, and in ``GlobalWindows``, which have no end.
        value: The value or accumulator, a list of elements, or a dict of entries; of timers, their times in ms.
            State that had expired at the epoch's time is left out.

    """

    state: StateSchema
    window: Window | None
    value: Any


def parse_key(operator: OperatorState, text: str) -> Key:
    """Return a key from its text.

    Args:
        operator: The operator, which has the types.
        text: The value of each column, separated by commas; with one column all of the text. Or a JSON array with an
            item for each column, where a null is one, and a text may have commas. A timestamp is as
            ``2024-02-29 12:00:00``, in UTC unless it has a zone; bytes are hexadecimal.

    Raises:
        ConfigurationError: The operator has no key, or the text is not one.

    """
    fields = operator.key_fields
    items = _items(text, len(fields))
    if not fields or len(items) != len(fields):
        raise ConfigurationError(
            f"found the key {text!r} for operator {operator.uid!r}; expected "
            f"{f'a value for each of {describe_key(fields)}' if fields else 'none, because it has no keyed state'}; "
            "separate the columns by commas, or give a JSON array"
        )
    values = tuple(_value(field, item) for field, item in zip(fields, items, strict=True))
    try:
        return canonical_key(values, [field.type for field in fields])
    except StateTypeError as error:
        raise ConfigurationError(str(error)) from error


def _items(text: str, columns: int) -> list[str | None]:
    with suppress(ValueError):
        listed = json.loads(text) if text.startswith("[") else None
        if isinstance(listed, list) and len(listed) == columns:
            return [item if item is None or isinstance(item, str) else json.dumps(item) for item in listed]
    return [text] if columns == 1 else [part.strip() for part in text.split(",")]


def _value(field: FieldRef, text: str | None) -> Any:
    if text is None:
        return None
    declared = parse_type(field.type).arrow()
    if pa.types.is_nested(declared):
        raise ConfigurationError(
            f"found the key column {field.name} of type {field.type}; expected none of arrays or structs, which no "
            "text names; read the state with read_savepoint"
        )
    try:
        if pa.types.is_binary(declared):
            return bytes.fromhex(text)
        if pa.types.is_timestamp(declared) and declared.tz is not None:
            at = datetime.fromisoformat(text)
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        return pa.array([text]).cast(declared)[0].as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"found {text!r} for the key column {field.name}; expected a value of type {field.type}; correct it"
        ) from error


def state_of_key(
    store: CheckpointStore, manifest: Manifest, operator: OperatorState, key: Key, states: Collection[StateSchema]
) -> list[StateOfKey]:
    """Return what a key has in some keyed states of an operator: state by state as given, then by window.

    Raises:
        MissingFileError, CorruptFileError: A file is missing or damaged.

    """
    types = [field.type for field in operator.key_fields]
    max_parallelism = manifest.max_parallelism
    group = key_group_for(key, types, max_parallelism)
    subtask = operator.subtasks[subtask_for_key_group(max_parallelism, len(operator.subtasks), group)]
    backend = HeapKeyedStateBackend(max_parallelism, KeyGroupRange(group, group), NoClock())
    names = {state.name for state in states} | {SESSIONS_STATE}
    files = [file for file in subtask.keyed if file.state in names]
    apply_keyed_files(backend, store, operator, files, {group: 0}, key)
    found = []
    for state in states:
        table = backend.restored_table(state.name, table_schema(state))
        if state.ttl is not None:
            table = without_expired(table, state.ttl.ttl_ms, manifest.batch_timestamp_ms)
        rows = with_session_bounds(base_rows(one_row_per_scope(table)), backend)
        windows = rows.windows or [None] * len(rows.keys)
        own = [
            StateOfKey(state, None if window == GLOBAL_WINDOW else window, value)
            for at, window, value in zip(rows.keys, windows, rows.values, strict=True)
            if at == key
        ]
        found += sorted(own, key=lambda each: each.window or (-(2**63), 0))
    return found


def keyed_states(operator: OperatorState, name: str | None = None) -> list[StateSchema]:
    """Return the keyed states of an operator, its timers last; or the one of a name.

    Raises:
        ConfigurationError: There is none, or none of that name.

    """
    keyed = [state for state in operator.states if state.scope == "keyed"]
    keyed.sort(key=lambda state: state.kind is StateKind.TIMERS)
    chosen = [state for state in keyed if name in (None, state.name)]
    if not keyed:
        raise ConfigurationError(
            f"found no keyed state in operator {operator.uid!r}; expected some; look at another operator"
        )
    if not chosen:
        raise ConfigurationError(
            f"found no keyed state {name!r} in operator {operator.uid!r}; expected one of "
            f"{[state.name for state in keyed]}; give one of these names"
        )
    return chosen
