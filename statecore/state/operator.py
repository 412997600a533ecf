"""Operator state of one subtask: list state that is split when the parallelism changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.errors import StateConflictError, StateError
from statecore.model import DistributionMode, ListStateDescriptor
from statecore.state.values import checked_elements, deep_copy


@dataclass(frozen=True, slots=True)
class OperatorListSnapshot:
    """Elements of one operator state at one moment."""

    mode: DistributionMode
    type: str
    strategy: str
    elements: tuple[Any, ...]


@dataclass(slots=True)
class OperatorListState:
    """The elements that this subtask holds; they have no key."""

    name: str
    mode: DistributionMode
    type: str
    strategy: str
    _elements: list[Any] = field(default_factory=list)

    def get(self) -> Iterator[Any]:
        """Return the elements, in the order they were added."""
        return iter(tuple(self._elements))

    def add(self, value: Any) -> None:
        """Append one element."""
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements; nothing is added when one of them is None."""
        self._elements.extend(checked_elements(f"operator state {self.name!r}", values))

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""
        self._elements = checked_elements(f"operator state {self.name!r}", values)

    def clear(self) -> None:
        """Remove all elements."""
        self._elements = []


class OperatorStateBackend:
    """Operator states of one subtask by name; restored ones that nobody registers again are kept."""

    def __init__(self) -> None:
        self._states: dict[str, OperatorListState] = {}

    def get_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """Return the split list state of that name, registering it on first use.

        Raises:
            StateConflictError: The name is taken by another mode or type.

        """
        if descriptor.ttl is not None:
            raise StateError(
                f"found a TTL on operator state {descriptor.name!r}; expected none: only keyed state can expire; "
                "remove the ttl argument"
            )
        type_ddl = descriptor.type_ddl()
        state = self._states.get(descriptor.name)
        if state is None:
            state = OperatorListState(descriptor.name, DistributionMode.SPLIT, type_ddl, descriptor.strategy)
            self._states[descriptor.name] = state
        elif (state.mode, state.type) != (DistributionMode.SPLIT, type_ddl):
            raise StateConflictError(
                f"found operator state {descriptor.name!r} asked for as split list of {type_ddl}; "
                f"expected {state.mode.value} list of {state.type}, as it was registered or restored; "
                "give the new state another name"
            )
        state.strategy = descriptor.strategy
        return state

    def snapshot(self) -> Mapping[str, OperatorListSnapshot]:
        """Return all states by name, isolated from later writes."""
        return {
            name: OperatorListSnapshot(state.mode, state.type, state.strategy, tuple(map(deep_copy, state.get())))
            for name, state in sorted(self._states.items())
        }

    def hold(self, name: str, elements: Iterable[Any]) -> None:
        """Replace the elements of a state by what was written of them."""
        self._states[name].update(elements)

    def restore(self, snapshots: Iterable[Mapping[str, OperatorListSnapshot]]) -> None:
        """Append the elements of the snapshots, in order."""
        for snapshot in snapshots:
            for name, restored in snapshot.items():
                state = self._states.get(name)
                if state is None:
                    state = OperatorListState(name, restored.mode, restored.type, restored.strategy)
                    self._states[name] = state
                elif (state.mode, state.type) != (restored.mode, restored.type):
                    raise StateConflictError(
                        f"found operator state {name!r} as {restored.mode.value} list of {restored.type} and as "
                        f"{state.mode.value} list of {state.type}; expected one of them in all snapshots; "
                        "use snapshots of one job"
                    )
                state.add_all(restored.elements)
