"""Base classes of user functions, and Protocols of their contexts and states.

Method names follow PyFlink's ``datastream`` API. A function yields its outputs; a record is a named tuple of the
row's columns. All times are milliseconds since 1970-01-01 UTC.

::

    ProcessFunction                a stream without keys
    KeyedProcessFunction           a keyed stream: keyed state and timers
    BroadcastProcessFunction       a stream without keys, connected to a broadcast stream
    KeyedBroadcastProcessFunction  a keyed stream, connected to a broadcast stream
    CoProcessFunction              two connected streams without keys
    KeyedCoProcessFunction         two connected streams with the same key: they share keyed state and timers
    BatchProcessFunction           any stream, as Arrow record batches instead of single records
    CheckpointedFunction           mix-in for any of them: operator state

Keyed state raises ``NoCurrentKeyError`` where there is no current key (in ``open``, for example), and
``StateTypeError`` for a value that does not fit the type of its descriptor. Where a method says None for "missing",
nothing was stored under the current key, or it has expired.
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
    """The kind of time that a timer follows."""

    EVENT_TIME = "event_time"
    PROCESSING_TIME = "processing_time"


class ValueState(Protocol):
    """Keyed state: one value per key."""

    def value(self) -> Any:
        """Return the value of the current key; None when missing."""

    def update(self, value: Any) -> None:
        """Replace the value of the current key; None clears it.

        Raises:
            StateTypeError: The value does not fit the descriptor's type.

        """

    def clear(self) -> None:
        """Remove the value of the current key."""


class ListState(Protocol):
    """A list per key (keyed state) or per subtask (operator state)."""

    def get(self) -> Iterator[Any]:
        """Return the elements in the order they were added; none when missing."""

    def add(self, value: Any) -> None:
        """Append one element."""

    def add_all(self, values: Iterable[Any]) -> None:
        """Append several elements."""

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""

    def clear(self) -> None:
        """Remove all elements."""


class ReadOnlyMapState(Protocol):
    """The read methods of a map; ``process_element`` sees broadcast state through them."""

    def get(self, key: Any) -> Any:
        """Return the value under a map key; None when missing."""

    def contains(self, key: Any) -> bool:
        """Return whether the map has this key."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return the entries; later writes do not change the iterator."""

    def keys(self) -> Iterator[Any]:
        """Return the map keys; later writes do not change the iterator."""

    def values(self) -> Iterator[Any]:
        """Return the values; later writes do not change the iterator."""

    def is_empty(self) -> bool:
        """Return whether the map has no entry."""


class MapState(ReadOnlyMapState, Protocol):
    """A map per key (keyed state), or one map that is the same in every subtask (broadcast state)."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a map key.

        Raises:
            StateTypeError: Key or value does not fit the descriptor's types.

        """

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set several entries."""

    def remove(self, key: Any) -> None:
        """Remove a map key; no error when it is missing."""

    def clear(self) -> None:
        """Remove all entries."""


class AppendingState(Protocol):
    """Keyed state that folds each added value into one: the common part of reducing and aggregating state."""

    def get(self) -> Any:
        """Return the folded result of the current key; None when missing."""

    def add(self, value: Any) -> None:
        """Fold a value into the current key's state."""

    def clear(self) -> None:
        """Remove the state of the current key."""


class ReducingState(AppendingState, Protocol):
    """Keyed state: one value per key, combined with each added value by the descriptor's ``reduce``."""

    def add_batch(self, values: pa.Array) -> pa.Array:
        """Add one value per row of the current batch, with the same result as ``add`` row by row.

        Args:
            values: One value per row, in the batch's row order.

        Returns:
            The reduced value of each distinct key, in the order of ``BatchContext.keys``.

        """


class AggregatingState(AppendingState, Protocol):
    """Keyed state: one accumulator per key; ``get`` returns the ``AggregateFunction``'s result for it."""

    def add_batch(self, values: pa.Array) -> pa.Array:
        """Add one value per row of the current batch, with the same result as ``add`` row by row.

        Args:
            values: One value per row, in the batch's row order.

        Returns:
            The accumulator (not the result) of each distinct key, in the order of ``BatchContext.keys``.

        """


class KeyedStateStore(Protocol):
    """Gives access to keyed state by descriptor; every read and write applies to the current key.

    Each method raises ``StateError`` in a function without keys, and ``StateConflictError`` when the name is already
    registered with another kind or type.
    """

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
    """Gives access to operator state by descriptor; it belongs to the subtask, not to a key.

    The modes are Flink's: split, union and broadcast. Each method raises ``StateConflictError`` when the name is
    already registered with another mode or type.
    """

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a split list state: a rescale divides its elements among the subtasks."""

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a union list state: after a restore, every subtask has the elements of all subtasks."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a broadcast map state: every subtask has a copy of the same map."""


