"""The state of one key, from the files of a manifest: without Spark, and without the state of other keys.

::

    key ─► key group ─► subtask ─► its files ─► their rows of the key, oldest file first

Of a large base only the row groups of the key group are read, so the cost does not grow with the state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statecore.errors import ConfigurationError, StateTypeError
from statecore.model import KeyGroupRange, StateKind, canonical_key, key_group_for, parse_type, subtask_for_key_group
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.live_rows import base_rows, one_row_per_scope, with_session_bounds, without_expired
from statecore.snapshot.manifest import Manifest, OperatorState, StateSchema
from statecore.snapshot.restore import apply_keyed_files, describe_key, table_schema
from statecore.state import HeapKeyedStateBackend, Window
from statecore.state.session_columns import SESSIONS_STATE
from statecore.state.tables import Key


@dataclass(frozen=True, slots=True)
class StateOfKey:
    """What a key has in a state, or in one window of it.

    Attributes:
        state: The state.
        window: The window, or None for state of the key alone.
        value: The value or accumulator, a list of elements, or a dict of entries; of timers, their times in ms.
            State that had expired at the epoch's time is left out.

    """

    state: StateSchema
    window: Window | None
    value: Any


class _NoClock:
    """A clock for reading state, which does not depend on time."""

    def now_ms(self) -> int:
        return 0


def parse_key(operator: OperatorState, texts: Sequence[str]) -> Key:
    """Return a key from the text of each of its columns.

    Args:
        operator: The operator, which has the types.
        texts: A number as it is written, a date as ``2024-02-29``, a timestamp as ``2024-02-29 12:00:00Z``, ``true``.

    Raises:
        ConfigurationError: The operator has no key, or a text is none of its column.

    """
    fields = operator.key_fields
    if not fields or len(texts) != len(fields):
        raise ConfigurationError(
            f"found the key {list(texts)} for operator {operator.uid!r}; expected "
            f"{f'a value for each of {describe_key(fields)}' if fields else 'none, because it has no keyed state'}; "
            "give one value for each column, in this order"
        )
    values = []
    for field, text in zip(fields, texts, strict=True):
        try:
            values.append(pa.array([text]).cast(parse_type(field.type).arrow())[0].as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConfigurationError(
                f"found {text!r} for the key column {field.name}; expected a value of type {field.type}; correct it"
            ) from error
    try:
        return canonical_key(tuple(values), [field.type for field in fields])
    except StateTypeError as error:
        raise ConfigurationError(str(error)) from error


def state_of_key(
    store: CheckpointStore, manifest: Manifest, operator: OperatorState, key: Key, states: Collection[StateSchema]
) -> list[StateOfKey]:
    """Return what a key has in some keyed states of an operator, ordered as they are declared, then by window.

    Raises:
        MissingFileError, CorruptFileError: A file is missing or damaged.

    """
    types = [field.type for field in operator.key_fields]
    max_parallelism = manifest.max_parallelism
    group = key_group_for(key, types, max_parallelism)
    subtask = operator.subtasks[subtask_for_key_group(max_parallelism, len(operator.subtasks), group)]
    backend = HeapKeyedStateBackend(max_parallelism, KeyGroupRange(group, group), _NoClock())
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
            StateOfKey(state, window, value)
            for at, window, value in zip(rows.keys, windows, rows.values, strict=True)
            if at == key
        ]
        found += sorted(own, key=lambda each: each.window or (-(2**63), 0))
    return found


def keyed_states(operator: OperatorState, name: str | None = None) -> list[StateSchema]:
    """Return the keyed states that an operator's program declares, and then its timers; or the one of a name.

    Raises:
        ConfigurationError: There is none of that name.

    """
    keyed = [state for state in operator.states if state.scope == "keyed"]
    keyed.sort(key=lambda state: state.kind is StateKind.TIMERS)
    chosen = [state for state in keyed if name in (None, state.name)]
    if not chosen:
        raise ConfigurationError(
            f"found no keyed state {name!r} in operator {operator.uid!r}; expected one of "
            f"{[state.name for state in keyed]}; give one of these names"
        )
    return chosen
