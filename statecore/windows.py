"""Event-time windows: a keyed function that gathers records per key and window, and fires when the window is over.

Flink's window operator with its event-time trigger. The contents of a window are keyed state in the namespace of the
window; what fires and what clears them are timers. So windows survive savepoints and rescales like any keyed state.

::

    start            end - 1             end - 1 + allowed lateness
      ├── records ──────┤ fires             │
                        ├── late records ───┤ each fires again; then the contents are cleared
                                            ├── records from here on go to the late output

The allowed lateness may change at a restart. A timer of the old one then finds that the window is over, or makes room
for the new one; so what the old one left behind goes at the later of the two at the latest.
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
    """Says which windows a record belongs to."""

    def assign(self, timestamp_ms: int) -> list[Window]:
        """Return the windows of a timestamp."""


@dataclass(frozen=True, slots=True)
class TumblingEventTimeWindows:
    """Windows side by side.

    Attributes:
        size: Length of a window, in whole milliseconds.
        offset: Shift of the windows' start from 1970-01-01 UTC, for days of another time zone for instance.

    Raises:
        ConfigurationError: A span is not positive, or no whole number of milliseconds.

    """

    size: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        _require_span("size", self.size)
        _whole_ms("offset", self.offset)

    def assign(self, timestamp_ms: int) -> list[Window]:
        """Return the one window of a timestamp."""
        size = _ms(self.size)
        start = _start(timestamp_ms, size, _ms(self.offset))
        return [Window(start, start + size)]


@dataclass(frozen=True, slots=True)
class SlidingEventTimeWindows:
    """Windows that overlap: one of length ``size`` begins every ``slide``.

    Attributes:
        size: Length of a window, in whole milliseconds.
        slide: From the start of one window to the next.
        offset: Shift of the windows' start from 1970-01-01 UTC.

    Raises:
        ConfigurationError: A span is not positive, or no whole number of milliseconds.

    """

    size: timedelta
    slide: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        _require_span("size", self.size)
        _require_span("slide", self.slide)
        _whole_ms("offset", self.offset)

    def assign(self, timestamp_ms: int) -> list[Window]:
        """Return the windows of a timestamp, the latest first; none when it falls between two."""
        size, slide = _ms(self.size), _ms(self.slide)
        last = _start(timestamp_ms, slide, _ms(self.offset))
        return [Window(start, start + size) for start in range(last, timestamp_ms - size, -slide)]


class WindowContext(NoBroadcastState):
    """Given to ``ProcessWindowFunction.process``.

    Attributes:
        window: The window that fires.

    """

    __slots__ = ("_element", "window")

    def __init__(self, window: Window, element: ProcessContext) -> None:
        self.window = window
        self._element = element

    def current_watermark(self) -> int:
        """Return the watermark, in ms."""
        return self._element.current_watermark()

    def current_processing_time(self) -> int:
        """Return the epoch's time, in ms."""
        return self._element.current_processing_time()

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""
        self._element.output(tag, value)


class ProcessWindowFunction(ABC):
    """What is yielded when a window fires."""

    @abstractmethod
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        """Yield outputs.

        Args:
            key: Values of the key columns.
            context: The window, and where time stands.
            elements: All elements of the window; the one result, if they are reduced or aggregated.

        """


class WindowFunction(KeyedProcessFunction):
    """Gathers the records of each key and window, and fires when the watermark passes the window's end.

    Args:
        windows: Which windows a record belongs to.
        contents: State of a window, by a descriptor: reducing, aggregating, or a list of all elements.
        process: What a firing yields; without it the reduced or aggregated result, or each element, is yielded.
        value: What of a record goes into the contents; the record itself by default.
        allowed_lateness: How long after its end a window still takes records; each of them fires it again.
        late_output: Takes records that come later than that; without it they are dropped.

    Raises:
        ConfigurationError: The windows, the contents or the late output are of another kind, or a span is negative.

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
        # A class has the methods of its objects.
        if not isinstance(windows, WindowAssigner) or isinstance(windows, type):
            raise ConfigurationError(
                f"found {windows!r} for the windows of a function; expected an object that assigns them; give for "
                "example TumblingEventTimeWindows(timedelta(minutes=1))"
            )
        if late_output is not None and not isinstance(late_output, OutputTag):
            raise ConfigurationError(
                f"found {late_output!r} for the late output of windows; expected an OutputTag; give "
                "OutputTag(name, columns)"
            )
        if not isinstance(contents, ContentsDescriptor):
            raise ConfigurationError(
                f"found {contents!r} for the contents of a window; expected a ReducingStateDescriptor, an "
                "AggregatingStateDescriptor or a ListStateDescriptor; give one of these"
            )
        self._windows = windows
        self._descriptor = contents
        self._process = process
        self._value = value
        self._lateness_ms = _whole_ms("allowed_lateness", allowed_lateness)
        if self._lateness_ms < 0:
            raise ConfigurationError(
                f"found an allowed lateness of {allowed_lateness}; expected none or a positive one; leave it out"
            )
        self._late_output = late_output
        self._backend: KeyedStateBackend
        self._timers: WindowTimers
        self._contents: Any

    def open(self, ctx: RuntimeContext) -> None:
        """Get the contents' state.

        Raises:
            StateError: There are no keys, or the context is not the one that an operator gives.

        """
        if not isinstance(ctx, SubtaskContext):
            raise StateError(
                f"found {ctx!r} given to open() of a window function; expected the context of an operator, since "
                "windows need more than a function of a user is given; hand on what open() was given"
            )
        self._backend, self._timers = ctx.windowed()
        self._contents = self._backend.get_state(self._descriptor)

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[Any]:
        """Add a record to its windows; those that are over fire again."""
        timestamp = ctx.timestamp()
        if timestamp is None:
            raise StateError(
                f"found the record {value!r} without event time; expected one, because windows follow event time; "
                "name the source's event-time column"
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
        """Fire a window at its end, and clear it when its lateness is over."""
        window = self._backend.namespace
        if not isinstance(window, Window):
            raise StateError(
                f"found the timer {timestamp_ms} outside of a window; expected timers of windows; leave it to the "
                "operator to call on_timer() of a window function"
            )
        if timestamp_ms == window.max_timestamp:
            yield from self._fire(window, ctx)
        cleared_at = self._cleared_at(window)
        if timestamp_ms >= cleared_at:
            self._contents.clear()
        else:
            # Registered already, unless the lateness was shorter when the records came.
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
                # Gathered at once: outputs are handed on only when the scope is the key's own again.
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
            f"found {name}={span!r} for a window; expected a timedelta of whole milliseconds; give timedelta(…)"
        )
    return _ms(span)


def _require_span(name: str, span: timedelta) -> None:
    if _whole_ms(name, span) <= 0:
        raise ConfigurationError(f"found {name}={span!r} for a window; expected a positive one; give timedelta(…)")
