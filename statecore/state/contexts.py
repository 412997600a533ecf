"""The contexts of functions: each offers what its callback may do."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from statecore.errors import NoCurrentKeyError, StateError
from statecore.functions import (
    AggregatingState,
    ListState,
    MapState,
    ReadOnlyMapState,
    ReducingState,
    TimeDomain,
    TimerService,
    ValueState,
)
from statecore.model import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from statecore.state.batches import BatchKeys
from statecore.state.keyed_backend import KeyedStateBackend
from statecore.state.metrics import Metrics
from statecore.state.operator_state import OperatorStateBackend
from statecore.state.tables import Key, Scope
from statecore.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerTable

NO_WATERMARK = -(2**63)
WINDOW_TIMERS = "__window_timers"
WINDOW_PROCESSING_TIMERS = "__window_processing_timers"


class Moment:
    """Current time of a subtask: the timestamp of its record, its watermark and the epoch's clock."""

    __slots__ = ("now_ms", "timestamp", "watermark")

    def __init__(self, now_ms: Callable[[], int], watermark: int) -> None:
        self.now_ms = now_ms
        self.watermark = watermark
        self.timestamp: int | None = None


class Emitter(Protocol):
    """Receives the outputs of a function, with the event time of the record or timer behind them, in ms."""

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        """Receive one row of a side output."""

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        """Receive rows of the main output."""

    def emit_batch(self, tag: OutputTag | None, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        """Receive many rows as columns, with the event time of each; None is the main output."""


class NoBroadcastState:
    """Refuses broadcast state."""

    __slots__ = ()

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> Any:
        """Refuse, with StateError."""
        raise StateError(
            "found get_broadcast_state() on a context without broadcast state; expected it in process_element, "
            "on_timer or process_broadcast_element of a function with broadcast state; connect the stream to a "
            "broadcast one"
        )

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Refuse, with StateError."""
        raise StateError(
            "found apply_to_keyed_state() outside of process_broadcast_element; expected it there, since elsewhere "
            "state is that of one key; call it in process_broadcast_element of a KeyedBroadcastProcessFunction"
        )


class WindowTimers:
    """Timers of the backend's current key and window.

    They are stored apart from the timers of user functions, so that neither kind fires in the other's functions.

    Attributes:
        event: Those of event time.
        processing: Those of processing time; None in a function that has not asked for them.

    """

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        self.event = backend.timers(WINDOW_TIMERS)
        self.processing: TimerTable | None = None

    def follow_processing_time(self) -> None:
        """Ask for timers of processing time."""
        self.processing = self._backend.timers(WINDOW_PROCESSING_TIMERS)

    def register(self, timestamp_ms: int) -> None:
        """Request one call of ``on_timer``, in the current window, when the watermark reaches a timestamp."""
        self.event.register(*_current_scope(self._backend), timestamp_ms)

    def register_processing(self, timestamp_ms: int) -> None:
        """Request one call of ``on_timer``, in the current window, when the epoch's time reaches a timestamp."""
        assert self.processing is not None
        self.processing.register(*_current_scope(self._backend), timestamp_ms)

    def clear(self) -> None:
        """Forget all timers of the current window."""
        place = _current_scope(self._backend)
        self.event.delete_all(*place)
        if self.processing is not None:
            self.processing.delete_all(*place)


class KeyedStateAccess:
    """Keyed state by descriptor, with the method names that users know; the backend is None without keys."""

    def __init__(self, backend: KeyedStateBackend | None) -> None:
        self._given = backend

    @property
    def _backend(self) -> KeyedStateBackend:
        if self._given is None:
            raise StateError(
                "found keyed state requested by a function without keys; expected a KeyedProcessFunction or "
                "KeyedBroadcastProcessFunction; key the stream, or use operator state"
            )
        return self._given

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """Return a value state."""
        return self._backend.get_value_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return a list state."""
        return self._backend.get_list_state(descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a map state."""
        return self._backend.get_map_state(descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return a reducing state."""
        return self._backend.get_reducing_state(descriptor)

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Return an aggregating state."""
        return self._backend.get_aggregating_state(descriptor)


class SubtaskContext(KeyedStateAccess, NoBroadcastState):
    """Given to ``open``.

    Attributes:
        keyed_backend: The keyed backend, for functions of this library; None without keys.
        windows: The timers of windows, once the function has requested them.
        metrics: The function's metrics.

    """

    def __init__(self, backend: KeyedStateBackend | None, subtask: int, parallelism: int) -> None:
        super().__init__(backend)
        self.keyed_backend = backend
        self.windows: WindowTimers | None = None
        self.metrics = Metrics()
        self.subtask = subtask
        self.parallelism = parallelism

    def windowed(self) -> tuple[KeyedStateBackend, WindowTimers]:
        """Return keyed state and timers for windows; a function with windows has no other timers."""
        backend = self._backend
        self.windows = WindowTimers(backend)
        return backend, self.windows


class InitializationContext(NoBroadcastState):
    """Given to ``initialize_state``."""

    def __init__(
        self, operator_state_store: OperatorStateBackend, keyed: KeyedStateBackend | None, *, restored: bool
    ) -> None:
        self.operator_state_store = operator_state_store
        self.keyed_state_store = KeyedStateAccess(keyed)
        self._restored = restored

    def is_restored(self) -> bool:
        """Whether the operator has state of an earlier epoch."""
        return self._restored


class SnapshotContext:
    """Given to ``snapshot_state``."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class NoTimerService:
    """The timer service of a function without keys: it returns the time and refuses timers."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def current_watermark(self) -> int:
        """Return the watermark."""
        return self._moment.watermark

    def current_processing_time(self) -> int:
        """Return the epoch's time."""
        return self._moment.now_ms()

    def register_event_time_timer(self, timestamp_ms: int) -> None:
        """Refuse."""
        raise self._refusal()

    def register_processing_time_timer(self, timestamp_ms: int) -> None:
        """Refuse."""
        raise self._refusal()

    def delete_event_time_timer(self, timestamp_ms: int) -> None:
        """Refuse."""
        raise self._refusal()

    def delete_processing_time_timer(self, timestamp_ms: int) -> None:
        """Refuse."""
        raise self._refusal()

    def _refusal(self) -> StateError:
        return _no_key_for_timer()


class WindowTimerService(NoTimerService):
    """The timer service of a function with windows, whose timers are those of its windows."""

    def _refusal(self) -> StateError:
        return StateError(
            "found a timer requested by a function with windows; expected none, since only windows fire in it; "
            "register timers in a separate KeyedProcessFunction"
        )


class KeyedTimers(NoTimerService):
    """Timers of the backend's current key and namespace."""

    def __init__(self, moment: Moment, backend: KeyedStateBackend) -> None:
        super().__init__(moment)
        self._backend = backend
        self.event = backend.timers(EVENT_TIMERS)
        self.processing = backend.timers(PROCESSING_TIMERS)

    def register_event_time_timer(self, timestamp_ms: int) -> None:
        """Request one call of ``on_timer`` when the watermark reaches a timestamp."""
        self.event.register(*_current_scope(self._backend), timestamp_ms)

    def register_processing_time_timer(self, timestamp_ms: int) -> None:
        """Request one call of ``on_timer`` when the epoch's time reaches a timestamp."""
        self.processing.register(*_current_scope(self._backend), timestamp_ms)

    def delete_event_time_timer(self, timestamp_ms: int) -> None:
        """Forget an event-time timer."""
        self.event.delete(*_current_scope(self._backend), timestamp_ms)

    def delete_processing_time_timer(self, timestamp_ms: int) -> None:
        """Forget a processing-time timer."""
        self.processing.delete(*_current_scope(self._backend), timestamp_ms)

    def earliest_event_time_timer(self) -> int | None:
        """Return the earliest event-time timer of the current key; for functions of this library."""
        key_group, scope = _current_scope(self._backend)
        return min(self.event.groups[key_group].get(scope, ()), default=None)


class ElementContext(NoBroadcastState):
    """Given to ``process_element``; the backend is None without keys, the states without broadcast state."""

    __slots__ = ("_backend", "_emitter", "_moment", "_states", "_timers")

    def __init__(
        self,
        moment: Moment,
        emitter: Emitter,
        timers: TimerService,
        backend: KeyedStateBackend | None = None,
        states: BroadcastStates | None = None,
    ) -> None:
        self._moment = moment
        self._emitter = emitter
        self._timers = timers
        self._backend = backend
        self._states = states

    def timestamp(self) -> int | None:
        """Return the event time of the record or timer, or None."""
        return self._moment.timestamp

    def current_watermark(self) -> int:
        """Return the watermark."""
        return self._moment.watermark

    def current_processing_time(self) -> int:
        """Return the epoch's time."""
        return self._moment.now_ms()

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""
        self._emitter.emit(_checked(tag), value, self._moment.timestamp)

    def set_timestamp(self, timestamp_ms: int) -> None:
        """Give the following outputs another event time; for functions of this library."""
        self._moment.timestamp = timestamp_ms

    def emit(self, values: Iterable[Any]) -> None:
        """Emit rows of the main output at once, with the event time set; for functions of this library."""
        self._emitter.emit_all(values, self._moment.timestamp)

    def timer_service(self) -> TimerService:
        """Return the timer service."""
        return self._timers

    def get_current_key(self) -> Key:
        """Return the values of the key columns, as a tuple."""
        if self._backend is None:
            raise NoCurrentKeyError(
                "found get_current_key() where there is no key; expected it in process_element or on_timer of a keyed "
                "function; key the stream"
            )
        key = self._backend.current_key
        if key is None:
            raise NoCurrentKeyError(
                "found get_current_key() while no record or timer is processed; expected it in process_element or "
                "on_timer; keep the key, not the context"
            )
        return key

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> Any:
        """Return a broadcast state to read."""
        return super().get_broadcast_state(descriptor) if self._states is None else self._states.read_only(descriptor)


class BatchElementContext(ElementContext):
    """Given to ``process_batch``; the backend is None for a function without keys.

    Attributes:
        last_key: The key that a walk has reached, or stopped at; None before the walk and after its end.

    """

    __slots__ = ("_keyed", "_times", "last_key")

    def __init__(
        self, moment: Moment, emitter: Emitter, timers: TimerService, backend: KeyedStateBackend | None
    ) -> None:
        super().__init__(moment, emitter, timers)
        self._keyed = backend
        self._times: pa.Array | None = None
        self.last_key: Key | None = None

    def begin(self, times: pa.Array | None) -> None:
        """Start the next batch, with its rows' event times."""
        self._times = times
        self.last_key = None
        self._moment.timestamp = None if times is None else pc.max(times).as_py()

    def timestamps(self) -> pa.Array | None:
        """Return the event time of each row, or None."""
        return self._times

    def keys(self) -> pa.RecordBatch:
        """Return the distinct keys of the batch as columns."""
        return self._batch().columns

    def each_key(self) -> Iterator[Key]:
        """Walk through these keys, with state and timers scoped to each in turn."""
        keys, backend = self._batch(), self._keyed
        assert backend is not None
        try:
            for scope, key_group in zip(keys.scopes, keys.key_groups.tolist(), strict=True):
                backend.set_current_key(scope, key_group)
                self.last_key = scope
                yield scope
            self.last_key = None
        finally:
            backend.forget_current_key()

    def output(self, tag: OutputTag, value: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Send rows to a side output, with an event time for each, or the newest of the batch for all."""
        self.emit_rows(_checked(tag), value, timestamps)

    def emit_rows(self, tag: OutputTag | None, rows: Any, timestamps: pa.Array | None) -> None:
        """Send rows to a side output, or to the main output for None; refuse the same rows as ``output``."""
        if not isinstance(rows, pa.RecordBatch):
            raise StateError(
                f"found {reprlib.repr(rows)} emitted by process_batch; expected a pyarrow.RecordBatch with the columns "
                "of the output schema; make one with pyarrow.RecordBatch.from_arrays, or yield from a table's "
                "to_batches()"
            )
        if timestamps is not None and len(timestamps) != rows.num_rows:
            raise StateError(
                f"found {len(timestamps)} timestamps for {rows.num_rows} rows emitted by process_batch; expected one "
                "for each, in milliseconds; leave them out to give all rows the newest event time of the batch"
            )
        times = pa.repeat(pa.scalar(self._moment.timestamp, pa.int64()), rows.num_rows)
        self._emitter.emit_batch(tag, rows, times if timestamps is None else timestamps.cast(pa.int64()))

    def _batch(self) -> BatchKeys:
        keys = None if self._keyed is None else self._keyed.batch
        if keys is None:
            raise NoCurrentKeyError(
                "found a request for the keys of a batch that has none; expected it in process_batch on a keyed "
                "stream; key the stream"
            )
        return keys


class BroadcastStates:
    """The broadcast states that were declared when the streams were connected."""

    def __init__(self, operator: OperatorStateBackend, declared: tuple[MapStateDescriptor, ...]) -> None:
        self._operator = operator
        self._declared = {descriptor.name: descriptor for descriptor in declared}
        for descriptor in declared:
            operator.get_broadcast_state(descriptor)

    def writable(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a declared state to read and write."""
        self._require(descriptor)
        return self._operator.get_broadcast_state(descriptor)

    def read_only(self, descriptor: MapStateDescriptor) -> ReadOnlyMapState:
        """Return a declared state to read."""
        self._require(descriptor)
        return self._operator.read_only_broadcast_state(descriptor)

    def _require(self, descriptor: MapStateDescriptor) -> None:
        if descriptor.name not in self._declared:
            raise StateError(
                f"found a request for the broadcast state {descriptor.name!r}; expected one of the declared "
                f"{sorted(self._declared)}; declare it where the broadcast stream is created, in broadcast(…)"
            )


class TimerContext:
    """Given to ``on_timer``: everything that ``process_element`` gets, and the timer's time domain."""

    __slots__ = ("_domain", "_element")

    def __init__(self, element: ElementContext, domain: TimeDomain) -> None:
        self._element = element
        self._domain = domain

    def time_domain(self) -> TimeDomain:
        """Return the timer's time domain."""
        return self._domain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._element, name)


class BroadcastElementContext(ElementContext):
    """Given to ``process_broadcast_element``."""

    __slots__ = ("_declared", "_keyed")

    def __init__(
        self, moment: Moment, emitter: Emitter, states: BroadcastStates, backend: KeyedStateBackend | None
    ) -> None:
        super().__init__(moment, emitter, NoTimerService(moment))
        self._declared = states
        self._keyed = backend

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return a broadcast state to read and write."""
        return self._declared.writable(descriptor)

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call ``function(key, state)`` for every key that has that state."""
        backend = self._keyed
        if backend is None:
            raise StateError(
                "found apply_to_keyed_state in a function without keys; expected a KeyedBroadcastProcessFunction; "
                "key the stream"
            )
        state = backend.get_state(descriptor)
        with closing(backend.each_key(descriptor)) as keys:
            for key in keys:
                function(key, state)


def _checked(tag: OutputTag) -> OutputTag:
    if isinstance(tag, OutputTag):
        return tag
    raise StateError(
        f"found {tag!r} as the tag of a side output; expected an OutputTag; give the one that the side output "
        "was declared with, not its name"
    )


def _current_scope(backend: KeyedStateBackend) -> tuple[int, Scope]:
    if backend.scope is None:
        raise _no_key_for_timer()
    return backend.key_group, backend.scope


def _no_key_for_timer() -> StateError:
    return NoCurrentKeyError(
        "found a timer where there is no key; expected it in process_element or on_timer of a keyed function, since "
        "timers are kept per key; key the stream"
    )
