"""Operator state of one subtask: split lists, union lists and broadcast maps.

A write converts every value to its stored form, a copy that the caller cannot change; a read returns copies of mutable
values. A value that does not fit raises StateTypeError; None in a list, or a value that is no collection, raises
StateError. A write that raises changes nothing. Stored values are therefore immutable, and a snapshot copies only their
containers. Between epochs nothing is copied: a backend hands its containers to the next one.

Every state tracks whether it changed. Comparing it with its old value would cost time in its size and miss changes:
0.0 equals -0.0, and a map equals one with its entries in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NoReturn

from statecore.errors import ConfigurationError, StateConflictError, StateError, StateTypeError
from statecore.model import DistributionMode, ListStateDescriptor, MapStateDescriptor, StateDescriptor
from statecore.model.evolution import migration
from statecore.model.redistribution import CONTIGUOUS
from statecore.model.values import MisfitError, map_key_type, value_type
from statecore.state.values import checked_elements


@dataclass(frozen=True, slots=True)
class OperatorStateSnapshot:
    """One operator state at one moment.

    Attributes:
        mode: Which subtasks get its elements after a restore.
        type: Canonical Spark DDL of an element; ``map<k,v>`` for a broadcast state.
        strategy: How a rescale splits the list, ``contiguous`` or ``interleaved``.
        elements: In stored form, in the order they were added; a broadcast state has exactly one, the dict of its
            entries, which may be empty.

    """

    mode: DistributionMode
    type: str
    strategy: str
    elements: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class HeldOperatorState:
    """One operator state like a snapshot's, but in its live container, which the holder of this object owns."""

    mode: DistributionMode
    type: str
    strategy: str
    elements: list[Any]

    def snapshot(self) -> OperatorStateSnapshot:
        """Return the elements, isolated from later changes of the container."""
        copied = map(dict, self.elements) if self.mode is DistributionMode.BROADCAST else self.elements
        return OperatorStateSnapshot(self.mode, self.type, self.strategy, tuple(copied))


class OperatorListState:
    """The elements that this subtask holds; they have no key.

    Attributes:
        changed: Whether it must be saved: it is new, was migrated or written, or changed its strategy. A write of
            equal elements counts; one that adds and removes nothing does not.

    """

    __slots__ = ("_conform", "_copy", "_elements", "changed", "mode", "name", "strategy", "type")

    def __init__(self, descriptor: ListStateDescriptor, held: HeldOperatorState, *, changed: bool) -> None:
        self.name = descriptor.name
        self.mode = held.mode
        self.type = held.type
        self.strategy = held.strategy
        self.changed = changed
        stored = value_type(self.type)
        self._conform = stored.conform
        self._copy = stored.copy
        self._elements = held.elements

    def get(self) -> Iterator[Any]:
        """Return the current elements, in the order they were added."""
        elements = tuple(self._elements)
        return iter(elements) if self._copy is None else map(self._copy, elements)

    def add(self, value: Any) -> None:
        """Append one element."""
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all elements, or none when one is refused."""
        added = self._stored_form(values)
        if added:
            self.changed = True
            self._elements.extend(added)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""
        self._elements = self._stored_form(values)
        self.changed = True

    def clear(self) -> None:
        """Remove all elements."""
        if self._elements:
            self.changed = True
            self._elements = []

    def held(self) -> HeldOperatorState:
        """Return the state with its container, which this object keeps using."""
        return HeldOperatorState(self.mode, self.type, self.strategy, self._elements)

    def release(self) -> None:
        """Give the container away and continue with an empty one."""
        self._elements = []

    def _stored_form(self, values: Iterable[Any]) -> list[Any]:
        conformed = []
        for value in checked_elements(f"operator state {self.name!r}", values):
            try:
                conformed.append(self._conform(value))
            except MisfitError as error:
                raise StateTypeError(
                    f"found {value!r} for operator state {self.name!r}{error.details}; expected elements of type "
                    f"{self.type}; convert them before they are written, or declare another type; "
                    "the old elements were kept"
                ) from error
        return conformed


class _BroadcastEntries:
    """Reads of a broadcast state, shared by both sides."""

    __slots__ = ("_conform_key", "_copy", "_entries", "key_type", "name")

    def __init__(self, descriptor: MapStateDescriptor, entries: dict[Any, Any]) -> None:
        self.name = descriptor.name
        self.key_type = descriptor.key_type
        self._conform_key = map_key_type(descriptor.key_type)
        self._copy = value_type(descriptor.value_type).copy
        self._entries = entries

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        return self._given(self._entries.get(self._user_key(key)))

    def contains(self, key: Any) -> bool:
        """Return whether a key is there."""
        return self._user_key(key) in self._entries

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return the current entries; the map may change during iteration."""
        return ((key, self._given(value)) for key, value in tuple(self._entries.items()))

    def keys(self) -> Iterator[Any]:
        """Return the current keys."""
        return iter(tuple(self._entries))

    def values(self) -> Iterator[Any]:
        """Return the current values."""
        return map(self._given, tuple(self._entries.values()))

    def is_empty(self) -> bool:
        """Return whether there are no entries."""
        return not self._entries

    def _given(self, stored: Any) -> Any:
        return stored if self._copy is None else self._copy(stored)

    def _user_key(self, key: Any) -> Any:
        try:
            return self._conform_key(key)
        except MisfitError as error:
            raise StateTypeError(
                f"found the key {key!r} for broadcast state {self.name!r}{error.details}; expected a key of type "
                f"{self.key_type}; convert it, or declare another type"
            ) from error


