"""What users subclass: functions that process a stream one record at a time, and the contexts they are given.

Method names are PyFlink's. Functions yield their outputs; a record is a named tuple of the row's columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from statecore.model import ListStateDescriptor, OutputTag, ValueStateDescriptor


class ValueState(Protocol):
    """One value per key."""

    def value(self) -> Any:
        """Return the value of the current key, or None."""

    def update(self, value: Any) -> None:
        """Replace the value of the current key."""

    def clear(self) -> None:
        """Remove the value of the current key."""


class ListState(Protocol):
    """A list, per key (keyed state) or per subtask (operator state)."""

    def get(self) -> Iterator[Any]:
        """Return the elements, in the order they were added."""

    def add(self, value: Any) -> None:
        """Append one element."""

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""

    def clear(self) -> None:
        """Remove all elements."""


class KeyedStateStore(Protocol):
    """Keyed states by descriptor; each is scoped to the current key."""

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """Return a value state."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a list state."""


class OperatorStateStore(Protocol):
    """Operator states by descriptor; each is scoped to the subtask."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a list state whose elements are split among subtasks when the parallelism changes."""


class RuntimeContext(KeyedStateStore, Protocol):
    """Given to ``open``: where the function runs, and its keyed state."""

    @property
    def subtask(self) -> int:
        """Index of this parallel instance, from 0."""

    @property
    def parallelism(self) -> int:
        """Number of parallel instances in this epoch."""


class FunctionInitializationContext(Protocol):
    """Given to ``initialize_state``."""

    @property
    def operator_state_store(self) -> OperatorStateStore:
        """State of the subtask."""

    @property
    def keyed_state_store(self) -> KeyedStateStore:
        """State per key; usable inside ``process_element`` only."""

    def is_restored(self) -> bool:
        """Whether the operator has state of an earlier epoch."""


class FunctionSnapshotContext(Protocol):
    """Given to ``snapshot_state``."""

    @property
    def epoch(self) -> int:
        """The epoch whose state is about to be written."""


class ProcessContext(Protocol):
    """Given to ``process_element``."""

    def get_current_key(self) -> tuple[Any, ...]:
        """Return the values of the key columns, as a tuple."""

    def current_processing_time(self) -> int:
        """Return the epoch's time in milliseconds since 1970-01-01 UTC: the same on every worker and on replay."""

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""


class CheckpointedFunction(ABC):
    """Mix-in for functions with operator state.

    A function object lives for one epoch of one subtask: whatever must outlive it belongs into state.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the states; called before ``open``."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Write into the states what the function holds outside of them; called after the last record of an epoch."""


class KeyedProcessFunction(ABC):
    """Processes the records of a keyed stream."""

    def open(self, ctx: RuntimeContext) -> None:  # noqa: B027 - overriding it is a choice
        """Prepare; get keyed states here."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record and yield outputs: tuples (or named tuples) with the columns of the output schema."""

    def close(self) -> None:  # noqa: B027 - overriding it is a choice
        """Release what ``open`` took; called after ``snapshot_state``, and after a failure too."""
