"""Tables of a keyed backend, one per state.

::

    StateTable.groups = {key group: {scope: stored}}

    scope    the key, or NamespacedKey(key, window) for state that belongs to a window of a key
    stored   value, reducing, aggregating   the value or accumulator
             list                           [element, …]
             map                            {user key: value}
             timers                         {timestamp in ms, …}
             with a time to live every value, element and entry is a cell: (value, timestamp in ms)

Key groups are separate dictionaries because a rescale moves whole key groups. Every write notes what it changed, so
that an epoch's changelog holds only changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from statecore.errors import StateConflictError
from statecore.model import StateDescriptor, StateKind, StateTtlConfig
from statecore.model.ttl import is_expired

Key = tuple[Any, ...]
Cell = tuple[Any, int]


class _Mark(Enum):
    NAMESPACED = "namespaced"

    # That of Enum is Python, and every access to state in a window hashes its scope.
    __hash__ = object.__hash__


class NamespacedKey(NamedTuple):
    """A key within a namespace; the mark distinguishes it from every user key."""

    key: Key
    namespace: Hashable
    mark: _Mark = _Mark.NAMESPACED


# Without the Python frame of the constructor: it runs for every record of a window.
_namespaced = partial(tuple.__new__, NamespacedKey)


Scope = Key | NamespacedKey
Groups = dict[int, dict[Scope, Any]]


class Window(NamedTuple):
    """A span of event time, the namespace of a window's state.

    Attributes:
        start: First millisecond, inclusive.
        end: Last millisecond, exclusive.

    """

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp that belongs to the window."""
        return self.end - 1


GLOBAL_WINDOW = Window(-(2**63), 2**63 - 1)
"""The window of ``GlobalWindows``, with the widest bounds that state files can hold."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Schema of a keyed state, independent of its descriptor.

    Attributes:
        kind: The kind of state.
        type: Canonical Spark DDL, as ``StateDescriptor.type_ddl()`` gives it; timers have ``bigint``.
        stamped: Whether values, elements and entries are cells with a timestamp.
        windowed: Whether some of its scopes are in a window.

    """

    kind: StateKind
    type: str
    stamped: bool = False
    windowed: bool = False

    def has_form_of(self, other: TableSchema) -> bool:
        """Return whether both have the same kind and type, and both have timestamps or neither has."""
        return (self.kind, self.type, self.stamped) == (other.kind, other.type, other.stamped)


def split_scope(scope: Scope) -> tuple[Key, Any]:
    """Return key and namespace of a scope; the namespace is None for the key alone."""
    return (scope.key, scope.namespace) if type(scope) is NamespacedKey else (scope, None)


def joined_scope(key: Key, namespace: Hashable | None) -> Scope:
    """Return the scope of a key in a namespace."""
    return key if namespace is None else _namespaced((key, namespace, _Mark.NAMESPACED))