class ReadOnlyBroadcastMapState(_BroadcastEntries):
    """A broadcast state for the side that is not broadcast: current and read-only."""

    __slots__ = ()

    def put(self, key: Any, value: Any) -> NoReturn:
        """Refuse, with StateError."""
        raise self._refusal("put")

    def put_all(self, entries: Mapping[Any, Any]) -> NoReturn:
        """Refuse, with StateError."""
        raise self._refusal("put_all")

    def remove(self, key: Any) -> NoReturn:
        """Refuse, with StateError."""
        raise self._refusal("remove")

    def clear(self) -> NoReturn:
        """Refuse, with StateError."""
        raise self._refusal("clear")

    def _refusal(self, write: str) -> StateError:
        return StateError(
            f"found {write} on broadcast state {self.name!r} outside of process_broadcast_element; expected reads, "
            "because the broadcast side alone may write, or the subtasks' copies would differ; "
            "write it in process_broadcast_element"
        )


class BroadcastMapState(_BroadcastEntries):
    """A map that every subtask holds a copy of.

    Attributes:
        read_only: The view for the side that is not broadcast.
        changed: Whether it must be saved: it is new, was migrated or was written. A write of an equal value counts;
            one that puts and removes nothing does not.

    """

    __slots__ = ("_conform", "changed", "read_only", "type", "value_type")

    def __init__(self, descriptor: MapStateDescriptor, held: HeldOperatorState, *, changed: bool) -> None:
        (entries,) = held.elements
        super().__init__(descriptor, entries)
        self.type = held.type
        self.value_type = descriptor.value_type
        self.changed = changed
        self._conform = value_type(descriptor.value_type).conform
        self.read_only = ReadOnlyBroadcastMapState(descriptor, self._entries)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; the value may be None."""
        stored_key, stored = self._user_key(key), self._stored_form(key, value)
        self.changed = True
        self._entries[stored_key] = stored

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set all entries, or none when one is refused."""
        if not isinstance(entries, Mapping):
            raise StateError(
                f"found {entries!r} for broadcast state {self.name!r}; expected a mapping of entries to put; "
                "give a dict, an empty one for nothing"
            )
        put = {self._user_key(key): self._stored_form(key, value) for key, value in entries.items()}
        if put:
            self.changed = True
            self._entries.update(put)

    def remove(self, key: Any) -> None:
        """Remove a key, if it is there."""
        stored_key = self._user_key(key)
        if stored_key in self._entries:
            self.changed = True
            del self._entries[stored_key]

    def clear(self) -> None:
        """Remove all entries."""
        if self._entries:
            self.changed = True
            self._entries.clear()

    def held(self) -> HeldOperatorState:
        """Return the state with its container, which this object keeps using."""
        return HeldOperatorState(DistributionMode.BROADCAST, self.type, CONTIGUOUS, [self._entries])

    def release(self) -> None:
        """Give the container away and continue with an empty one."""
        self._entries = self.read_only._entries = {}

    def _stored_form(self, key: Any, value: Any) -> Any:
        try:
            return self._conform(value)
        except MisfitError as error:
            raise StateTypeError(
                f"found {value!r} for broadcast state {self.name!r} under key {key!r}{error.details}; expected a value "
                f"of type {self.value_type}; convert it before it is written, or declare another type; "
                "the old value was kept"
            ) from error


