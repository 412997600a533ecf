"""What users subclass: functions that process a stream, and the contexts they are given.

Method names are PyFlink's. Functions yield their outputs; a record is a named tuple of the row's columns.

::

    ProcessFunction                a stream without keys
    KeyedProcessFunction           a keyed stream: keyed state and timers
    BroadcastProcessFunction       a stream without keys, and a broadcast one
    KeyedBroadcastProcessFunction  a keyed stream, and a broadcast one
    BatchProcessFunction           a stream with or without keys, many records at a time as Arrow columns
    CheckpointedFunction           mix-in for any of them: operator state
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from statecore.model import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)


class TimeDomain(StrEnum):
    """Which time a timer follows."""

    EVENT_TIME = "event_time"
    PROCESSING_TIME = "processing_time"


class ValueState(Protocol):
    """One value per key."""

    def value(self) -> Any:
        """Return the value of the current key, or None."""

    def update(self, value: Any) -> None:
        """Replace the value of the current key; None clears it."""

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


class ReadOnlyMapState(Protocol):
    """A map that may be read: what the side without broadcast sees of a broadcast state."""

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""

    def contains(self, key: Any) -> bool:
        """Tell whether a key is there."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return the entries as they are now."""

    def keys(self) -> Iterator[Any]:
        """Return the keys as they are now."""

    def values(self) -> Iterator[Any]:
        """Return the values as they are now."""

    def is_empty(self) -> bool:
        """Tell whether there is no entry."""


class MapState(ReadOnlyMapState, Protocol):
    """A map, per key (keyed state) or the same in every subtask (broadcast state)."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set several entries."""

    def remove(self, key: Any) -> None:
        """Remove a key, if it is there."""

    def clear(self) -> None:
        """Remove all entries."""


class AppendingState(Protocol):
    """One value per key, into which every added one is folded: reducing and aggregating state."""

    def get(self) -> Any:
        """Return what was folded under the current key, or None."""

    def add(self, value: Any) -> None:
        """Fold a value in."""

    def clear(self) -> None:
        """Remove what is stored under the current key."""


class ReducingState(AppendingState, Protocol):
    """One value per key, to which every added one is reduced."""

    def add_batch(self, values: pa.Array) -> pa.Array:
        """Fold in a value for each row of the batch, as ``add`` would row by row.

        Returns:
            The reduced value of each of the batch's keys, in the order of ``BatchContext.keys``.

        """


class AggregatingState(AppendingState, Protocol):
    """One accumulator per key, into which every added value is folded; a read gives its result."""

    def add_batch(self, values: pa.Array) -> pa.Array:
        """Fold in a value for each row of the batch, as ``add`` would row by row.

        Returns:
            The accumulator of each of the batch's keys, in the order of ``BatchContext.keys``.

        """


class KeyedStateStore(Protocol):
    """Keyed states by descriptor; each is scoped to the current key."""

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """Return a value state."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a list state."""

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a map state."""

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return a reducing state."""

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Return an aggregating state."""


class OperatorStateStore(Protocol):
    """Operator states by descriptor; each is scoped to the subtask."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a list state whose elements are split among subtasks when the parallelism changes."""

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a list state whose elements every subtask gets, all of them, when the job is restored."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a map state of which every subtask has its copy."""


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
        """State per key; usable where a key is."""

    def is_restored(self) -> bool:
        """Whether the operator has state of an earlier epoch."""


class FunctionSnapshotContext(Protocol):
    """Given to ``snapshot_state``."""

    @property
    def epoch(self) -> int:
        """The epoch whose state is about to be written."""


class TimerService(Protocol):
    """Registers timers under the current key. Times are milliseconds since 1970-01-01 UTC."""

    def current_watermark(self) -> int:
        """Return the watermark; -2^63 before the first one."""

    def current_processing_time(self) -> int:
        """Return the epoch's time."""

    def register_event_time_timer(self, timestamp_ms: int) -> None:
        """Have ``on_timer`` called once when the watermark reaches a timestamp."""

    def register_processing_time_timer(self, timestamp_ms: int) -> None:
        """Have ``on_timer`` called once when the epoch's time reaches a timestamp."""

    def delete_event_time_timer(self, timestamp_ms: int) -> None:
        """Forget an event-time timer."""

    def delete_processing_time_timer(self, timestamp_ms: int) -> None:
        """Forget a processing-time timer."""


class Context(Protocol):
    """What every context gives while something is processed. Times are milliseconds since 1970-01-01 UTC."""

    def timestamp(self) -> int | None:
        """Return the event time of the record or timer; None for a record without one."""

    def current_watermark(self) -> int:
        """Return the watermark; -2^63 before the first one."""

    def current_processing_time(self) -> int:
        """Return the epoch's time: the same on every worker and on replay."""

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""


