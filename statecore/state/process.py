"""Runs one function over the input of one subtask: records, broadcast records, time; independent of Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statecore.errors import ConfigurationError, StatecoreError, StateError, StateMigrationError, shortened
from statecore.functions import (
    BatchProcessFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
    TimerService,
    UserFunction,
)
from statecore.model import MapStateDescriptor, OutputTag
from statecore.state.batches import BatchKeys, Mask, records_by_key
from statecore.state.contexts import (
    NO_WATERMARK,
    WINDOW_PROCESSING_TIMERS,
    BatchElementContext,
    BroadcastElementContext,
    BroadcastStates,
    ElementContext,
    Emitter,
    InitializationContext,
    KeyedTimers,
    Moment,
    NoTimerService,
    SnapshotContext,
    SubtaskContext,
    TimerContext,
    WindowTimerService,
)
from statecore.state.dead_letters import DeadLetters, HeldBack
from statecore.state.keyed_backend import Clock, KeyedStateBackend
from statecore.state.metrics import Metrics
from statecore.state.operator_state import OperatorStateBackend
from statecore.state.session_columns import End
from statecore.state.tables import Key, split_scope
from statecore.state.timers import PROCESSING_TIMERS, TimerTable
from statecore.state.undo import UndoLog

MAIN_OUTPUT = ""
ONE_INPUT = "process_element"
TWO_INPUTS = ("process_element1", "process_element2")
"""The methods that take the records of one input, or of the first and the second."""

# Methods nearly always return these; checking for them first is quicker than for the refused types.
_USUAL = frozenset({GeneratorType, list})
# The result of a window function for nearly every record.
_NOTHING: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class _Guard:
    """Undoes the effects of a record that the function fails on."""

    letters: DeadLetters
    emitter: HeldBack
    log: UndoLog


Record = tuple[Key, int, Any, int | None]
"""Key, key group, value and event time in ms; the key is empty for a function without keys."""


class CombiningFunction(ABC):
    """A function over records that can take many at once, if no order was asked for.

    Attributes:
        combines: Whether this one can.

    """

    combines: bool

    @abstractmethod
    def combine(
        self, rows: pa.RecordBatch, keys: BatchKeys, times: pa.Array | None, watermark: int
    ) -> tuple[Mask, Iterator[Record]]:
        """Return the rows to process one by one, and the records that replace the others, to process after them."""

    @abstractmethod
    def ends(self, watermark: int) -> Iterator[End]:
        """Remove and yield what the watermark ends without a timer, in the order of timers, for ``on_end``."""

    @abstractmethod
    def on_end(self, end: End, ctx: Any) -> Iterable[Any]:
        """Return the outputs of an end."""


class ProcessOperator:
    """One function with its state.

    Args:
        function: A fresh instance of the user's function.
        keyed: Keyed state of the subtask; None for a function without keys.
        operator: Operator state of the subtask.
        emitter: Receives the outputs.
        clock: The epoch's time.
        broadcast: The broadcast states that were declared.
        watermark: The current watermark, in ms.
        late: The tag that unprocessed late records go to; with None, the function processes them.
        dead_letters: Takes the records that the function fails on; with None, a failure ends the epoch.
        two_inputs: Whether two streams are connected.

    Attributes:
        failed_on: What the function failed on, for a message: key and record, timer, batch or method; else empty.

    Raises:
        ConfigurationError: The function is of an unknown kind, or keyed on a stream without keys, or vice versa.

    """

    def __init__(
        self,
        function: UserFunction,
        keyed: KeyedStateBackend | None,
        operator: OperatorStateBackend,
        emitter: Emitter,
        *,
        clock: Clock,
        subtask: int,
        parallelism: int,
        broadcast: tuple[MapStateDescriptor, ...] = (),
        watermark: int = NO_WATERMARK,
        late: OutputTag | None = None,
        dead_letters: DeadLetters | None = None,
        two_inputs: bool = False,
    ) -> None:
        require_fit(function, keyed=keyed is not None, broadcast=bool(broadcast), two_inputs=two_inputs)
        self._function = function
        self._keyed = keyed
        self._operator = operator
        self._emitter: Emitter = emitter
        self._declared = broadcast
        self._late = late
        self._guard: _Guard | None = None
        if dead_letters is not None:
            self._guard = _Guard(dead_letters, HeldBack(emitter), UndoLog())
            self._emitter = self._guard.emitter
            if keyed is not None:
                keyed.note_changes(self._guard.log)
        self.failed_on = ""
        self._moment = Moment(clock.now_ms, watermark)
        self._runtime = SubtaskContext(keyed, subtask, parallelism)
        self._event_timers: TimerTable | None = None
        self._processing_timers: TimerTable | None = None
        self._foreign_timers: list[TimerTable] = []
        self._element: ElementContext
        self._batch: BatchElementContext
        self._broadcast: BroadcastElementContext

    @property
    def watermark(self) -> int:
        """The watermark in ms; -2^63 before the first one."""
        return self._moment.watermark

    @property
    def next_event_timer_ms(self) -> int | None:
        """The earliest event-time timer, in ms."""
        columns = () if self._keyed is None else self._keyed.columns.values()
        timers = [group.earliest_timer for group in columns]
        timers.append(None if self._event_timers is None else self._event_timers.earliest())
        return min((timer for timer in timers if timer is not None), default=None)

    @property
    def next_processing_timer_ms(self) -> int | None:
        """The earliest processing-time timer, in ms."""
        return None if self._processing_timers is None else self._processing_timers.earliest()

    @property
    def metrics(self) -> Metrics:
        """The metrics of the function."""
        return self._runtime.metrics

    def open(self, *, restored: bool, allow_non_restored_state: bool = False) -> None:
        """Open the function, which registers its states.

        Raises:
            StateMigrationError: The function did not register a restored state, or declares it differently.

        """
        states = BroadcastStates(self._operator, self._declared)
        if isinstance(self._function, CheckpointedFunction):
            with self._naming("in initialize_state"):
                self._function.initialize_state(InitializationContext(self._operator, self._keyed, restored=restored))
        with self._naming("in open"):
            self._function.open(self._runtime)
            self._make_contexts(states, self._find_timers())
            if not allow_non_restored_state:
                self._require_all_registered()
        self.metrics.seal()
        if self._keyed is not None:
            self._keyed.seal()

    def process(self, records: Iterable[Record], method: str = ONE_INPUT) -> None:
        """Process records, in order.

        Args:
            records: Records of one input.
            method: The method of the function that takes them.

        """
        if self._guard is not None:
            self._process_guarded(records, self._guard, method)
            return
        keyed, moment, context = self._keyed, self._moment, self._element
        process_element, emit_all = getattr(self._function, method), self._emitter.emit_all
        try:
            for key, key_group, value, timestamp in records if self._late is None else self._in_time(records):
                if keyed is not None:
                    keyed.set_current_key(key, key_group)
                moment.timestamp = timestamp
                try:
                    returned = process_element(value, context)
                    if returned is not None and returned is not _NOTHING:
                        if type(returned) is not GeneratorType:
                            returned = outputs_of(returned, method)
                        emit_all(returned, timestamp)
                except Exception as error:
                    self._fail(None if keyed is None else key, f"record {shortened(value)}{_nulls(value, error)}")
                    raise
        finally:
            if keyed is not None:
                keyed.forget_current_key()

    def _process_guarded(self, records: Iterable[Record], guard: _Guard, method: str) -> None:
        """Process records, and make a dead letter of each that the function fails on, as if it had not been there."""
        keyed, moment, context = self._keyed, self._moment, self._element
        process_element, emitter, log = getattr(self._function, method), guard.emitter, guard.log
        metrics, letters = self.metrics, guard.letters
        try:
            for key, key_group, value, timestamp in records if self._late is None else self._in_time(records):
                if keyed is not None:
                    keyed.set_current_key(key, key_group)
                moment.timestamp = timestamp
                log.begin()
                metrics.begin()
                emitter.hold()
                try:
                    returned = process_element(value, context)
                    if returned is not None:
                        emitter.emit_all(outputs_of(returned, method), timestamp)
                except MemoryError:
                    # Not the record's fault: the following ones would fail as well.
                    self._fail(None if keyed is None else key, f"record {shortened(value)}")
                    raise
                except Exception as error:
                    metrics.undo()
                    emitter.drop()
                    log.undo()
                    row = letters.row(error, None if keyed is None else key, value, timestamp)
                    emitter.emit(letters.tag, row, timestamp)
                else:
                    log.end()
                    emitter.release()
        finally:
            emitter.drop()
            log.end()
            if keyed is not None:
                keyed.forget_current_key()

    def process_combined(self, rows: pa.RecordBatch, keys: BatchKeys, times: pa.Array | None) -> None:
        """Process records of a function that combines them."""
        assert isinstance(self._function, CombiningFunction)
        apart, combined = self._function.combine(rows, keys, times, self._moment.watermark)
        if apart.any():
            chosen = pa.array(apart)
            own_times = None if times is None else times.filter(chosen)
            self.process(records_by_key(rows.filter(chosen), keys.of_rows(apart), own_times))
        self.process(combined)

    def process_batch(self, rows: pa.RecordBatch, keys: BatchKeys | None, times: pa.Array | None) -> None:
        """Process at least one record as columns, with keys and event times in ms where there are any."""
        keyed, context, function = self._keyed, self._batch, self._function
        assert isinstance(function, BatchProcessFunction)
        if self._late is not None and times is not None:
            rows, keys, times = self._rows_in_time(self._late, rows, keys, times)
            if not rows.num_rows:
                return
        context.begin(times)
        try:
            if keyed is not None and keys is not None:
                keyed.set_current_batch(keys)
            for output in outputs_of(function.process_batch(rows, context), "process_batch"):
                put_out, own_times = output if isinstance(output, tuple) and len(output) == 2 else (output, None)
                context.emit_rows(None, put_out, own_times)
        except Exception:
            self._fail(context.last_key, f"batch of {rows.num_rows:,} rows", "last key")
            raise
        finally:
            if keyed is not None:
                keyed.forget_current_batch()

    def process_broadcast(self, value: Any, timestamp: int | None) -> None:
        """Process one record of the broadcast stream."""
        function = self._function
        if not isinstance(function, BroadcastProcessFunction | KeyedBroadcastProcessFunction):
            raise ConfigurationError(
                f"found a broadcast record for a {type(function).__name__}; expected a BroadcastProcessFunction or "
                "KeyedBroadcastProcessFunction; connect the stream to a broadcast one"
            )
        self._moment.timestamp = timestamp
        try:
            returned = function.process_broadcast_element(value, self._broadcast)
            self._emit_all(returned, "process_broadcast_element", timestamp)
        except Exception as error:
            self._fail(None, f"broadcast record {shortened(value)}{_nulls(value, error)}")
            raise

    def advance_watermark(self, watermark: int) -> None:
        """Advance the watermark and fire the timers that it reaches; it never moves back."""
        if watermark >= self._moment.watermark:
            self._moment.watermark = watermark
            self._drop_foreign_timers(watermark, TimeDomain.EVENT_TIME)
            if self._event_timers is not None:
                self._fire(self._event_timers, watermark, TimeDomain.EVENT_TIME)

    def fire_processing_time(self) -> None:
        """Fire the timers that the epoch's time has reached."""
        now_ms = self._moment.now_ms()
        self._drop_foreign_timers(now_ms, TimeDomain.PROCESSING_TIME)
        if self._processing_timers is not None:
            self._fire(self._processing_timers, now_ms, TimeDomain.PROCESSING_TIME)

    def snapshot(self, epoch: int) -> None:
        """Let a checkpointed function write its buffers to operator state."""
        if isinstance(self._function, CheckpointedFunction):
            with self._naming("in snapshot_state"):
                self._function.snapshot_state(SnapshotContext(epoch))

    def close(self) -> None:
        """Close the function; after a failure, an error in ``close`` must not hide the failure."""
        if self.failed_on:
            with suppress(Exception):
                self._function.close()
            return
        with self._naming("in close"):
            self._function.close()

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._fail(None, what)
            raise

    def _fail(self, key: Key | None, what: str, which: str = "key") -> None:
        self.failed_on = what if key is None else f"{which} {shortened(key)}, {what}"

    def _in_time(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records after the watermark; late ones go to the side output."""
        assert self._late is not None
        moment = self._moment
        for record in records:
            _, _, value, timestamp = record
            if timestamp is not None and timestamp <= moment.watermark:
                moment.timestamp = timestamp
                self._emitter.emit(self._late, value, timestamp)
            else:
                yield record

    def _rows_in_time(
        self, tag: OutputTag, rows: pa.RecordBatch, keys: BatchKeys | None, times: pa.Array
    ) -> tuple[pa.RecordBatch, BatchKeys | None, pa.Array]:
        """Return the rows after the watermark; late ones go to the side output."""
        late = pc.fill_null(pc.less_equal(times, self._moment.watermark), False)
        if not pc.any(late).as_py():
            return rows, keys, times
        self._emitter.emit_batch(tag, rows.filter(late), times.filter(late))
        in_time = pc.invert(late)
        kept = None if keys is None else keys.of_rows(in_time.to_numpy(zero_copy_only=False))
        return rows.filter(in_time), kept, times.filter(in_time)

    def _find_timers(self) -> TimerService:
        """Find the timers that the function fires, and the restored timers that it cannot fire."""
        keyed, moment, windows = self._keyed, self._moment, self._runtime.windows
        if keyed is None:
            return NoTimerService(moment)
        service: TimerService
        if windows is None:
            service = timers = KeyedTimers(moment, keyed)
            self._event_timers, self._processing_timers = timers.event, timers.processing
        else:
            service = WindowTimerService(moment)
            self._event_timers, self._processing_timers = windows.event, windows.processing
        self._foreign_timers = [
            table
            for table in keyed.timer_tables()
            if table is not self._event_timers and table is not self._processing_timers and any(table.groups.values())
        ]
        return service

    def _make_contexts(self, states: BroadcastStates, timers: TimerService) -> None:
        moment, emitter, keyed = self._moment, self._emitter, self._keyed
        connected = isinstance(self._function, BroadcastProcessFunction | KeyedBroadcastProcessFunction)
        self._element = ElementContext(moment, emitter, timers, keyed, states if connected else None)
        self._batch = BatchElementContext(moment, emitter, timers, keyed)
        self._broadcast = BroadcastElementContext(moment, emitter, states, keyed)

    def _require_all_registered(self) -> None:
        names = [] if self._keyed is None else self._keyed.unregistered()
        names += self._operator.unregistered()
        function = type(self._function).__name__
        if names:
            raise StateMigrationError(
                f"found restored state {', '.join(map(repr, names))} that {function} did not "
                "register; expected every restored state to be registered in open() or initialize_state(), since it "
                "would be lost silently; register it, or allow non-restored state"
            )
        if self._foreign_timers:
            raise StateMigrationError(
                f"found restored timers {', '.join(repr(table.name) for table in self._foreign_timers)} that "
                f"{function} cannot fire; expected window timers in a function with windows and other timers in one "
                "without; use the function that registered them, or allow non-restored state"
            )

    def _drop_foreign_timers(self, now_ms: int, domain: TimeDomain) -> None:
        for timers in self._foreign_timers:
            if (timers.name in (PROCESSING_TIMERS, WINDOW_PROCESSING_TIMERS)) == (domain is TimeDomain.PROCESSING_TIME):
                for _ in timers.due(now_ms):
                    continue

    def _emit_all(self, returned: Iterable[Any] | None, method: str, timestamp: int | None) -> None:
        if returned is not None:
            outputs = returned if type(returned) is GeneratorType else outputs_of(returned, method)
            self._emitter.emit_all(outputs, timestamp)

    def _fire(self, timers: TimerTable, now_ms: int, domain: TimeDomain) -> None:
        keyed, function = self._keyed, self._function
        assert keyed is not None
        assert isinstance(function, _WITH_TIMERS)
        context: Any = TimerContext(self._element, domain)
        is_event = domain is TimeDomain.EVENT_TIME
        ends = function.ends(now_ms) if is_event and isinstance(function, CombiningFunction) else iter(())
        try:
            end = next(ends, None)
            for timestamp, key_group, scope in timers.due(now_ms):
                while end is not None and end.precedes(timestamp, key_group, scope):
                    self._end(end, context)
                    end = next(ends, None)
                keyed.set_current_scope(scope, key_group)
                self._moment.timestamp = timestamp
                try:
                    # The clock's time is not event time: as in Flink, these outputs have none.
                    event_time = timestamp if is_event else None
                    self._emit_all(function.on_timer(timestamp, context), "on_timer", event_time)
                except Exception:
                    self._fail(split_scope(scope)[0], f"{domain} timer {timestamp}")
                    raise
            while end is not None:
                self._end(end, context)
                end = next(ends, None)
        finally:
            keyed.set_current_namespace(None)
            keyed.forget_current_key()

    def _end(self, end: End, context: Any) -> None:
        assert isinstance(self._function, CombiningFunction)
        timestamp = end.order[0]
        self._moment.timestamp = timestamp
        try:
            self._emitter.emit_all(self._function.on_end(end, context), timestamp)
        except Exception:
            self._fail(end.key, f"{TimeDomain.EVENT_TIME} timer {timestamp}")
            raise


def outputs_of(returned: object, method: str) -> Iterable[Any]:
    """Return the outputs that a function's method returned; none for None and for an empty tuple.

    Raises:
        StateError: The value is not iterable, or is itself an output: a tuple, a mapping or text.

    """
    if type(returned) in _USUAL:
        return returned  # type: ignore[return-value]
    if returned is None or (isinstance(returned, tuple) and not returned):
        return ()
    if isinstance(returned, tuple | Mapping | str | bytes) or not isinstance(returned, Iterable):
        raise StateError(
            f"found {returned!r} returned by {method}; expected an iterable of outputs; yield it, or return a list"
        )
    return returned


def can_combine(function: UserFunction) -> bool:
    """Return whether a function combines records."""
    return isinstance(function, CombiningFunction) and function.combines


def fires_timers(function: UserFunction) -> bool:
    """Return whether a function overrides ``on_timer``."""
    inherited = [base.on_timer for base in _WITH_TIMERS]
    return getattr(type(function), "on_timer", inherited[0]) not in inherited


_WITH_TIMERS = (KeyedProcessFunction, KeyedBroadcastProcessFunction, KeyedCoProcessFunction, BatchProcessFunction)
# By the kind of the connected stream: the class without keys, and the keyed one.
_KINDS: Mapping[str, tuple[type, type]] = {
    "without broadcast state": (ProcessFunction, KeyedProcessFunction),
    "with broadcast state": (BroadcastProcessFunction, KeyedBroadcastProcessFunction),
    "connected to another": (CoProcessFunction, KeyedCoProcessFunction),
}


def require_fit(function: object, *, keyed: bool, broadcast: bool, two_inputs: bool = False) -> None:
    """Raise ConfigurationError unless this is a function for that kind of stream."""
    alone, with_broadcast, connected = _KINDS
    kind = connected if two_inputs else with_broadcast if broadcast else alone
    expected = _KINDS[kind][keyed]
    takes_batches = kind == alone
    if not isinstance(function, expected) and not (takes_batches and isinstance(function, BatchProcessFunction)):
        batches = ", or BatchProcessFunction," if takes_batches else ""
        raise ConfigurationError(
            f"found {function!r} for a {'keyed ' if keyed else ''}stream {kind}; expected a {expected.__name__}; "
            f"subclass it{batches} and give an object of it"
        )


def _nulls(value: Any, error: Exception) -> str:
    """Name the columns of a record that are null, which explains most errors of these kinds; else empty."""
    fits = isinstance(error, TypeError | AttributeError) and not isinstance(error, StatecoreError)
    if not fits or not hasattr(value, "_fields") or None not in value:
        return ""
    nulls = [name for name, item in zip(value._fields, value, strict=True) if item is None]
    return (
        f" (null in {', '.join(map(repr, nulls))}; a source gives null where a file lacks the column, or has another "
        "type there)"
    )
