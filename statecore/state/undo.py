"""Undoes one record's changes to keyed state, so that a job continues after a record that its function fails on.

State objects see the rows of a key group through ``_NotedRows``, which keep the stored form of a scope before the
record first touches it. Only an operator with ``on_error`` pays for that.
"""

from __future__ import annotations

from typing import Any

from statecore.model import StateKind
from statecore.state.tables import Scope, StateTable, copied

_ABSENT = object()
# Their stored forms change in place, so one that is only read may be changed, too.
_CONTAINERS = frozenset({StateKind.LIST, StateKind.MAP, StateKind.TIMERS})


class UndoLog:
    """Content that the current record has touched: what each table, key group and scope stored before."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, int, Scope], tuple[StateTable, Any]] = {}
        self._notes = False

    def begin(self) -> None:
        """Start logging changes."""
        self._before.clear()
        self._notes = True

    def end(self) -> None:
        """Keep the changes, and stop logging."""
        self._before.clear()
        self._notes = False

    def note(self, table: StateTable, key_group: int, scope: Scope) -> None:
        """Log the content of a scope, unless the record has touched it before."""
        place = (table.name, key_group, scope)
        if self._notes and place not in self._before:
            rows = table.groups[key_group]
            stored = copied(table.kind, rows[scope]) if scope in rows else _ABSENT
            self._before[place] = (table, stored)

    def undo(self) -> None:
        """Restore the content from before ``begin``, and stop logging."""
        for (_, key_group, scope), (table, stored) in self._before.items():
            rows = table.groups[key_group]
            if stored is _ABSENT:
                rows.pop(scope, None)
            else:
                rows[scope] = stored
            # The next changelog replaces the scope whole: notes of single entries would give them another order.
            table.written[key_group].append(scope)
            table.changed_entries[key_group].pop(scope, None)
            # Timers have a heap, with entries of those that are gone now.
            table.touched(key_group)
        self.end()


class NotedGroups:
    """The rows of a table, as state objects use them; they note each change."""

    __slots__ = ("_log", "_rows", "_table")

    def __init__(self, table: StateTable, log: UndoLog) -> None:
        self._table, self._log = table, log
        self._rows: dict[int, _NotedRows] = {}

    def __getitem__(self, key_group: int) -> _NotedRows:
        rows = self._rows.get(key_group)
        if rows is None:
            rows = self._rows[key_group] = _NotedRows(self._table, key_group, self._log)
        return rows


class _NotedRows:
    """The rows of one key group."""

    __slots__ = ("_in_place", "_key_group", "_log", "_rows", "_table")

    def __init__(self, table: StateTable, key_group: int, log: UndoLog) -> None:
        self._table, self._key_group, self._log = table, key_group, log
        self._rows = table.groups[key_group]
        self._in_place = table.kind in _CONTAINERS

    def get(self, scope: Scope, default: Any = None) -> Any:
        if self._in_place:
            self._note(scope)
        return self._rows.get(scope, default)

    def setdefault(self, scope: Scope, stored: Any) -> Any:
        self._note(scope)
        return self._rows.setdefault(scope, stored)

    def pop(self, scope: Scope, default: Any) -> Any:
        self._note(scope)
        return self._rows.pop(scope, default)

    def __setitem__(self, scope: Scope, stored: Any) -> None:
        self._note(scope)
        self._rows[scope] = stored

    def __delitem__(self, scope: Scope) -> None:
        self._note(scope)
        del self._rows[scope]

    def _note(self, scope: Scope) -> None:
        self._log.note(self._table, self._key_group, scope)
