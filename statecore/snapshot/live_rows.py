"""Converts live state to rows of files and back.

Stored values are flattened column by column; ``statecore.state.tables`` describes the live form,
``statecore.snapshot.keyed_files`` the rows. A scope in a namespace other than a window raises StateError.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from statecore.errors import StateError
from statecore.model import MapType, StateKind, key_encoder, parse_type
from statecore.model.key_groups import is_integer
from statecore.model.key_hash import KeyEncoder
from statecore.snapshot.keyed_files import ChangedArrays, KeyedRows, arrays_table, joined_by_key_group, rows_table
from statecore.state import HeapKeyedStateBackend
from statecore.state.batches import Mask
from statecore.state.folding import Numbers
from statecore.state.session_columns import SESSIONS_STATE, SessionGroup
from statecore.state.tables import Key, NamespacedKey, Scope, StateTable, TableSchema, Window, joined_scope, split_scope

_CONTAINERS = frozenset({StateKind.LIST, StateKind.MAP, StateKind.TIMERS})


class _Absent:
    """Marks an absent value, because an entry of a map may be None."""


_ABSENT = _Absent()


@dataclass(slots=True)
class _Columns:
    """Rows under construction; ``stored`` is the table's content of a row, None where ``deleted``."""

    scopes: list[Scope] = field(default_factory=list)
    key_groups: list[int] = field(default_factory=list)
    map_keys: list[Any] = field(default_factory=list)
    stored: list[Any] = field(default_factory=list)
    deleted: list[bool] = field(default_factory=list)

    def add(self, scope: Scope, key_group: int, stored: Any, map_key: Any = None) -> None:
        gone = stored is _ABSENT
        self.scopes.append(scope)
        self.key_groups.append(key_group)
        self.map_keys.append(map_key)
        self.stored.append(None if gone else stored)
        self.deleted.append(gone)

    def add_entries(self, scope: Scope, key_group: int, entries: dict[Any, Any]) -> None:
        self.scopes.extend(repeat(scope, len(entries)))
        self.key_groups.extend(repeat(key_group, len(entries)))
        self.map_keys.extend(entries)
        self.stored.extend(entries.values())
        self.deleted.extend(repeat(False, len(entries)))

    def add_changed(
        self, scopes: Collection[Scope], key_group: int, rows: Mapping[Scope, Any], kind: StateKind
    ) -> None:
        """Add the stored content of scopes, of any kind but a map; the common case, so it works by column."""
        contents = list(map(rows.get, scopes, repeat(_ABSENT)))
        if kind in _CONTAINERS:
            contents = [stored or _ABSENT for stored in contents]
        gone = [stored is _ABSENT for stored in contents]
        self.scopes.extend(scopes)
        self.key_groups.extend(repeat(key_group, len(contents)))
        self.stored.extend([None if stored is _ABSENT else stored for stored in contents] if any(gone) else contents)
        self.deleted.extend(gone)

    def rows(self, table: StateTable, *, changelog: bool) -> KeyedRows:
        keys, windows = _keys_and_windows(table, self.scopes)
        values, timestamps = _values_and_timestamps(table, self.stored)
        return KeyedRows(
            keys=keys,
            key_groups=self.key_groups,
            values=values,
            windows=windows,
            map_keys=self.map_keys if table.kind is StateKind.MAP else None,
            timestamps=timestamps,
            deleted=self.deleted if changelog else None,
        )


def base_rows(table: StateTable) -> KeyedRows:
    """Return all rows of a table."""
    columns = _Columns()
    for key_group in sorted(table.groups):
        stored = table.groups[key_group]
        if table.kind is StateKind.MAP:
            for scope, entries in stored.items():
                columns.add_entries(scope, key_group, entries)
            continue
        if table.kind in _CONTAINERS:
            stored = {scope: container for scope, container in stored.items() if container}
        columns.scopes.extend(stored)
        columns.key_groups.extend(repeat(key_group, len(stored)))
        columns.stored.extend(stored.values())
    return columns.rows(table, changelog=False)


def count_rows(table: StateTable, key_group: int) -> int:
    """Return how many rows ``base_rows`` returns for a key group."""
    stored = table.groups.get(key_group, {})
    if table.kind is StateKind.MAP:
        return sum(map(len, stored.values()))
    return sum(map(bool, stored.values())) if table.kind in _CONTAINERS else len(stored)


def count_state(table: StateTable) -> int:
    """Return how many rows a table holds; only for maps does the cost grow with the number of keys."""
    if table.kind is StateKind.MAP:
        return sum(count_rows(table, key_group) for key_group in table.groups)
    return sum(map(len, table.groups.values()))