class Counter(Protocol):
    """Counts up, from the job's start on; a replayed epoch counts once."""

    def inc(self, n: int = 1) -> None:
        """Count ``n`` more, which is not negative."""


class Gauge(Protocol):
    """Has the values that subtasks have set, in the newest epoch in which one did."""

    def set(self, value: int | float) -> None:
        """Set the value."""


class Histogram(Protocol):
    """Keeps how values are distributed, from the job's start on."""

    def update(self, value: int | float) -> None:
        """Take a value."""


class MetricGroup(Protocol):
    """The metrics of a function; get them in ``open``, and keep them.

    A name has letters, digits and ``_``, and one kind; a function has at most 100. Other names raise
    ``ConfigurationError``, and a new one after ``open`` ``StateError``.
    """

    def counter(self, name: str) -> Counter:
        """Return the counter of this name."""

    def gauge(self, name: str) -> Gauge:
        """Return the gauge of this name."""

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of this name."""


class RuntimeContext(KeyedStateStore, Protocol):
    """Passed to ``open``: the subtask, its metrics, and access to keyed state."""

    @property
    def metrics(self) -> MetricGroup:
        """The function's metrics, which people see in ``status``, on the job's page and in Prometheus."""

    @property
    def subtask(self) -> int:
        """Index of this parallel instance, from 0."""

    @property
    def parallelism(self) -> int:
        """Number of parallel instances in this epoch."""


class FunctionInitializationContext(Protocol):
    """Passed to ``initialize_state``."""

    @property
    def operator_state_store(self) -> OperatorStateStore:
        """Operator state of this subtask."""

    @property
    def keyed_state_store(self) -> KeyedStateStore:
        """Keyed state; get it here, read and write it where there is a current key."""

    def is_restored(self) -> bool:
        """Return whether the operator has state of an earlier epoch."""


class FunctionSnapshotContext(Protocol):
    """Passed to ``snapshot_state``."""

    @property
    def epoch(self) -> int:
        """The epoch that is ending; its state is written after this call."""


class TimerService(Protocol):
    """Registers timers under the current key.

    Registering the same timestamp twice fires once. Every method that registers or deletes raises ``StateError`` in a
    function without keys.
    """

    def current_watermark(self) -> int:
        """Return the watermark in ms; -2^63 before the first one."""

    def current_processing_time(self) -> int:
        """Return the epoch's batch timestamp in ms."""

    def register_event_time_timer(self, timestamp_ms: int) -> None:
        """Register a timer that fires once, when the watermark reaches ``timestamp_ms``."""

    def register_processing_time_timer(self, timestamp_ms: int) -> None:
        """Register a timer that fires once, in the first epoch whose batch timestamp reaches ``timestamp_ms``."""

    def delete_event_time_timer(self, timestamp_ms: int) -> None:
        """Delete an event-time timer; no error when there is none."""

    def delete_processing_time_timer(self, timestamp_ms: int) -> None:
        """Delete a processing-time timer; no error when there is none."""


class Context(Protocol):
    """The common part of the contexts: time and side outputs."""

    def timestamp(self) -> int | None:
        """Return the event time in ms of the record or timer; None for a record without one."""

    def current_watermark(self) -> int:
        """Return the watermark in ms; -2^63 before the first one."""

    def current_processing_time(self) -> int:
        """Return the epoch's batch timestamp in ms: the same on every worker and in a replay."""

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit a value to a side output.

        Raises:
            StateError: ``tag`` is not an ``OutputTag``.

        """


class ProcessContext(Context, Protocol):
    """Passed to ``process_element``; only a keyed function has a current key and timers."""

    def get_current_key(self) -> tuple[Any, ...]:
        """Return the values of the key columns.

        Raises:
            NoCurrentKeyError: The function has no keys, or is not processing a record or timer.

        """

    def timer_service(self) -> TimerService:
        """Return the timer service."""


class OnTimerContext(ProcessContext, Protocol):
    """Passed to ``on_timer``."""

    def time_domain(self) -> TimeDomain:
        """Return whether the timer followed event time or processing time."""


class ReadOnlyBroadcastContext(ProcessContext, Protocol):
    """Passed to ``process_element`` of a function with broadcast state."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> ReadOnlyMapState:
        """Return a broadcast state, read-only.

        Raises:
            StateError: ``broadcast(…)`` did not declare this state.

        """


class BroadcastOnTimerContext(ReadOnlyBroadcastContext, OnTimerContext, Protocol):
    """Passed to ``on_timer`` of a function with broadcast state."""