class ProcessContext(Context, Protocol):
    """Given to ``process_element``; key and timers exist for a keyed function alone."""

    def get_current_key(self) -> tuple[Any, ...]:
        """Return the values of the key columns, as a tuple."""

    def timer_service(self) -> TimerService:
        """Return what registers timers."""


class OnTimerContext(ProcessContext, Protocol):
    """Given to ``on_timer``."""

    def time_domain(self) -> TimeDomain:
        """Return which time the timer followed."""


class ReadOnlyBroadcastContext(ProcessContext, Protocol):
    """Given to ``process_element`` of a function with broadcast state."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> ReadOnlyMapState:
        """Return a broadcast state to read."""


class BroadcastOnTimerContext(ReadOnlyBroadcastContext, OnTimerContext, Protocol):
    """Given to ``on_timer`` of a function with broadcast state."""


class BatchContext(Protocol):
    """Given to ``process_batch``. Times are milliseconds since 1970-01-01 UTC."""

    def keys(self) -> pa.RecordBatch:
        """Return the distinct keys of the batch, under the names of the key columns."""

    def each_key(self) -> Iterator[tuple[Any, ...]]:
        """Walk through these keys; state and timers are scoped to each in turn."""

    def timer_service(self) -> TimerService:
        """Return what registers timers, for the key that ``each_key`` is at."""

    def timestamps(self) -> pa.Array | None:
        """Return the event time of each row, null for a row without one; None when no row can have one."""

    def timestamp(self) -> int | None:
        """Return the newest event time of the batch, which its outputs have unless they bring their own."""

    def current_watermark(self) -> int:
        """Return the watermark; -2^63 before the first one."""

    def current_processing_time(self) -> int:
        """Return the epoch's time: the same on every worker and on replay."""

    def output(self, tag: OutputTag, value: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Send rows to a side output, with an event time of their own for each, or the newest of the batch for all."""


class BroadcastContext(Context, Protocol):
    """Given to ``process_broadcast_element``: every subtask gets the same elements, and must do the same with them."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a broadcast state to read and write."""

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call ``function(key, state)`` for every key that has that state, in no order; for a keyed function alone."""


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


class _Function:
    """Life cycle of every function."""

    def open(self, ctx: RuntimeContext) -> None:
        """Prepare; get keyed states here."""

    def close(self) -> None:
        """Release what ``open`` took; called after ``snapshot_state``, and after a failure too."""


class ProcessFunction(_Function, ABC):
    """Processes the records of a stream without keys; there are no timers."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record and yield outputs: tuples (or named tuples) with the columns of the output schema."""


class KeyedProcessFunction(_Function, ABC):
    """Processes the records of a keyed stream."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record and yield outputs: tuples (or named tuples) with the columns of the output schema."""

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Yield outputs when a timer fires; the current key is the one that it was registered under."""


class BroadcastProcessFunction(_Function, ABC):
    """Processes the records of a stream without keys, with state that a broadcast stream sets."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyBroadcastContext) -> Iterable[Any] | None:
        """Process one record, with broadcast state to read, and yield outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Process one record of the broadcast stream, with broadcast state to write, and yield outputs."""


class KeyedBroadcastProcessFunction(_Function, ABC):
    """Processes the records of a keyed stream, with state that a broadcast stream sets."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyBroadcastContext) -> Iterable[Any] | None:
        """Process one record, with broadcast state to read, and yield outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Process one record of the broadcast stream, with broadcast state to write, and yield outputs."""

    def on_timer(self, timestamp_ms: int, ctx: BroadcastOnTimerContext) -> Iterable[Any] | None:
        """Yield outputs when a timer fires; the current key is the one that it was registered under."""


class BatchProcessFunction(_Function, ABC):
    """Processes the records of a stream, keyed or not, many at a time.

    A batch is what a subtask gets in an epoch; only one of many million rows is cut into several.
    """

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> Iterable[Any] | None:
        """Process records and yield outputs.

        Args:
            batch: The records, a column for each of theirs.
            ctx: Their keys and event times, and the watermark.

        Returns:
            Record batches with the columns of the output schema, or pairs of one and its rows' event times.

        """

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Yield outputs, tuples as those of a ``KeyedProcessFunction``, when a timer of a key fires."""


UserFunction = (
    ProcessFunction
    | KeyedProcessFunction
    | BroadcastProcessFunction
    | KeyedBroadcastProcessFunction
    | BatchProcessFunction
)
"""Any function that an operator can run."""
