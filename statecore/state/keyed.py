"""Keyed state of one subtask, on the heap.

A backend holds one table per state: ``{key group: {key: stored value}}``. Key groups are separate dictionaries because
they are what moves when a job is rescaled. Every write notes its key, so that the changelog of an epoch holds what
changed and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from statecore.errors import NoCurrentKeyError, StateConflictError, StateError
from statecore.model import KeyGroupRange, ListStateDescriptor, ValueStateDescriptor
from statecore.state.values import checked_elements, deep_copy

Key = tuple[Any, ...]
KeyedDescriptor = ValueStateDescriptor | ListStateDescriptor


class Clock(Protocol):
    """Time as the epoch has it, never the wall clock of a worker."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""


@dataclass(slots=True)
class StateTable:
    """One state's values and the keys written since the last ``clear_changes``.

    ``descriptor`` is None while a restored state was not registered again; such a state is kept.
    """

    name: str
    kind: str
    type: str
    descriptor: KeyedDescriptor | None = None
    groups: dict[int, dict[Key, Any]] = field(default_factory=dict)
    changed: dict[int, set[Key]] = field(default_factory=dict)

    def group(self, key_group: int) -> dict[Key, Any]:
        """Return the key group's dictionary, made on first use."""
        found = self.groups.get(key_group)
        if found is None:
            found = self.groups[key_group] = {}
        return found

    def mark(self, key_group: int, key: Key) -> None:
        """Note that ``key`` was written or cleared."""
        found = self.changed.get(key_group)
        if found is None:
            found = self.changed[key_group] = set()
        found.add(key)


@dataclass(frozen=True, slots=True)
class KeyedSnapshot:
    """State of some key groups at one moment, isolated from later writes.

    Attributes:
        states: Per state name its kind, its type and ``{key group: {key: stored value}}``.

    """

    states: Mapping[str, tuple[str, str, Mapping[int, Mapping[Key, Any]]]]


class HeapKeyedStateBackend:
    """State of the key groups of one subtask.

    Args:
        max_parallelism: Number of key groups of the job.
        key_groups: Those this backend owns.
        clock: The epoch's time.

    """

    def __init__(self, max_parallelism: int, key_groups: KeyGroupRange, clock: Clock) -> None:
        self.max_parallelism = max_parallelism
        self.key_groups = key_groups
        self.clock = clock
        self.current_key: Key | None = None
        self.current_key_group = -1
        self.tables: dict[str, StateTable] = {}
        self._handles: dict[str, HeapValueState | HeapListState] = {}

    def set_current_key(self, key: Key, key_group: int) -> None:
        """Scope keyed state to ``key`` until the next call.

        Raises:
            StateError: ``key_group`` is not one of this backend's.

        """
        if key_group not in self.key_groups:
            raise StateError(
                f"found key {key!r} in key group {key_group}; expected a key group of this subtask, "
                f"{self.key_groups.start} to {self.key_groups.end}; check how the stream was partitioned"
            )
        self.current_key = key
        self.current_key_group = key_group

    def forget_current_key(self) -> None:
        """Leave keyed state without a scope, as it is outside the processing of a record."""
        self.current_key = None

    def get_value_state(self, descriptor: ValueStateDescriptor) -> HeapValueState:
        """Return the value state of that descriptor, registering it on first use."""
        handle = self._handles.get(descriptor.name)
        if handle is None:
            handle = HeapValueState(self, self._register(descriptor))
            self._handles[descriptor.name] = handle
        elif handle.table.descriptor is not descriptor:
            self._register(descriptor)
        assert isinstance(handle, HeapValueState)
        return handle

    def get_list_state(self, descriptor: ListStateDescriptor) -> HeapListState:
        """Return the list state of that descriptor, registering it on first use."""
        handle = self._handles.get(descriptor.name)
        if handle is None:
            handle = HeapListState(self, self._register(descriptor))
            self._handles[descriptor.name] = handle
        elif handle.table.descriptor is not descriptor:
            self._register(descriptor)
        assert isinstance(handle, HeapListState)
        return handle

    def restored_table(self, name: str, kind: str, type_ddl: str) -> StateTable:
        """Return the table that restored rows of this state go to.

        Raises:
            StateConflictError: The name holds another kind or type already.

        """
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = StateTable(name, kind, type_ddl)
        _check_same(table, kind, type_ddl)
        return table

    def clear_changes(self) -> None:
        """Forget which keys were written, because a changelog holds them now."""
        for table in self.tables.values():
            table.changed = {}

    def snapshot(self) -> KeyedSnapshot:
        """Return the state of all key groups, isolated from later writes."""
        return KeyedSnapshot(
            {
                name: (
                    table.kind,
                    table.type,
                    {
                        key_group: {key: deep_copy(value) for key, value in values.items()}
                        for key_group, values in table.groups.items()
                    },
                )
                for name, table in self.tables.items()
            }
        )

    def restore(self, snapshots: Iterable[KeyedSnapshot]) -> None:
        """Take over this backend's own key groups from any number of snapshots; the current key is forgotten."""
        for snapshot in snapshots:
            for name, (kind, type_ddl, groups) in snapshot.states.items():
                table = self.restored_table(name, kind, type_ddl)
                for key_group, values in groups.items():
                    if key_group in self.key_groups:
                        table.group(key_group).update((key, deep_copy(value)) for key, value in values.items())
        self.forget_current_key()

    def _register(self, descriptor: KeyedDescriptor) -> StateTable:
        if descriptor.ttl is not None:
            raise StateError(
                f"found a TTL on state {descriptor.name!r}; expected none, because this release does not expire state; "
                "remove the ttl argument"
            )
        table = self.restored_table(descriptor.name, descriptor.kind.value, descriptor.type_ddl())
        table.descriptor = descriptor
        return table


