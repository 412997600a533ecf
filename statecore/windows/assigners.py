"""Window assigners: which windows a record belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from statecore.errors import ConfigurationError, StateError, shortened
from statecore.state import Window
from statecore.windows.spans import check_offset, positive_ms


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
        ConfigurationError: ``size`` is not positive, ``offset`` is not shorter than it, or one of the two is not a
            whole number of milliseconds.

    """

    size: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        positive_ms("size", self.size)
        check_offset(self.offset, self.size)

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
        ConfigurationError: ``size`` or ``slide`` is not positive, ``offset`` is not shorter than ``slide``, or one of
            the three is not a whole number of milliseconds.

    """

    size: timedelta
    slide: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        positive_ms("size", self.size)
        positive_ms("slide", self.slide)
        check_offset(self.offset, self.slide)

    def assign(self, timestamp_ms: int) -> list[Window]:
        """Return the windows that contain a timestamp, latest first; none when it falls between two."""
        size, slide = _ms(self.size), _ms(self.slide)
        last = _start(timestamp_ms, slide, _ms(self.offset))
        return [Window(start, start + size) for start in range(last, timestamp_ms - size, -slide)]


@dataclass(frozen=True, slots=True)
class EventTimeSessionWindows:
    """Sessions: windows of activity per key, which end once no record has come for the length of a gap.

    A record opens the window from its event time to a gap later. Windows of a key that overlap or touch become one.

    Attributes:
        gap: Length of the gap; whole milliseconds.

    Raises:
        ConfigurationError: ``gap`` is not a positive number of whole milliseconds.

    """

    gap: timedelta

    def __post_init__(self) -> None:
        positive_ms("gap", self.gap)

    def gaps(self) -> Callable[[Any], int]:
        """Return the function that returns the gap after a record, in ms."""
        gap_ms = _ms(self.gap)
        return lambda record: gap_ms


@dataclass(frozen=True, slots=True)
class DynamicEventTimeSessionWindows:
    """Sessions with a gap that depends on the record.

    Attributes:
        gap_ms: Returns the gap after a record, a positive number of milliseconds.

    Raises:
        ConfigurationError: ``gap_ms`` is not a function.

    """

    gap_ms: Callable[[Any], int]

    def __post_init__(self) -> None:
        if not callable(self.gap_ms):
            raise ConfigurationError(
                f"found gap_ms={self.gap_ms!r} for session windows; expected a function that returns the gap after a "
                "record; pass one, or EventTimeSessionWindows(gap) for a gap that is always the same"
            )

    def gaps(self) -> Callable[[Any], int]:
        """Return the function that returns the gap after a record, in ms.

        It raises StateError unless the user's function returns a positive integer.
        """
        gap_of = self.gap_ms

        def gap(record: Any) -> int:
            gap_ms = gap_of(record)
            if type(gap_ms) is not int or gap_ms < 1:
                raise StateError(
                    f"found the gap {gap_ms!r} for the record {shortened(record)}; expected a positive integer, in "
                    "milliseconds; correct the function that was given as gap_ms="
                )
            return gap_ms

        return gap


SessionWindows = EventTimeSessionWindows | DynamicEventTimeSessionWindows
"""Assigners whose windows merge."""


@dataclass(frozen=True, slots=True)
class GlobalWindows:
    """One window for all records of a key, which has no end: a trigger decides when it fires.

    ``WindowFunction(GlobalWindows(), …, trigger=PurgingTrigger(CountTrigger(100)))`` are tumbling windows of a hundred
    records per key.
    """


def _start(timestamp_ms: int, size_ms: int, offset_ms: int) -> int:
    return timestamp_ms - (timestamp_ms - offset_ms) % size_ms


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