def changelog_rows(table: StateTable) -> KeyedRows:
    """Return the changes of a table since ``clear_changes``."""
    columns, changed = _Columns(), table.changed
    for key_group in sorted(changed.keys() | table.changed_entries.keys()):
        stored = table.groups.get(key_group, {})
        if table.kind is not StateKind.MAP:
            columns.add_changed(changed.get(key_group, ()), key_group, stored, table.kind)
            continue
        for scope in changed.get(key_group, ()):
            columns.add(scope, key_group, _ABSENT)
            columns.add_entries(scope, key_group, stored.get(scope, {}))
        for scope, map_keys in table.changed_entries.get(key_group, {}).items():
            entries = stored.get(scope, {})
            for map_key, removed in map_keys.items():
                value = entries.get(map_key, _ABSENT)
                if removed and value is not _ABSENT:
                    # Removed and put again, so it is the last entry now.
                    columns.add(scope, key_group, _ABSENT, map_key)
                columns.add(scope, key_group, value, map_key)
    return columns.rows(table, changelog=True)


def changelog_table(backend: HeapKeyedStateBackend, state: str, keys: pa.Schema) -> pa.Table | None:
    """Return the changes of a backend's state since ``clear_changes``, as the table of a file; None without any."""
    table = backend.tables[state]
    rows, arrays = changelog_rows(table), _changed_arrays(backend.columns, table)
    tables = [rows_table(rows, keys, table.schema, state)] if rows.keys else []
    if arrays is not None:
        # Behind the table's rows: a key may have left columns for the tables, and be back.
        tables.append(arrays_table(arrays, keys, table.schema))
    return joined_by_key_group(tables) if tables else None


def _changed_arrays(groups: Mapping[int, SessionGroup], table: StateTable) -> ChangedArrays | None:
    """Return the changes of a table's state that lies in columns; None without any."""
    by_group = [(key_group, groups[key_group].changed_rows(table.name)) for key_group in sorted(groups)]
    key_groups = [key_group for key_group, rows in by_group for _ in rows.keys]
    if not key_groups:
        return None
    each = [rows for _, rows in by_group]
    deleted = np.concatenate([rows.deleted for rows in each])
    values = np.concatenate([rows.values for rows in each])
    windows = [rows.windows for rows in each if rows.windows is not None]
    lengths = [rows.lengths for rows in each if rows.lengths is not None]
    return ChangedArrays(
        keys=[key for rows in each for key in rows.keys],
        key_groups=np.array(key_groups),
        values=_lists(table, values, deleted, np.concatenate(lengths)) if lengths else pa.array(values, mask=deleted),
        windows=np.concatenate(windows) if windows else None,
        deleted=deleted,
    )


def _lists(table: StateTable, values: Numbers, deleted: Mask, lengths: Numbers) -> pa.Array:
    flat = pa.array(values) if values.ndim == 1 else _structs(table, values)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), flat, mask=pa.array(deleted))


def _structs(table: StateTable, values: Numbers) -> pa.Array:
    fields = list(parse_type(table.type).arrow())
    arrays = [pa.array(np.ascontiguousarray(column)) for column in values.T]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def apply_rows(table: StateTable, rows: KeyedRows, wanted: Container[int], encode: KeyEncoder) -> None:
    """Apply rows to the key groups ``wanted`` of a table, without recording them as changes.

    The rows come from a base, or from a changelog that continues the table; ``encode`` makes keys canonical.
    """
    scopes = _scopes(rows, encode)
    stored = _stored(table, rows)
    map_keys = None if rows.map_keys is None else _canonical(rows.map_keys, table)
    for key_group, start, end in _runs(rows.key_groups):
        if key_group not in wanted:
            continue
        group = table.groups[key_group]
        if map_keys is not None:
            marks = repeat(False, end - start) if rows.deleted is None else rows.deleted[start:end]
            _apply_entries(group, scopes[start:end], map_keys[start:end], stored[start:end], marks)
        elif rows.deleted is not None:
            _apply_changes(group, scopes[start:end], stored[start:end], rows.deleted[start:end])
        else:
            group.update(zip(scopes[start:end], stored[start:end], strict=True))
        table.touched(key_group)


def one_row_per_scope(table: StateTable) -> StateTable:
    """Return a table for readers: a map is one value, and there are no timestamps."""
    schema = one_row_schema(table.schema)
    take = _without_timestamps(table)
    groups = {
        key_group: {scope: take(stored) for scope, stored in rows.items()} for key_group, rows in table.groups.items()
    }
    return StateTable(table.name, schema.kind, schema.type, windowed=schema.windowed, groups=groups)


def with_session_bounds(rows: KeyedRows, backend: HeapKeyedStateBackend) -> KeyedRows:
    """Return rows of a state in windows with the bounds of sessions, instead of the window that their state lies in."""
    held = backend.tables.get(SESSIONS_STATE)
    if held is None or rows.windows is None:
        return rows
    bounds = {
        (key, Window(*session[2:])): Window(*session[:2])
        for group in held.groups.values()
        for key, sessions in group.items()
        for session in sessions
    }
    own = zip(rows.keys, rows.windows, strict=True)
    return replace(rows, windows=[None if window is None else bounds.get((key, window), window) for key, window in own])


def one_row_schema(schema: TableSchema) -> TableSchema:
    """Return the schema of ``one_row_per_scope``."""
    kind = StateKind.VALUE if schema.kind is StateKind.MAP else schema.kind
    return TableSchema(kind, schema.type, stamped=False, windowed=schema.windowed)