class OperatorStateBackend:
    """Operator states of one subtask by name; restored states that are not registered again are kept.

    Operator state never expires: a time to live in a descriptor has no effect, as in Flink. Lists and broadcast maps
    have separate names, as in Flink; but where Flink would save one of two states of the same name and lose the other,
    ``snapshot`` raises.

    Raises:
        ConfigurationError: A state is requested with something that is not a descriptor.
        StateConflictError: A state of that name has another mode or type, or the descriptor is of another kind.
        StateMigrationError: The restored type cannot be migrated to the descriptor's.

    """

    def __init__(self) -> None:
        self._restored: dict[str, HeldOperatorState] = {}
        self._lists: dict[str, OperatorListState] = {}
        self._broadcasts: dict[str, BroadcastMapState] = {}

    def get_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """Return the split list state of that name, registering it on first use."""
        return self._list_state(descriptor, DistributionMode.SPLIT)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """Return the union list state of that name, registering it on first use."""
        return self._list_state(descriptor, DistributionMode.UNION)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastMapState:
        """Return the broadcast state of that name, registering it on first use."""
        _require_kind(descriptor, MapStateDescriptor, "broadcast state")
        state = self._broadcasts.get(descriptor.name)
        if state is None:
            held, changed = self._take(descriptor, DistributionMode.BROADCAST)
            state = self._broadcasts[descriptor.name] = BroadcastMapState(descriptor, held, changed=changed)
        elif state.type != descriptor.type_ddl():
            raise _conflict(descriptor, DistributionMode.BROADCAST, DistributionMode.BROADCAST, state.type)
        return state

    def read_only_broadcast_state(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastMapState:
        """Return a read-only view of the broadcast state of that name, registering it on first use."""
        return self.get_broadcast_state(descriptor).read_only

    def registered_state_names(self) -> list[str]:
        """Return the names of all lists, sorted, including restored ones that are not registered."""
        return sorted(self._lists.keys() | self._restored_names(broadcast=False))

    def registered_broadcast_state_names(self) -> list[str]:
        """Return the names of all broadcast states, sorted, including restored ones that are not registered."""
        return sorted(self._broadcasts.keys() | self._restored_names(broadcast=True))

    def unregistered(self) -> list[str]:
        """Return the names of restored states that were not registered again, sorted."""
        return sorted(self._restored)

    def snapshot(self) -> Mapping[str, OperatorStateSnapshot]:
        """Return all states by name, isolated from later writes.

        Raises:
            StateConflictError: A list and a broadcast state have the same name.

        """
        return {name: held.snapshot() for name, held in self._held().items()}

    def restore(
        self, snapshots: Iterable[Mapping[str, OperatorStateSnapshot]] | Mapping[str, OperatorStateSnapshot]
    ) -> None:
        """Replace all states with the snapshots: lists are appended in order, later broadcast entries win.

        State objects obtained before are disconnected from the backend; get them again.

        Raises:
            StateConflictError: A state has two modes or types in the snapshots; nothing is restored then.

        """
        parts: dict[str, list[OperatorStateSnapshot]] = {}
        for snapshot in [snapshots] if isinstance(snapshots, Mapping) else snapshots:
            for name, part in snapshot.items():
                parts.setdefault(name, []).append(part)
        self._start_afresh({name: _merged(name, of_name) for name, of_name in parts.items()})

    def changed(self) -> list[str]:
        """Return the names of states that changed since they were restored or attached, sorted.

        A restored state that was not registered again is unchanged; a newly registered state counts as changed.
        """
        return sorted(state.name for state in self._live() if state.changed)

    def detach(self) -> dict[str, HeldOperatorState]:
        """Remove and return all states, for ``attach`` of a later backend; the cost does not depend on their size.

        State objects obtained before become empty and disconnected from the detached states.

        Raises:
            StateConflictError: A list and a broadcast state have the same name.

        """
        detached = self._held()
        for state in self._live():
            state.release()
        self._start_afresh({})
        return detached

    def attach(self, detached: Mapping[str, HeldOperatorState]) -> None:
        """Replace all states with those that another backend detached; this backend then owns their containers."""
        self._start_afresh(dict(detached))

    def _start_afresh(self, restored: dict[str, HeldOperatorState]) -> None:
        self._restored = restored
        self._lists = {}
        self._broadcasts = {}

    def _live(self) -> list[OperatorListState | BroadcastMapState]:
        return [*self._lists.values(), *self._broadcasts.values()]

    def _held(self) -> dict[str, HeldOperatorState]:
        """Return all states by name with their containers."""
        states = dict(self._restored)
        for state in self._live():
            held, other = state.held(), states.get(state.name)
            if other is not None:
                raise StateConflictError(
                    f"found two operator states {state.name!r}, {_described(other.mode, other.type)} and "
                    f"{_described(held.mode, held.type)}; expected one of them, because state is saved under its "
                    "name; give one of them another name"
                )
            states[state.name] = held
        return dict(sorted(states.items()))

    def _list_state(self, descriptor: ListStateDescriptor, mode: DistributionMode) -> OperatorListState:
        _require_kind(descriptor, ListStateDescriptor, f"{mode.value} list")
        state = self._lists.get(descriptor.name)
        if state is None:
            held, changed = self._take(descriptor, mode)
            state = self._lists[descriptor.name] = OperatorListState(descriptor, held, changed=changed)
        elif state.mode is not mode or state.type != descriptor.type_ddl():
            raise _conflict(descriptor, mode, state.mode, state.type)
        if state.strategy != descriptor.strategy:
            state.strategy = descriptor.strategy
            # A union is never split. If every subtask saved its full copy, a restore would multiply the elements.
            state.changed = state.changed or mode is DistributionMode.SPLIT
        return state

    def _take(
        self, descriptor: ListStateDescriptor | MapStateDescriptor, mode: DistributionMode
    ) -> tuple[HeldOperatorState, bool]:
        """Return the restored state in the descriptor's type, or a new one, and whether it must be saved."""
        name, wanted = descriptor.name, descriptor.type_ddl()
        broadcast = mode is DistributionMode.BROADCAST
        if name not in self._restored_names(broadcast=broadcast):
            return HeldOperatorState(mode, wanted, CONTIGUOUS, [{}] if broadcast else []), True
        restored = self._restored[name]
        if restored.mode is not mode:
            raise _conflict(descriptor, mode, restored.mode, restored.type)
        convert = migration(restored.type, wanted, descriptor.renames, name)
        elements = restored.elements if convert is None else list(map(convert, restored.elements))
        del self._restored[name]
        return replace(restored, type=wanted, elements=elements), convert is not None

    def _restored_names(self, *, broadcast: bool) -> set[str]:
        return {
            name
            for name, restored in self._restored.items()
            if (restored.mode is DistributionMode.BROADCAST) == broadcast
        }


def _merged(name: str, parts: list[OperatorStateSnapshot]) -> HeldOperatorState:
    last = parts[-1]
    for part in parts:
        if (part.mode, part.type) != (last.mode, last.type):
            raise StateConflictError(
                f"found operator state {name!r} as {_described(part.mode, part.type)} and as "
                f"{_described(last.mode, last.type)}; expected one of them in all snapshots; "
                "use snapshots of one job"
            )
    elements = list(chain.from_iterable(part.elements for part in parts))
    if last.mode is DistributionMode.BROADCAST:
        elements = [dict(chain.from_iterable(entries.items() for entries in elements))]
    return HeldOperatorState(last.mode, last.type, last.strategy, elements)


def _require_kind(descriptor: object, expected: type[StateDescriptor], what: str) -> None:
    if not isinstance(descriptor, StateDescriptor):
        raise ConfigurationError(
            f"found {descriptor!r} requested as a {what}; expected a {expected.__name__}; create one with name and type"
        )
    if not isinstance(descriptor, expected):
        raise StateConflictError(
            f"found the {descriptor.kind} state {descriptor.name!r} requested as a {what}; expected a "
            f"{expected.__name__}; give one, or call the getter of the descriptor's kind"
        )


def _conflict(
    descriptor: ListStateDescriptor | MapStateDescriptor, mode: DistributionMode, old_mode: DistributionMode, old: str
) -> StateConflictError:
    return StateConflictError(
        f"found operator state {descriptor.name!r} requested as {_described(mode, descriptor.type_ddl())}; "
        f"expected {_described(old_mode, old)}, as it was registered or restored; give the new state another name"
    )


def _described(mode: DistributionMode, type_ddl: str) -> str:
    return f"broadcast {type_ddl}" if mode is DistributionMode.BROADCAST else f"{mode.value} list of {type_ddl}"