class _HeapState:
    """What every handle shares: its table, and the scope that the backend sets."""

    __slots__ = ("_backend", "table")

    def __init__(self, backend: HeapKeyedStateBackend, table: StateTable) -> None:
        self._backend = backend
        self.table = table

    def _scope(self) -> tuple[Key, int]:
        backend = self._backend
        key = backend.current_key
        if key is None:
            raise NoCurrentKeyError(
                f"found a use of keyed state {self.table.name!r} without a current key; expected it inside "
                "process_element or on_timer of a keyed function; use operator state for what has no key"
            )
        return key, backend.current_key_group

    def clear(self) -> None:
        """Remove what is stored under the current key."""
        key, key_group = self._scope()
        if self.table.group(key_group).pop(key, None) is not None:
            self.table.mark(key_group, key)


class HeapValueState(_HeapState):
    """One value per key."""

    __slots__ = ()

    def value(self) -> Any:
        """Return the value of the current key, or None."""
        key, key_group = self._scope()
        return self.table.group(key_group).get(key)

    def update(self, value: Any) -> None:
        """Replace the value of the current key; None clears it."""
        if value is None:
            self.clear()
            return
        key, key_group = self._scope()
        self.table.group(key_group)[key] = value
        self.table.mark(key_group, key)


class HeapListState(_HeapState):
    """A list per key."""

    __slots__ = ()

    def get(self) -> Iterator[Any]:
        """Return the elements of the current key, in the order they were added."""
        key, key_group = self._scope()
        return iter(tuple(self.table.group(key_group).get(key, ())))

    def add(self, value: Any) -> None:
        """Append one element."""
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements; nothing is added when one of them is None.

        Raises:
            StateError: An element is None.

        """
        key, key_group = self._scope()
        added = checked_elements(f"list state {self.table.name!r}", values)
        if added:
            self.table.group(key_group).setdefault(key, []).extend(added)
            self.table.mark(key_group, key)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements; no elements clear the list.

        Raises:
            StateError: An element is None.

        """
        key, key_group = self._scope()
        replaced = checked_elements(f"list state {self.table.name!r}", values)
        if not replaced:
            self.clear()
            return
        self.table.group(key_group)[key] = replaced
        self.table.mark(key_group, key)


def _check_same(table: StateTable, kind: str, type_ddl: str) -> None:
    if (table.kind, table.type) != (kind, type_ddl):
        raise StateConflictError(
            f"found state {table.name!r} asked for as {kind} of {type_ddl}; expected {table.kind} of {table.type}, "
            "as it was registered or restored; give the new state another name"
        )
