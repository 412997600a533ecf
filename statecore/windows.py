"""Event-time windows: a keyed function that collects records per key and window, and fires at the window's end.

The rules are those of Flink's window operator with its default event-time trigger. A window's contents are keyed
state in the namespace of the window; timers fire and clear it. So windows survive savepoints and rescales like all
keyed state.

::

    start            end - 1             end - 1 + allowed lateness
      ├── records ──────┤ fires             │
                        ├── late records ───┤ each fires again; then the contents are cleared
                                            ├── later records go to the late output

The allowed lateness may change at a restart. Existing windows are then cleared no later than the later of the old and
the new time: an old timer clears the window if it is over, else registers the new time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from statecore.errors import ConfigurationError, StateError
from statecore.functions import KeyedProcessFunction, OnTimerContext, ProcessContext, RuntimeContext
from statecore.model import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
)
from statecore.model.ttl import MAX_TIMESTAMP_MS
from statecore.state import KeyedStateBackend, Window
from statecore.state.contexts import NoBroadcastState, SubtaskContext, WindowTimers
from statecore.state.keyed_state import HeapListState
from statecore.state.process import outputs_of

ContentsDescriptor = ReducingStateDescriptor | AggregatingStateDescriptor | ListStateDescriptor


@runtime_checkable
class WindowAssigner(Protocol):
    """Assigns records to windows by their event time."""

    def assign(self, timestamp_ms: int) -> list[Window]:
        """Return the windows that contain a timestamp."""


@dataclass(frozen=True, slots=True)
class TumblingEventTimeWindows:
    """Adjacent windows of one size.

    Attributes:
        size: Length of a window; whole milliseconds.
        offset: Shift of the window starts from 1970-01-01 UTC; whole milliseconds. For example, minus the UTC offset
            gives days of another time zone.

    Raises:
        ConfigurationError: ``size`` is not positive, or one of the two is not a whole number of milliseconds.

    """

    size: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        _require_span("size", self.size)
        _whole_ms("offset", self.offset)

    def assign(self, timestamp_ms: int) -> list[Window]:
        """Return the one window that contains a timestamp."""
        size = _ms(self.size)
        start = _start(timestamp_ms, size, _ms(self.offset))
        return [Window(start, start + size)]


@dataclass(frozen=True, slots=True)
class SlidingEventTimeWindows:
    """Overlapping windows: one of length ``size`` starts every ``slide``.

    Attributes:
        size: Length of a window; whole milliseconds.
        slide: Time from the start of one window to the start of the next; whole milliseconds.
        offset: Shift of the window starts from 1970-01-01 UTC; whole milliseconds.

    Raises:
        ConfigurationError: ``size`` or ``slide`` is not positive, or one of the three is not a whole number of
            milliseconds.

    """

    size: timedelta
    slide: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        _require_span("size", self.size)
        _require_span("slide", self.slide)
        _whole_ms("offset", self.offset)

    def assign(self, timestamp_ms: int) -> list[Window]:
        """Return the windows that contain a timestamp, latest first; none when it falls between two."""
        size, slide = _ms(self.size), _ms(self.slide)
        last = _start(timestamp_ms, slide, _ms(self.offset))
        return [Window(start, start + size) for start in range(last, timestamp_ms - size, -slide)]


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


class WindowFunction(KeyedProcessFunction):
    """Collects the records of each key and window, and fires when the watermark passes the window's end.

    Args:
        windows: Assigns records to windows.
        contents: Descriptor of a window's state: reducing, aggregating, or a list of all elements.
        process: Produces the outputs of a firing; None yields the reduced or aggregated result, or each element.
        value: Returns the part of a record that goes into the contents; None stores the whole record.
        allowed_lateness: Time after its end in which a window still accepts records; each of them fires it again.
        late_output: Side output for later records; None drops them.

    Raises:
        ConfigurationError: ``windows``, ``contents`` or ``late_output`` is of the wrong type, or ``allowed_lateness``
            is negative or not a whole number of milliseconds.

    """

    def __init__(
        self,
        windows: WindowAssigner,
        contents: ContentsDescriptor,
        *,
        process: ProcessWindowFunction | None = None,
        value: Callable[[Any], Any] | None = None,
        allowed_lateness: timedelta = timedelta(0),
        late_output: OutputTag | None = None,
    ) -> None:
        # The class of an assigner also passes the Protocol check; passing it without arguments is a common slip.
        if not isinstance(windows, WindowAssigner) or isinstance(windows, type):
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
        self._windows = windows
        self._descriptor = contents
        self._process = process
        self._value = value
        self._lateness_ms = _whole_ms("allowed_lateness", allowed_lateness)
        if self._lateness_ms < 0:
            raise ConfigurationError(
                f"found an allowed lateness of {allowed_lateness}; expected zero or more; omit it for none"
            )
        self._late_output = late_output
        self._backend: KeyedStateBackend
        self._timers: WindowTimers
        self._contents: Any

    def open(self, ctx: RuntimeContext) -> None:
        """Get the state of the contents.

        Raises:
            StateError: The stream has no keys, or ``ctx`` is not the context that the operator passed.

        """
        if not isinstance(ctx, SubtaskContext):
            raise StateError(
                f"found {ctx!r} passed to open() of a window function; expected the operator's own context, because "
                "windows use parts of it that the public interface lacks; pass the ctx that open() received"
            )
        self._backend, self._timers = ctx.windowed()
        self._contents = self._backend.get_state(self._descriptor)

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[Any]:
        """Add a record to its windows; a late record fires its window again.

        Raises:
            StateError: The record has no event time.

        """
        timestamp = ctx.timestamp()
        if timestamp is None:
            raise StateError(
                f"found the record {value!r} without event time; expected one, because windows follow event time; "
                "set event_time=… on the source"
            )
        watermark = ctx.current_watermark()
        late = True
        for window in self._windows.assign(timestamp):
            if self._cleared_at(window) > watermark:
                late = False
                yield from self._add(value, window, watermark, ctx)
        if late and self._late_output is not None and timestamp + self._lateness_ms <= watermark:
            ctx.output(self._late_output, value)

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterator[Any]:
        """Fire the window at its end; clear it once its allowed lateness has passed.

        Raises:
            StateError: The timer does not belong to a window.

        """
        window = self._backend.namespace
        if not isinstance(window, Window):
            raise StateError(
                f"found the timer {timestamp_ms} without a window; expected the timer of a window; let the operator "
                "call on_timer() of a window function"
            )
        if timestamp_ms == window.max_timestamp:
            yield from self._fire(window, ctx)
        cleared_at = self._cleared_at(window)
        if timestamp_ms >= cleared_at:
            self._contents.clear()
        else:
            # Needed only if the lateness was shorter when the records arrived; otherwise this timer already exists.
            self._timers.register(cleared_at)

    def _add(self, value: Any, window: Window, watermark: int, ctx: ProcessContext) -> Iterator[Any]:
        backend = self._backend
        fired: list[Any] = []
        backend.set_current_namespace(window)
        try:
            self._contents.add(value if self._value is None else self._value(value))
            self._timers.register(self._cleared_at(window))
            if window.max_timestamp > watermark:
                self._timers.register(window.max_timestamp)
            else:
                # Yield only after the namespace is reset: the consumer may touch state between two outputs.
                fired = list(self._fire(window, ctx))
        finally:
            backend.set_current_namespace(None)
        yield from fired

    def _fire(self, window: Window, ctx: ProcessContext) -> Iterator[Any]:
        found = self._contents.get()
        elements = list(found) if isinstance(self._contents, HeapListState) else [found]
        if not elements or elements[0] is None:
            return
        if self._process is None:
            yield from elements
        else:
            returned = self._process.process(ctx.get_current_key(), WindowContext(window, ctx), elements)
            yield from outputs_of(returned, "process")

    def _cleared_at(self, window: Window) -> int:
        return min(window.max_timestamp + self._lateness_ms, MAX_TIMESTAMP_MS)


def _start(timestamp_ms: int, size_ms: int, offset_ms: int) -> int:
    return timestamp_ms - (timestamp_ms - offset_ms) % size_ms


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def _whole_ms(name: str, span: timedelta) -> int:
    if not isinstance(span, timedelta) or span % timedelta(milliseconds=1):
        raise ConfigurationError(
            f"found {name}={span!r} for a window; expected a timedelta of whole milliseconds; pass timedelta(…)"
        )
    return _ms(span)


def _require_span(name: str, span: timedelta) -> None:
    if _whole_ms(name, span) <= 0:
        raise ConfigurationError(f"found {name}={span!r} for a window; expected a positive span; pass timedelta(…)")