@dataclass(slots=True)
class StateTable:
    """One keyed state.

    Attributes:
        descriptor: None until a restored state is registered again; such a state is kept.
        written: Scopes that were written, in order and with repeats: a list is cheap enough for the hot path.
        changed_entries: Maps only: user keys that the next changelog writes or removes, per scope that is not in
            ``changed``, each with whether it was removed in between. The order lets a restore rebuild the order of the
            entries in memory.

    """

    name: str
    kind: StateKind
    type: str
    stamped: bool = False
    windowed: bool = False
    descriptor: StateDescriptor | None = None
    groups: Groups = field(default_factory=lambda: defaultdict(dict))
    written: dict[int, list[Scope]] = field(default_factory=lambda: defaultdict(list))
    changed_entries: dict[int, dict[Scope, dict[Any, bool]]] = field(default_factory=lambda: defaultdict(dict))
    _changed: dict[int, dict[Scope, None]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def changed(self) -> dict[int, dict[Scope, None]]:
        """Scopes per key group, in order, that the next changelog replaces whole, or removes when nothing is stored."""
        for key_group, scopes in self.written.items():
            changed, written = self._changed[key_group], dict.fromkeys(scopes)
            if changed:
                changed.update(written)
            else:
                self._changed[key_group] = written
        self.written.clear()
        return self._changed

    @property
    def schema(self) -> TableSchema:
        """Schema of the table's rows in files."""
        return TableSchema(self.kind, self.type, self.stamped, self.windowed)

    def require(self, schema: TableSchema) -> None:
        """Refuse rows of another kind, type or form with StateConflictError."""
        if not self.schema.has_form_of(schema):
            raise conflict_of_snapshots(self.name, self.schema, schema)
        self.windowed = self.windowed or schema.windowed

    def touched(self, key_group: int) -> None:
        """Note that the key group's rows were written directly."""

    def detach(self, key_group: int) -> Any:
        """Remove a key group and return it for ``attach``; None when it is empty."""
        return self.groups.pop(key_group, None)

    def attach(self, key_group: int, detached: Any) -> None:
        """Put back a detached key group."""
        self.groups[key_group] = detached

    def clear_changes(self) -> None:
        """Forget the changes, because files hold them now."""
        for key_group, scopes in self.changed_entries.items():
            rows = self.groups[key_group]
            for scope in scopes:
                # A map whose entries expired one by one may be empty; files do not hold it, so memory drops it.
                if rows.get(scope) == {}:
                    del rows[scope]
        self.written.clear()
        self.changed_entries.clear()
        self._changed.clear()

    def reset(self) -> None:
        """Remove all rows and changes; state objects stay usable."""
        self.groups.clear()
        self.clear_changes()
        self.windowed = False

    @property
    def ttl(self) -> StateTtlConfig | None:
        """The time to live in force, None without one."""
        ttl = None if self.descriptor is None else self.descriptor.ttl
        return ttl if ttl is not None and ttl.enabled else None

    def copied_groups(self) -> Groups:
        """Return the rows, isolated from later writes."""
        return {key_group: copied_rows(self.kind, rows) for key_group, rows in self.groups.items()}

    def snapshot_groups(self, now_ms: int) -> Groups:
        """Return the rows of a full snapshot: isolated, without expired ones if the descriptor requests that."""
        ttl = self.ttl
        if ttl is None or not ttl.cleanup_full_snapshot:
            return self.copied_groups()
        return self.unexpired_groups(ttl.ttl_ms, now_ms)

    def unexpired_groups(self, ttl_ms: int, now_ms: int) -> Groups:
        """Return the rows that have not expired at ``now_ms``, isolated from later writes."""
        keep = KEEPERS[self.kind]
        filtered: Groups = {}
        for key_group, rows in self.groups.items():
            kept = ((scope, keep(stored, ttl_ms, now_ms)) for scope, stored in rows.items())
            filtered[key_group] = {scope: stored for scope, stored in kept if stored is not None}
        return filtered


# Values are immutable once stored; only containers of elements, entries and timers change in place.
_COPIES: Mapping[StateKind, Callable[[Any], Any]] = {
    StateKind.LIST: list,
    StateKind.MAP: dict,
    StateKind.TIMERS: set,
}


def copied(kind: StateKind, stored: Any) -> Any:
    """Return a stored form, isolated from later writes."""
    copy = _COPIES.get(kind)
    return stored if copy is None else copy(stored)


def copied_rows(kind: StateKind, rows: Mapping[Scope, Any]) -> dict[Scope, Any]:
    """Return the rows of a key group, isolated from later writes."""
    copy = _COPIES.get(kind)
    return dict(rows) if copy is None else {scope: copy(stored) for scope, stored in rows.items()}


def _keep_cell(cell: Cell, ttl_ms: int, now_ms: int) -> Cell | None:
    return None if is_expired(cell[1], ttl_ms, now_ms) else cell


def _keep_elements(cells: list[Cell], ttl_ms: int, now_ms: int) -> list[Cell] | None:
    return [cell for cell in cells if not is_expired(cell[1], ttl_ms, now_ms)] or None


def _keep_entries(entries: dict[Any, Cell], ttl_ms: int, now_ms: int) -> dict[Any, Cell] | None:
    kept = {key: cell for key, cell in entries.items() if not is_expired(cell[1], ttl_ms, now_ms)}
    return kept if kept or not entries else None


KEEPERS: Mapping[StateKind, Callable[[Any, int, int], Any]] = {
    StateKind.VALUE: _keep_cell,
    StateKind.REDUCING: _keep_cell,
    StateKind.AGGREGATING: _keep_cell,
    StateKind.LIST: _keep_elements,
    StateKind.MAP: _keep_entries,
}
"""Per kind: returns the part of a stored value that has not expired, or None."""


def conflict_of_snapshots(name: str, one: TableSchema, other: TableSchema) -> StateConflictError:
    """Return the error for a state that two snapshots hold in different forms."""
    return StateConflictError(
        f"found state {name!r} as {describe(other)} and as {describe(one)}; expected one of them in all snapshots; "
        "use snapshots of one job"
    )


def describe(schema: TableSchema) -> str:
    """Return kind, type and form of a state for a message."""
    return f"{schema.kind} of {schema.type}{' with time to live' if schema.stamped else ''}"
