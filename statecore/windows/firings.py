"""Firings of a window other than at its end. Their state is in the namespace of the window."""

from __future__ import annotations

import operator
from math import fmod
from typing import Protocol

from statecore.errors import StateError
from statecore.functions import OnTimerContext, ProcessContext, ReducingState, TimeDomain
from statecore.state import KeyedStateBackend, Window
from statecore.state.contexts import WindowTimers
from statecore.windows.library_state import LibraryReducingState


class EarlyFirings(Protocol):
    """Firings of the window that the backend's namespace is set to.

    Attributes:
        state: Their state of the window; it merges when windows merge.

    """

    state: ReducingState

    def on_element(self, ctx: ProcessContext, window: Window) -> bool:
        """Return whether the added record fires the window."""

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext, window: Window) -> bool:
        """Return whether a timer fires the window."""

    def merged(self) -> None:
        """Continue after other windows' state has merged into this one's."""


class EveryCount:
    """Fires for every so many records; the state is their number since the last firing."""

    def __init__(self, max_count: int, backend: KeyedStateBackend) -> None:
        self._max_count = max_count
        self.state = backend.get_reducing_state(LibraryReducingState("__count", "bigint", reduce=operator.add))

    def on_element(self, ctx: ProcessContext, window: Window) -> bool:
        """Count a record; return whether it completes the count."""
        self.state.add(1)
        if self.state.get() < self._max_count:
            return False
        self.state.clear()
        return True

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext, window: Window) -> bool:
        """Return False: the timers of the window are not for counts."""
        return False

    def merged(self) -> None:
        """Wait for the next record: it completes the count at the earliest."""


class EveryEventTime:
    """Fires when the watermark reaches the time that the state holds; the first is a multiple of the interval."""

    def __init__(self, interval_ms: int, backend: KeyedStateBackend, timers: WindowTimers) -> None:
        self._interval_ms, self._timers = interval_ms, timers
        self.state = backend.get_reducing_state(LibraryReducingState("__next_event_time", "bigint", reduce=min))

    def on_element(self, ctx: ProcessContext, window: Window) -> bool:
        """Plan the first firing of a window; return False: a record does not fire it."""
        if self.state.get() is None:
            timestamp = ctx.timestamp()
            if timestamp is None:
                raise StateError(
                    "found a record without event time; expected one, because its window fires by event time; set "
                    "event_time=… on the source"
                )
            # As in Flink, whose remainder has the sign of the timestamp.
            self._plan(timestamp - int(fmod(timestamp, self._interval_ms)), window)
        return False

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext, window: Window) -> bool:
        """Return whether the planned time has come, and plan the next firing."""
        if ctx.time_domain() is not TimeDomain.EVENT_TIME or self.state.get() != timestamp_ms:
            return False
        self.state.clear()
        self._plan(timestamp_ms, window)
        return True

    def merged(self) -> None:
        """Keep the earliest plan."""
        planned = self.state.get()
        if planned is not None:
            self._timers.register(planned)

    def _plan(self, after_ms: int, window: Window) -> None:
        planned = min(after_ms + self._interval_ms, window.max_timestamp)
        self.state.add(planned)
        self._timers.register(planned)


class EveryProcessingTime:
    """Fires in the first epoch that reaches the time that the state holds, a multiple of the interval."""

    def __init__(self, interval_ms: int, backend: KeyedStateBackend, timers: WindowTimers) -> None:
        self._interval_ms, self._timers = interval_ms, timers
        timers.follow_processing_time()
        self.state = backend.get_reducing_state(LibraryReducingState("__next_processing_time", "bigint", reduce=min))

    def on_element(self, ctx: ProcessContext, window: Window) -> bool:
        """Plan the first firing of a window; return False: a record does not fire it."""
        if self.state.get() is None:
            self._plan(ctx.current_processing_time())
        return False

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext, window: Window) -> bool:
        """Return whether the planned time has come, and plan the next firing: one for all multiples that passed."""
        if ctx.time_domain() is not TimeDomain.PROCESSING_TIME or self.state.get() != timestamp_ms:
            return False
        self.state.clear()
        self._plan(ctx.current_processing_time())
        return True

    def merged(self) -> None:
        """Keep the earliest plan."""
        planned = self.state.get()
        if planned is not None:
            self._timers.register_processing(planned)

    def _plan(self, now_ms: int) -> None:
        planned = now_ms - now_ms % self._interval_ms + self._interval_ms
        self.state.add(planned)
        self._timers.register_processing(planned)
