"""Keyed state without a time to live, as ``get_*_state`` returns it.

A write converts the value to its stored form, a copy that the caller cannot change; a read returns a copy of a mutable
value. A value that does not fit raises StateTypeError; None in a list, or ``put_all`` without a mapping, raises
StateError. A write that raises changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from statecore.errors import NoCurrentKeyError, StateError, StateTypeError, shortened
from statecore.model import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from statecore.model.leaves import INTEGER_BITS
from statecore.model.values import MisfitError, map_key_type, value_type
from statecore.state.batch_adds import aggregate_column, reduce_column
from statecore.state.batches import BatchKeys
from statecore.state.keyed_backend import KeyedScope
from statecore.state.tables import Scope, StateTable, split_scope
from statecore.state.undo import NotedGroups
from statecore.state.values import checked_elements

# None can be stored: it is what a reducing state with a time to live holds after add(None).
_ABSENT = object()


class HeapState:
    """Base of all kinds of state: the table, the form of the values, and the scope that the backend sets.

    Attributes:
        backend: Sets the scope.
        table: Where the state is stored.
        conform: Converts a value to its stored form; raises MisfitError.

    """

    __slots__ = ("_copy", "_groups", "_high", "_low", "_written", "backend", "conform", "table")

    def __init__(self, backend: KeyedScope, table: StateTable, ddl: str) -> None:
        stored = value_type(ddl)
        self.backend = backend
        self.table = table
        self._groups: Any = table.groups
        self._written = table.written
        self.conform = stored.conform
        self._copy = stored.copy
        # Integers within these bounds need no conversion; for any other type the bounds are empty.
        self._low, self._high = _integer_bounds(stored.ddl)

    def note_changes(self, groups: NotedGroups) -> None:
        """Write through rows that note each change."""
        self._groups = groups

    def clear(self) -> None:
        """Remove the stored value of the current key."""
        backend = self.backend
        scope = backend.scope
        if scope is None:
            raise self.no_key()
        if self._groups[backend.key_group].pop(scope, _ABSENT) is not _ABSENT:
            self._written[backend.key_group].append(scope)

    def batch(self) -> BatchKeys:
        """Return the keys of the current batch; StateError without one."""
        keys = self.backend.batch
        if keys is None:
            raise StateError(
                f"found add_batch() on state {self.table.name!r} while no batch is processed; expected it in "
                "process_batch of a BatchProcessFunction on a keyed stream; call add() for one record"
            )
        return keys

    def batch_values(self, keys: BatchKeys, absent: Any) -> list[Any]:
        """Return the value that an addition to each key folds into; ``absent`` for a key without one."""
        scopes = keys.scopes
        values: list[Any] = []
        for key_group, start, end in keys.runs():
            values += map(self._groups[key_group].get, scopes[start:end], repeat(absent))
        return values

    def write_batch(self, keys: BatchKeys, stored: Sequence[Any]) -> None:
        """Replace the stored value of each key."""
        for key_group, start, end in keys.runs():
            scopes = keys.scopes[start:end]
            self._groups[key_group].update(zip(scopes, stored[start:end], strict=True))
            self._written[key_group] += scopes

    def no_key(self) -> NoCurrentKeyError:
        """Return the error for a use without a current key."""
        return NoCurrentKeyError(
            f"found a use of keyed state {self.table.name!r} without a current key; expected it inside "
            "process_element or on_timer of a keyed function; use operator state for values without a key"
        )

    def misfit(self, value: Any, error: MisfitError) -> StateTypeError:
        """Return the error for a value that does not fit; it names state, key and value."""
        scope = self.backend.scope
        key, namespace = split_scope(scope) if scope is not None else (None, None)
        where = f"key {key!r}" if namespace is None else f"key {key!r} in {namespace!r}"
        return StateTypeError(
            f"found {shortened(value)} for state {self.table.name!r} under {where}{error.details}; expected a value "
            f"of type {self.table.type}; convert it before it is written, or declare another type; the old value was "
            "kept"
        )

    def _given(self, stored: Any) -> Any:
        return stored if self._copy is None else self._copy(stored)

    def _write(self, stored: Any) -> None:
        backend = self.backend
        if backend.namespace is not None:
            self.table.windowed = True
        key_group, scope = backend.key_group, backend.scope
        assert scope is not None
        self._groups[key_group][scope] = stored
        written = self._written[key_group]
        if not written or written[-1] is not scope:
            written.append(scope)

    def _scope(self) -> Scope:
        scope = self.backend.scope
        if scope is None:
            raise self.no_key()
        return scope

    def _stored_form(self, value: Any) -> Any:
        try:
            return self.conform(value)
        except MisfitError as error:
            raise self.misfit(value, error) from error


class HeapValueState(HeapState):
    """One value per key."""

    __slots__ = ()

    def __init__(self, backend: KeyedScope, table: StateTable, descriptor: ValueStateDescriptor) -> None:
        super().__init__(backend, table, descriptor.value_type)

    def value(self) -> Any:
        """Return the value of the current key, or None."""
        backend = self.backend
        scope = backend.scope
        if scope is None:
            raise self.no_key()
        stored = self._groups[backend.key_group].get(scope)
        return stored if self._copy is None else self._copy(stored)

    def update(self, value: Any) -> None:
        """Replace the value of the current key; None clears it."""
        backend = self.backend
        scope = backend.scope
        if scope is None:
            raise self.no_key()
        if type(value) is int and self._low <= value <= self._high:
            stored = value
        elif value is None:
            self.clear()
            return
        else:
            stored = self._stored_form(value)
        if backend.namespace is not None:
            self.table.windowed = True
        key_group = backend.key_group
        self._groups[key_group][scope] = stored
        written = self._written[key_group]
        # Records arrive grouped by key, so most writes follow one to the same key.
        if not written or written[-1] is not scope:
            written.append(scope)


class HeapListState(HeapState):
    """A list per key."""

    __slots__ = ()

    def __init__(self, backend: KeyedScope, table: StateTable, descriptor: ListStateDescriptor) -> None:
        super().__init__(backend, table, descriptor.element_type)

    def get(self) -> Iterator[Any]:
        """Return the elements of the current key, in the order they were added."""
        stored = self._groups[self.backend.key_group].get(self._scope(), ())
        return iter([self._given(element) for element in stored])

    def add(self, value: Any) -> None:
        """Append one element."""
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all elements, or none when one is refused."""
        self._scope()
        self._append(self._elements(values))

    def held(self) -> Sequence[Any]:
        """Return the elements of the current key as they are stored, for the library: not copies."""
        stored: Sequence[Any] = self._groups[self.backend.key_group].get(self._scope(), ())
        return stored

    def hold(self, stored: list[Any]) -> None:
        """Replace all elements by others in their stored form, for the library: without a check."""
        self._scope()
        self._write(stored)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements; no elements clear the list."""
        self._scope()
        replaced = self._elements(values)
        if replaced:
            self._write(replaced)
        else:
            self.clear()

    def _append(self, stored: list[Any]) -> None:
        if not stored:
            return
        key_group, scope = self.backend.key_group, self._scope()
        current = self._groups[key_group].get(scope)
        if current is None:
            self._write(stored)
        else:
            current.extend(stored)
            self._written[key_group].append(scope)

    def _elements(self, values: Iterable[Any]) -> list[Any]:
        elements = checked_elements(f"list state {self.table.name!r}", values)
        return [self._stored_form(element) for element in elements]


class HeapMapState(HeapState):
    """A map per key."""

    __slots__ = ("_conform_key", "_entries_changed")

    def __init__(self, backend: KeyedScope, table: StateTable, descriptor: MapStateDescriptor) -> None:
        super().__init__(backend, table, descriptor.value_type)
        self._conform_key = map_key_type(descriptor.key_type)
        self._entries_changed = table.changed_entries

    def get(self, key: Any) -> Any:
        """Return the value of a user key, or None."""
        return self._given(self._entries().get(self._user_key(key)))

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a user key; the value may be None."""
        self._scope()
        self._put({self._user_key(key): self._stored_form(value)})

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set all entries, or none when one is refused."""
        self._scope()
        if not isinstance(entries, Mapping):
            raise StateError(
                f"found {entries!r} for map state {self.table.name!r}; expected a mapping of entries to put; "
                "give a dict, an empty one for nothing"
            )
        self._put({self._user_key(key): self._stored_form(value) for key, value in entries.items()})

    def held(self) -> Mapping[Any, Any]:
        """Return the entries of the current key as they are stored, for the library: not copies."""
        return self._entries()

    def hold(self, user_key: Any, stored: Any) -> None:
        """Set the value of a user key, both in their stored form, for the library: without a check."""
        self._scope()
        self._put({user_key: stored})

    def remove(self, key: Any) -> None:
        """Remove a user key, if it is there."""
        self.drop([self._user_key(key)])

    def drop(self, user_keys: Iterable[Any]) -> None:
        """Remove user keys in their stored form, those that are there."""
        entries = self._entries()
        for user_key in user_keys:
            if user_key in entries:
                del entries[user_key]
                self._entry_removed(user_key)
        self._drop_if_empty(entries)

    def contains(self, key: Any) -> bool:
        """Return whether a user key is there."""
        return self._user_key(key) in self._entries()

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return the current entries; the map may change during iteration."""
        return iter([(key, self._given(value)) for key, value in self._entries().items()])

    def keys(self) -> Iterator[Any]:
        """Return the current user keys."""
        return iter(list(self._entries()))

    def values(self) -> Iterator[Any]:
        """Return the current values."""
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        """Return whether nothing is stored."""
        return not self._entries()

    def clear(self) -> None:
        """Remove all entries of the current key."""
        key_group, scope = self.backend.key_group, self._scope()
        if self._groups[key_group].pop(scope, None) is not None:
            self._written[key_group].append(scope)
            self._entries_changed[key_group].pop(scope, None)

    def _entries(self) -> dict[Any, Any]:
        """Return the current key's entries; for a key without any, a new dict that is not stored."""
        entries: dict[Any, Any] = self._groups[self.backend.key_group].get(self._scope(), {})
        return entries

    def _put(self, stored: Mapping[Any, Any]) -> None:
        if not stored:
            return
        backend = self.backend
        scope = self._scope()
        if backend.namespace is not None:
            self.table.windowed = True
        entries = self._groups[backend.key_group].setdefault(scope, {})
        for user_key, value in stored.items():
            self._entry_written(user_key, new=user_key not in entries)
            entries[user_key] = value

    def _entry_written(self, user_key: Any, *, new: bool) -> None:
        notes = self._entry_notes()
        if notes is not None:
            # A new entry comes last in the map, so its note must come last as well.
            removed = notes.pop(user_key, False) if new else notes.get(user_key, False)
            notes[user_key] = removed

    def _entry_removed(self, user_key: Any) -> None:
        notes = self._entry_notes()
        if notes is not None:
            notes[user_key] = True

    def _entry_notes(self) -> dict[Any, bool] | None:
        key_group, scope = self.backend.key_group, self._scope()
        if scope in self.table.changed[key_group]:
            return None
        return self._entries_changed[key_group].setdefault(scope, {})

    def _drop_if_empty(self, entries: dict[Any, Any]) -> None:
        if not entries:
            self._groups[self.backend.key_group].pop(self._scope(), None)

    def _user_key(self, key: Any) -> Any:
        try:
            return self._conform_key(key)
        except MisfitError as error:
            self._scope()
            raise self.misfit(key, error) from error


