"""Windows: a keyed function that collects records per key and window, and fires when the trigger says so.

The rules are those of Flink's window operator. A window's contents are keyed state in the namespace of the window;
timers fire and clear it. So windows survive savepoints and rescales like all keyed state.

::

    start            end - 1             end - 1 + allowed lateness
      ├── records ──────┤ fires             │
                        ├── late records ───┤ each fires again; then the contents are cleared
                                            ├── later records go to the late output

A window has one timer of its own, for what is due next. When it fires, it registers the one after it. So it need not
move with the end of a session, which nearly every record changes: it fires at an end that the session had, finds it
longer, and registers its new end. Likewise the allowed lateness may change at a restart: existing windows are cleared
no later than the later of the old and the new time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from statecore.errors import ConfigurationError, StateError, shortened
from statecore.functions import KeyedProcessFunction, OnTimerContext, ProcessContext, RuntimeContext, TimeDomain
from statecore.model import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
)
from statecore.model.ttl import MAX_TIMESTAMP_MS
from statecore.state import KeyedStateBackend, Window
from statecore.state.batches import BatchKeys, Mask
from statecore.state.contexts import ElementContext, NoBroadcastState, SubtaskContext, WindowTimers
from statecore.state.keyed_state import HeapAggregatingState, HeapListState, HeapReducingState
from statecore.state.process import CombiningFunction, Record, outputs_of
from statecore.state.session_columns import End, SessionTables
from statecore.state.tables import GLOBAL_WINDOW
from statecore.windows.assigners import GlobalWindows, SessionWindows, WindowAssigner
from statecore.windows.combining import Combiner, SessionPart, part_records
from statecore.windows.evictors import CountEvictor
from statecore.windows.firings import EarlyFirings
from statecore.windows.folded import FoldedSessions
from statecore.windows.sessions import Session, Sessions
from statecore.windows.spans import whole_ms
from statecore.windows.triggers import EventTimeTrigger, Trigger, require_trigger

_AT_END = EventTimeTrigger()
# Without the Python frame of the constructor.
_window = partial(tuple.__new__, Window)
# As in Flink, a window is not cleared at the end of time.
_NEVER = MAX_TIMESTAMP_MS

ContentsDescriptor = ReducingStateDescriptor | AggregatingStateDescriptor | ListStateDescriptor


class WindowContext(NoBroadcastState):
    """Passed to ``ProcessWindowFunction.process``.

    Attributes:
        window: The window that fires.

    """

    __slots__ = ("_element", "window")

    def __init__(self, window: Window, element: ProcessContext) -> None:
        self.window = window
        self._element = element

    def current_watermark(self) -> int:
        """Return the watermark in ms."""
        return self._element.current_watermark()

    def current_processing_time(self) -> int:
        """Return the epoch's batch timestamp in ms."""
        return self._element.current_processing_time()

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit a value to a side output."""
        self._element.output(tag, value)


class ProcessWindowFunction(ABC):
    """Turns the contents of a window into outputs when the window fires."""

    @abstractmethod
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        """Yield outputs: tuples with the columns of the output schema.

        Args:
            key: Values of the key columns.
            context: The window, the watermark and the side outputs.
            elements: All elements of the window; with reducing or aggregating contents, the one result.

        """


class WindowFunction(KeyedProcessFunction, CombiningFunction):
    """Collects the records of each key and window, and fires when the watermark passes the window's end.

    Args:
        windows: Assigns records to windows.
        contents: Descriptor of a window's state: reducing, aggregating, or a list of all elements. When sessions merge,
            so do their contents: by the reducing function, by ``AggregateFunction.merge``, or one list after the other,
            earliest session first.
        process: Produces the outputs of a firing; None yields the reduced or aggregated result, or each element.
        value: The part of a record that goes into the contents: a column's name, or a function that returns it; None
            stores the whole record. With the name of an integer column, and a contents that ``operator.add``, ``min``
            or ``max`` reduces, sessions of a fixed gap take the records of an epoch together, which is much quicker.
        allowed_lateness: Time after its end in which a window still accepts records; each of them fires it again.
        late_output: Side output for later records; None drops them.
        trigger: Decides when a window fires.
        evictor: Removes elements from a list before a firing; None keeps all.

    Attributes:
        windows, contents: As given.

    Raises:
        ConfigurationError: ``windows``, ``contents``, ``value``, ``late_output``, ``trigger`` or ``evictor`` is of the
            wrong type;
            ``allowed_lateness`` is negative or not a whole number of milliseconds; ``trigger`` waits for the end of
            ``GlobalWindows``, which have none; or there is an ``evictor`` and no list to evict from.

    """

    def __init__(
        self,
        windows: WindowAssigner | SessionWindows | GlobalWindows,
        contents: ContentsDescriptor,
        *,
        process: ProcessWindowFunction | None = None,
        value: str | Callable[[Any], Any] | None = None,
        allowed_lateness: timedelta = timedelta(0),
        late_output: OutputTag | None = None,
        trigger: Trigger = _AT_END,
        evictor: CountEvictor | None = None,
    ) -> None:
        # The class of an assigner also passes the Protocol check; passing it without arguments is a common slip.
        if not isinstance(windows, WindowAssigner | SessionWindows | GlobalWindows) or isinstance(windows, type):
            raise ConfigurationError(
                f"found {windows!r} as the windows of a window function; expected a window assigner; pass for example "
                "TumblingEventTimeWindows(timedelta(minutes=1))"
            )
        if late_output is not None and not isinstance(late_output, OutputTag):
            raise ConfigurationError(
                f"found {late_output!r} as the late output of a window function; expected an OutputTag; pass "
                "OutputTag(name, columns)"
            )
        if not isinstance(contents, ContentsDescriptor):
            raise ConfigurationError(
                f"found {contents!r} as the contents of a window; expected a ReducingStateDescriptor, an "
                "AggregatingStateDescriptor or a ListStateDescriptor; pass one of these"
            )
        if value is not None and not isinstance(value, str) and not callable(value):
            raise ConfigurationError(
                f"found value={value!r} for a window function; expected a column's name or a function of a record; "
                "pass one of these, or omit it for the whole record"
            )
        require_trigger(trigger)
        self._lateness_ms = whole_ms("allowed_lateness", allowed_lateness)
        if self._lateness_ms < 0:
            raise ConfigurationError(
                f"found an allowed lateness of {allowed_lateness}; expected zero or more; omit it for none"
            )
        self._ends = not isinstance(windows, GlobalWindows)
        if not self._ends and not trigger.fires_early:
            raise ConfigurationError(
                f"found {trigger!r} for GlobalWindows; expected a trigger that fires before the end, since they have "
                "none; pass for example PurgingTrigger(CountTrigger(100))"
            )
        if evictor is not None and not (
            isinstance(evictor, CountEvictor) and isinstance(contents, ListStateDescriptor)
        ):
            raise ConfigurationError(
                f"found evictor={evictor!r} with {type(contents).__name__} as contents; expected a CountEvictor and a "
                "ListStateDescriptor, since only a list has elements that can be removed; change one of them"
            )
        self.windows = windows
        if isinstance(windows, WindowAssigner):
            self._assign = windows.assign
        self.contents = contents
        self._process = process
        self._value = _column(value) if isinstance(value, str) else value
        self._combiner = Combiner.of(windows, contents, value, trigger)
        self.combines = self._combiner is not None
        self._late_output = late_output
        self._trigger = trigger
        self._evictor = evictor
        # A subclass may look at the outputs that its base class returns.
        own = (type(self).process_element, type(self).on_timer)
        self._is_extended = own != (WindowFunction.process_element, WindowFunction.on_timer)
        self._fires_at_end = self._ends and trigger.fires_at_end
        self._backend: KeyedStateBackend
        self._timers: WindowTimers
        self._contents: Any
        self._early: EarlyFirings | None
        self._sessions: Sessions | None = None
        self._folded: FoldedSessions | None = None

    @property
    def first_timer_after_end_ms(self) -> int:
        """When the first timer of a window with an end fires: its time in ms, from that end on."""
        return -1 if self._fires_at_end else self._lateness_ms - 1

    @property
    def fires_by_time(self) -> bool:
        """Whether a window also fires at intervals of time."""
        return self._trigger.fires_by_time

    def open(self, ctx: RuntimeContext) -> None:
        """Get the state of the windows.

        Raises:
            StateError: The stream has no keys, or ``ctx`` is not the context that the operator passed.

        """
        if not isinstance(ctx, SubtaskContext):
            raise StateError(
                f"found {ctx!r} passed to open() of a window function; expected the operator's own context, because "
                "windows use parts of it that the public interface lacks; pass the ctx that open() received"
            )
        self._backend, self._timers = ctx.windowed()
        self._contents = self._backend.get_state(self.contents)
        self._early = self._trigger.early_firings(self._backend, self._timers)
        if isinstance(self.windows, SessionWindows):
            self._sessions = Sessions(self._backend, self.windows)
        self._folded = self._folded_sessions()

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any]:
        """Add a record to its windows; a late record fires its window again.

        Raises:
            StateError: The record has no event time.

        """
        if not self._ends:
            return self._add(value, GLOBAL_WINDOW, GLOBAL_WINDOW, ctx, watch=False)
        timestamp = ctx.timestamp()
        if timestamp is None:
            raise StateError(
                f"found the record {value!r} without event time; expected one, because windows follow event time; "
                "set event_time=… on the source"
            )
        sessions = self._sessions
        if sessions is not None:
            if self._folded is not None:
                self._folded.release(ctx.get_current_key(), self._backend.key_group)
            end = value.end if type(value) is SessionPart else timestamp + sessions.gap_of(value)
            return self._add_to_session(value, timestamp, end, sessions, ctx)
        watermark = ctx.current_watermark()
        fired: list[Any] = []
        late = True
        for window in self._assign(timestamp):
            if self._is_live(window, watermark):
                late = False
                fired += self._add(value, window, window, ctx, watch=True)
        if late:
            self._leave_out(value, timestamp, ctx)
        return fired

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterable[Any]:
        """Fire the window if it is time; clear it once its allowed lateness has passed.

        Raises:
            StateError: The timer does not belong to a window.

        """
        namespace = self._backend.namespace
        if not isinstance(namespace, Window):
            raise StateError(
                f"found the timer {timestamp_ms} without a window; expected the timer of a window; let the operator "
                "call on_timer() of a window function"
            )
        is_event = ctx.time_domain() is TimeDomain.EVENT_TIME
        session = self._session_in(namespace)
        window = namespace if session is None else session.window
        fires = is_event and self._fires_at_end and timestamp_ms == window.max_timestamp
        if not fires and self._early is not None:
            fires = self._early.on_timer(timestamp_ms, ctx, window)
        fired = self._fire(window, ctx) if fires else []
        if is_event:
            if self._is_live(window, timestamp_ms):
                self._watch(window, timestamp_ms)
            else:
                self._clear(session)
        return fired

    def combine(
        self, rows: pa.RecordBatch, keys: BatchKeys, times: pa.Array | None, watermark: int
    ) -> tuple[Mask, Iterator[Record]]:
        """Return which rows to process one by one, and after them the parts of sessions that the others make."""
        assert self._combiner is not None
        apart, parts = self._combiner.combine(rows, keys, times, watermark)
        if self._folded is not None and len(parts):
            # The key groups are checked once for all.
            self._backend.set_current_batch(keys)
            self._backend.forget_current_batch()
            waits = np.zeros(len(keys.scopes), np.bool_)
            waits[keys.index[apart]] = True
            left = waits[parts.keys]
            left[~left] = self._folded.add(parts[~left], keys)
            parts = parts[left]
        return apart, part_records(parts, keys)

    def ends(self, watermark: int) -> Iterator[End]:
        """Remove and yield the sessions in columns that end."""
        return iter(()) if self._folded is None else self._folded.end(watermark)

    def on_end(self, end: End, ctx: ProcessContext) -> Iterable[Any]:
        """Return the outputs of a session that has ended."""
        return self._processed([end.total], end.window, end.key, ctx)

    def _folded_sessions(self) -> FoldedSessions | None:
        contents, combiner, sessions, timers = self._contents, self._combiner, self._sessions, self._timers.event
        if (
            combiner is None
            or sessions is None
            or self._lateness_ms
            or self._is_extended
            or type(contents) is not HeapReducingState
            or timers.undo_log is not None
        ):
            self._backend.settle()
            return None
        tables = SessionTables(sessions.table, contents.table, timers)
        return FoldedSessions(self._backend, tables, combiner.fold)

    def _content(self, record: Any) -> Any:
        if type(record) is SessionPart:
            return record.value
        return record if self._value is None else self._value(record)

    def _add_to_session(
        self, record: Any, start: int, end: int, sessions: Sessions, ctx: ProcessContext
    ) -> Iterable[Any]:
        watermark = ctx.current_watermark()
        session = sessions.join_newest(start, end, watermark)
        if session is not None:
            return self._add(record, _window(session[:2]), _window(session[2:]), ctx, watch=False)
        session, parts = sessions.merged(start, end)
        # As in Flink the merged window decides: a record joins a session that is still there, however late it is.
        if not self._is_live(session.window, watermark):
            self._leave_out(record, start, ctx)
            return ()
        sessions.replace(parts, session)
        if parts and parts != [session]:
            self._merge_state(session.namespace, [part.namespace for part in parts[1:]])
        # A session that has not ended yet has a timer, for an end that it had at some time.
        watch = not parts or parts[0].window.max_timestamp <= watermark
        return self._add(record, session.window, session.namespace, ctx, watch=watch)

    def _merge_state(self, target: Window, sources: list[Window]) -> None:
        states = [self._contents] if self._early is None else [self._contents, self._early.state]
        backend = self._backend
        try:
            for source in sources:
                backend.set_current_namespace(source)
                taken = [_taken(state) for state in states]
                self._timers.clear()
                backend.set_current_namespace(target)
                for state, stored in zip(states, taken, strict=True):
                    _merge(state, stored)
            if self._early is not None:
                backend.set_current_namespace(target)
                self._early.merged()
        finally:
            backend.set_current_namespace(None)

    def _add(
        self, record: Any, window: Window, namespace: Window, ctx: ProcessContext, *, watch: bool
    ) -> Iterable[Any]:
        """Add a record to a window; return the outputs if that fires it.

        A list and no generator, because the consumer may touch state between two outputs.
        """
        backend, watermark = self._backend, ctx.current_watermark()
        backend.set_current_namespace(namespace)
        try:
            self._contents.add(self._content(record))
            if watch:
                self._watch(window, watermark)
            if self._fires_at_end and window.max_timestamp <= watermark:
                return self._fire(window, ctx)
            if self._early is not None and self._early.on_element(ctx, window):
                return self._fire(window, ctx)
            return ()
        finally:
            backend.set_current_namespace(None)

    def _fire(self, window: Window, ctx: ProcessContext) -> list[Any]:
        contents = self._contents.get()
        elements = list(contents) if isinstance(self._contents, HeapListState) else [contents]
        if not elements or elements[0] is None:
            return []
        if self._evictor is not None:
            elements = self._evictor.left(elements)
            self._contents.update(elements)
        # As in Flink, outputs have the window's time, also those of an early, a late or a processing-time firing.
        has_that_time = not self._ends or ctx.timestamp() == window.max_timestamp
        if not has_that_time:
            cast(ElementContext, ctx).set_timestamp(window.max_timestamp)
        elements = self._processed(elements, window, ctx.get_current_key(), ctx)
        if self._trigger.purges:
            self._contents.clear()
        if has_that_time or self._is_extended:
            return elements
        cast(ElementContext, ctx).emit(elements)
        return []

    def _processed(self, elements: list[Any], window: Window, key: tuple[Any, ...], ctx: ProcessContext) -> list[Any]:
        """Return the outputs for the elements of a window."""
        if self._process is None:
            return elements
        returned = self._process.process(key, WindowContext(window, ctx), elements)
        return list(outputs_of(returned, "process"))

    def _leave_out(self, value: Any, timestamp: int, ctx: ProcessContext) -> None:
        if self._late_output is not None and timestamp + self._lateness_ms <= ctx.current_watermark():
            ctx.output(self._late_output, value)

    def _session_in(self, namespace: Window) -> Session | None:
        if self._sessions is None:
            return None
        self._backend.set_current_namespace(None)
        session = self._sessions.of_namespace(namespace)
        self._backend.set_current_namespace(namespace)
        return session

    def _clear(self, session: Session | None) -> None:
        """Remove all state of the current window."""
        self._contents.clear()
        if self._early is not None:
            self._early.state.clear()
        self._timers.clear()
        if session is not None and self._sessions is not None:
            self._backend.set_current_namespace(None)
            self._sessions.remove(session)
            self._backend.set_current_namespace(session.namespace)

    def _is_live(self, window: Window, watermark: int) -> bool:
        return self._cleared_at(window) > watermark

    def _watch(self, window: Window, after_ms: int) -> None:
        """Register a timer for what is due next in the current window: its end, or its clearing."""
        if self._fires_at_end and window.max_timestamp > after_ms:
            self._timers.register(window.max_timestamp)
        elif self._cleared_at(window) != _NEVER:
            self._timers.register(self._cleared_at(window))

    def _cleared_at(self, window: Window) -> int:
        return min(window.max_timestamp + self._lateness_ms, _NEVER) if self._ends else _NEVER


def _column(name: str) -> Callable[[Any], Any]:
    """Return the function that returns a column of a record."""

    def value(record: Any) -> Any:
        try:
            return getattr(record, name)
        except AttributeError as error:
            raise StateError(
                f"found no column {name!r} in the record {shortened(record)}; expected the column that was given as "
                "value=; pass one of its columns"
            ) from error

    return value


def _taken(state: Any) -> Any:
    """Remove what a window holds in a state, and return it for ``_merge``."""
    if isinstance(state, HeapAggregatingState):
        taken = state.accumulator()
    else:
        taken = list(state.get()) if isinstance(state, HeapListState) else state.get()
    state.clear()
    return taken


def _merge(state: Any, taken: Any) -> None:
    if taken is None:
        return
    if isinstance(state, HeapAggregatingState):
        state.merge(taken)
    elif isinstance(state, HeapListState):
        state.add_all(taken)
    else:
        state.add(taken)