def _without_timestamps(table: StateTable) -> Callable[[Any], Any]:
    if not table.stamped:
        return lambda stored: stored
    if table.kind is StateKind.LIST:
        return lambda cells: [value for value, _ in cells]
    if table.kind is StateKind.MAP:
        return lambda entries: {map_key: value for map_key, (value, _) in entries.items()}
    return lambda cell: cell[0]


def without_expired(table: StateTable, ttl_ms: int, now_ms: int) -> StateTable:
    """Return a table without the state that has expired at ``now_ms``."""
    groups = table.unexpired_groups(ttl_ms, now_ms)
    return StateTable(table.name, table.kind, table.type, table.stamped, table.windowed, groups=groups)


def drop_expired(table: StateTable, now_ms: int) -> None:
    """Remove expired state if the descriptor requests full snapshots without it.

    It is removed from memory as well, so that a running subtask and a restored one see the same state.
    """
    ttl = table.ttl
    if ttl is not None and ttl.cleanup_full_snapshot:
        for key_group, kept in table.snapshot_groups(now_ms).items():
            table.groups[key_group] = kept
            table.touched(key_group)


# --- into rows ---


def _keys_and_windows(table: StateTable, scopes: list[Any]) -> tuple[Sequence[Key], Sequence[Window | None] | None]:
    if not table.windowed:
        return scopes, None
    if set(map(type, scopes)) == {NamespacedKey}:
        # The common case, column by column.
        keys, windows, _ = zip(*scopes, strict=True)
        if set(map(type, windows)) == {Window}:
            return keys, windows
    split = [split_scope(scope) for scope in scopes]
    return [key for key, _ in split], [_window(namespace, table.name) for _, namespace in split]


def _window(namespace: Any, state: str) -> Window | None:
    if namespace is None or type(namespace) is Window:
        return namespace
    if isinstance(namespace, tuple) and len(namespace) == 2 and all(map(is_integer, namespace)):
        return Window(*namespace)
    raise StateError(
        f"found the namespace {namespace!r} in state {state!r}; expected None or a window, (start, end) in "
        "milliseconds, because files can hold only windows; make the namespace a part of the key"
    )


def _values_and_timestamps(table: StateTable, stored: list[Any]) -> tuple[list[Any], list[Any] | None]:
    if table.kind is StateKind.TIMERS:
        return [timers and (sorted(timers) if len(timers) > 1 else [*timers]) for timers in stored], None
    if not table.stamped:
        return stored, None
    if table.kind is StateKind.LIST:
        return _unzipped_elements(stored, 0), _unzipped_elements(stored, 1)
    return [cell and cell[0] for cell in stored], [cell and cell[1] for cell in stored]


def _unzipped_elements(stored: Iterable[Any], part: int) -> list[Any]:
    return [None if cells is None else [cell[part] for cell in cells] for cells in stored]


# --- out of rows ---


def _scopes(rows: KeyedRows, encode: KeyEncoder) -> Sequence[Scope]:
    keys = list(map(encode, rows.keys))
    if rows.windows is None:
        return keys
    return [joined_scope(key, window) for key, window in zip(keys, rows.windows, strict=True)]


def _stored(table: StateTable, rows: KeyedRows) -> Sequence[Any]:
    if table.kind is StateKind.TIMERS:
        return [set(timers or ()) for timers in rows.values]
    if rows.timestamps is None:
        return rows.values
    cells = zip(rows.values, rows.timestamps, strict=True)
    if table.kind is StateKind.LIST:
        return [list(zip(values or (), stamps or (), strict=True)) for values, stamps in cells]
    return list(cells)


def _canonical(map_keys: Sequence[Any], table: StateTable) -> Sequence[Any]:
    declared = parse_type(table.type)
    assert isinstance(declared, MapType)
    encode = key_encoder([declared.key.ddl()])
    return [key for (key,) in map(encode, zip(map_keys))]


def _runs(key_groups: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (key group, first row, row after its last)."""
    start = 0
    while start < len(key_groups):
        end = bisect_right(key_groups, key_groups[start], start)
        yield key_groups[start], start, end
        start = end


def _apply_changes(
    group: dict[Scope, Any], scopes: Sequence[Scope], stored: Sequence[Any], deleted: Sequence[bool]
) -> None:
    for scope, value, gone in zip(scopes, stored, deleted, strict=True):
        if gone:
            group.pop(scope, None)
        else:
            group[scope] = value


def _apply_entries(
    group: dict[Scope, Any],
    scopes: Sequence[Scope],
    map_keys: Sequence[Any],
    stored: Sequence[Any],
    deleted: Iterable[bool],
) -> None:
    for scope, map_key, value, gone in zip(scopes, map_keys, stored, deleted, strict=True):
        if not gone:
            group.setdefault(scope, {})[map_key] = value
        elif map_key is None:
            group.pop(scope, None)
        elif scope in group:
            group[scope].pop(map_key, None)
            if not group[scope]:
                del group[scope]