class HeapReducingState(HeapState):
    """One value per key, into which every added one is folded."""

    __slots__ = ("reduce",)

    def __init__(self, backend: KeyedScope, table: StateTable, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(backend, table, descriptor.value_type)
        self.reduce: Callable[[Any, Any], Any] = descriptor.reduce

    def get(self) -> Any:
        """Return the reduced value of the current key, or None."""
        return self._given(self._groups[self.backend.key_group].get(self._scope()))

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        scope = self._scope()
        if value is None:
            self.clear()
            return
        if not (type(value) is int and self._low <= value <= self._high):
            value = self._stored_form(value)
        reduced = value
        current = self._groups[self.backend.key_group].get(scope)
        if current is not None:
            reduced = self.reduce(current if self._copy is None else self._copy(current), value)
            if not (type(reduced) is int and self._low <= reduced <= self._high):
                reduced = self._stored_form(reduced)
        if reduced is None:
            self.clear()
        else:
            self._write(reduced)

    def add_batch(self, values: pa.Array) -> pa.Array:
        """Fold a column in, as ``add`` does row by row; return the new value of each key of the batch."""
        return reduce_column(self, values)


class HeapAggregatingState(HeapState):
    """One accumulator per key, into which every added value is folded."""

    __slots__ = ("aggregate",)

    def __init__(self, backend: KeyedScope, table: StateTable, descriptor: AggregatingStateDescriptor) -> None:
        super().__init__(backend, table, descriptor.accumulator_type)
        self.aggregate = descriptor.aggregate

    def get(self) -> Any:
        """Return the result of the current key's accumulator, or None."""
        accumulator = self.accumulator()
        return None if accumulator is None else self.aggregate.get_result(accumulator)

    def accumulator(self) -> Any:
        """Return the accumulator of the current key, or None."""
        return self._given(self._groups[self.backend.key_group].get(self._scope()))

    def merge(self, accumulator: Any) -> None:
        """Merge another accumulator into that of the current key."""
        current = self.accumulator()
        self.replace(accumulator if current is None else self.aggregate.merge(current, accumulator))

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        scope = self._scope()
        if value is None:
            self.clear()
            return
        self._fold(self._groups[self.backend.key_group].get(scope), value)

    def add_batch(self, values: pa.Array) -> pa.Array:
        """Fold a column in, as ``add`` does row by row; return the new accumulator of each key of the batch.

        Raises:
            StateError: There is no current batch, or the values are not a column of the batch's length.
            StateTypeError: As for ``add``; or the function's ``add_batch`` returned no accumulators.

        """
        return aggregate_column(self, values)

    def replace(self, accumulator: Any) -> None:
        """Store an accumulator under the current key; None clears."""
        stored = self._stored_form(accumulator)
        if stored is None:
            self.clear()
        else:
            self._write(stored)

    def empty_accumulator(self) -> Any:
        """Return an empty accumulator in its stored form; None when it cannot be stored yet."""
        try:
            return self.conform(self.aggregate.create_accumulator())
        except MisfitError:
            return None

    def _fold(self, accumulator: Any, value: Any) -> None:
        begun = self._created() if accumulator is None else self._given(accumulator)
        self.replace(self.aggregate.add(value, begun))

    def _created(self) -> Any:
        """Return an empty accumulator, in its stored form if it can be stored yet."""
        created = self.aggregate.create_accumulator()
        try:
            return self.conform(created)
        except MisfitError:
            return created


def _integer_bounds(ddl: str) -> tuple[int, int]:
    bits = INTEGER_BITS.get(ddl)
    return (1, 0) if bits is None else (-1 << (bits - 1), (1 << (bits - 1)) - 1)
