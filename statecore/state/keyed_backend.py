"""The interface of a keyed backend, as keyed state, contexts and the operator use it."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from typing import Any, Protocol

from statecore.functions import AggregatingState, ListState, MapState, ReducingState, ValueState
from statecore.model import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from statecore.state.batches import BatchKeys
from statecore.state.session_columns import SessionGroup
from statecore.state.tables import Key, Scope
from statecore.state.timers import TimerTable
from statecore.state.undo import UndoLog


class Clock(Protocol):
    """The epoch's time, never the wall clock of a worker."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""


class KeyedScope(Protocol):
    """The current key of a keyed backend.

    Attributes:
        namespace: The current window; None outside of windows.
        scope: The current key within the namespace; None without a current key.
        key_group: The current key's key group.
        batch: The keys of the current batch; None without one.

    """

    namespace: Hashable | None
    scope: Scope | None
    key_group: int
    batch: BatchKeys | None

    def set_current_key(self, key: Key, key_group: int) -> None:
        """Scope keyed state to a key."""

    def forget_current_key(self) -> None:
        """Leave keyed state without a scope."""


class KeyedStateBackend(KeyedScope, Protocol):
    """Keyed state of one subtask, as an operator uses it.

    Attributes:
        columns: Sessions that lie in columns and not in tables, per key group.

    """

    columns: dict[int, SessionGroup]

    @property
    def current_key(self) -> Key | None:
        """The current key, None without one."""

    def set_current_namespace(self, namespace: Hashable | None) -> None:
        """Scope keyed state to a window; None leaves windows."""

    def set_current_scope(self, scope: Scope, key_group: int) -> None:
        """Scope keyed state to a key within its namespace."""

    def set_current_batch(self, keys: BatchKeys) -> None:
        """Let columns be added to keyed state, until ``forget_current_batch``."""

    def forget_current_batch(self) -> None:
        """Leave keyed state without a batch and without a key."""

    def get_value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """Return a value state."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a list state."""

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a map state."""

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return a reducing state."""

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Return an aggregating state."""

    def get_state(self, descriptor: StateDescriptor) -> Any:
        """Return the state of a descriptor of any kind."""

    def each_key(self, descriptor: StateDescriptor) -> Generator[Key]:
        """Walk through the keys that have a state, outside of windows, with keyed state scoped to each in turn."""

    def timers(self, name: str) -> TimerTable:
        """Return the timers of a time domain."""

    def timer_tables(self) -> list[TimerTable]:
        """Return the timers of all time domains."""

    def note_changes(self, log: UndoLog) -> None:
        """Log all changes from now on, of states that are registered later."""

    def settle(self) -> None:
        """Move state from columns to the tables, for readers of the tables."""

    def seal(self) -> None:
        """Refuse from now on to migrate restored state."""

    def unregistered(self) -> list[str]:
        """Return the names of restored states that were not registered again."""