class BatchContext(Protocol):
    """Passed to ``process_batch``."""

    def keys(self) -> pa.RecordBatch:
        """Return the distinct keys of the batch: one row per key, one column per key column.

        Raises:
            NoCurrentKeyError: The stream has no keys.

        """

    def each_key(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the keys in the order of ``keys``; each becomes the current key of state and timers."""

    def timer_service(self) -> TimerService:
        """Return the timer service; its timers belong to the current key of ``each_key``."""

    def timestamps(self) -> pa.Array | None:
        """Return the event time of each row in ms, null for a row without one; None when the source has none."""

    def timestamp(self) -> int | None:
        """Return the newest event time of the batch in ms; outputs without timestamps get it."""

    def current_watermark(self) -> int:
        """Return the watermark in ms; -2^63 before the first one."""

    def current_processing_time(self) -> int:
        """Return the epoch's batch timestamp in ms: the same on every worker and in a replay."""

    def output(self, tag: OutputTag, value: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Emit rows to a side output.

        Args:
            tag: The side output.
            value: Rows with the columns of the tag's type.
            timestamps: Event time of each row in ms; None gives every row the newest event time of the batch.

        Raises:
            StateError: ``tag`` is not an ``OutputTag``, ``value`` is not a record batch, or the number of timestamps
                differs from the number of rows.

        """


class BroadcastContext(Context, Protocol):
    """Passed to ``process_broadcast_element``.

    Every subtask gets the same broadcast elements. Handle them the same way in each, or the copies of the broadcast
    state diverge.
    """

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a broadcast state to read and write.

        Raises:
            StateError: ``broadcast(…)`` did not declare this state.

        """

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call ``function(key, state)`` for every key of this subtask that has the state, in no particular order.

        Raises:
            StateError: The function has no keys.

        """


class CheckpointedFunction(ABC):
    """Mix-in that gives a function operator state.

    A function object lives for one epoch of one subtask. Anything that must live longer belongs in state.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the states; called once per epoch, before ``open``."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Copy the function's own fields into state; called once per epoch, after the last record and timer."""


class Function:
    """Life cycle of every function: ``open``, the records and timers of one epoch, ``close``."""

    def open(self, ctx: RuntimeContext) -> None:
        """Prepare for an epoch; get keyed states here."""

    def close(self) -> None:
        """Release what ``open`` acquired; called last, also after a failure."""


class ProcessFunction(Function, ABC):
    """Processes a stream without keys; it has no keyed state and no timers."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record and yield outputs: tuples with the columns of the output schema, in their order."""


class KeyedProcessFunction(Function, ABC):
    """Processes a keyed stream, with keyed state and timers."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record and yield outputs: tuples with the columns of the output schema, in their order."""

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Yield outputs when a timer fires; the current key is the key that registered it."""


class BroadcastProcessFunction(Function, ABC):
    """Processes a stream without keys and a broadcast stream, which share broadcast state."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyBroadcastContext) -> Iterable[Any] | None:
        """Process one record and yield outputs; broadcast state is read-only here."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Process one record of the broadcast stream and yield outputs; broadcast state is writable here."""


class KeyedBroadcastProcessFunction(Function, ABC):
    """Processes a keyed stream and a broadcast stream, which share broadcast state."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyBroadcastContext) -> Iterable[Any] | None:
        """Process one record and yield outputs; broadcast state is read-only here."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Process one record of the broadcast stream and yield outputs; broadcast state is writable here."""

    def on_timer(self, timestamp_ms: int, ctx: BroadcastOnTimerContext) -> Iterable[Any] | None:
        """Yield outputs when a timer fires; the current key is the key that registered it."""


class CoProcessFunction(Function, ABC):
    """Processes two connected streams without keys; it has no keyed state and no timers."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record of the first stream and yield outputs."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record of the second stream and yield outputs."""


class KeyedCoProcessFunction(Function, ABC):
    """Processes two connected keyed streams, which share keyed state and timers.

    Within an epoch, a key's records of the first stream come before those of the second. Where both streams are ordered
    by event time, they are merged instead.
    """

    @abstractmethod
    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record of the first stream and yield outputs."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Process one record of the second stream and yield outputs."""

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Yield outputs when a timer fires; the current key is the key that registered it."""


class BatchProcessFunction(Function, ABC):
    """Processes a stream, keyed or not, one Arrow record batch at a time.

    A subtask gets all records of an epoch in one batch; only an epoch of many million rows is split.
    """

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> Iterable[Any] | None:
        """Process a batch of records and yield outputs.

        Args:
            batch: The records, with the columns of the input.
            ctx: Keys, event times, watermark and timers.

        Returns:
            Record batches with the columns of the output schema, or pairs (record batch, event time of each row in ms).

        """

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Yield outputs when a timer fires: tuples with the columns of the output schema."""


UserFunction = (
    ProcessFunction
    | KeyedProcessFunction
    | BroadcastProcessFunction
    | KeyedBroadcastProcessFunction
    | CoProcessFunction
    | KeyedCoProcessFunction
    | BatchProcessFunction
)
"""Every kind of function that ``process`` accepts."""
