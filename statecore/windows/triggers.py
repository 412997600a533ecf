"""Triggers: when a window fires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from statecore.errors import ConfigurationError
from statecore.state import KeyedStateBackend
from statecore.state.contexts import WindowTimers
from statecore.windows.firings import EarlyFirings, EveryCount, EveryEventTime, EveryProcessingTime
from statecore.windows.spans import positive_ms


@dataclass(frozen=True, slots=True)
class EventTimeTrigger:
    """Fires when the watermark reaches the end of a window, and again for each record within the allowed lateness."""

    fires_at_end: ClassVar[bool] = True
    fires_early: ClassVar[bool] = False
    fires_by_time: ClassVar[bool] = False
    purges: ClassVar[bool] = False

    def early_firings(self, backend: KeyedStateBackend, timers: WindowTimers) -> None:
        """Return nothing: there are no other firings."""


@dataclass(frozen=True, slots=True)
class _Continuous:
    """Fires at multiples of an interval, and at the end of a window."""

    interval: timedelta

    fires_at_end: ClassVar[bool] = True
    fires_early: ClassVar[bool] = True
    fires_by_time: ClassVar[bool] = True
    purges: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive_ms("interval", self.interval)


@dataclass(frozen=True, slots=True)
class ContinuousEventTimeTrigger(_Continuous):
    """Fires also whenever the watermark reaches a multiple of an interval.

    Attributes:
        interval: Whole milliseconds.

    Raises:
        ConfigurationError: ``interval`` is not a positive number of whole milliseconds.

    """

    def early_firings(self, backend: KeyedStateBackend, timers: WindowTimers) -> EarlyFirings:
        """Return the firings at the multiples."""
        return EveryEventTime(positive_ms("interval", self.interval), backend, timers)


@dataclass(frozen=True, slots=True)
class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires also in the first epoch whose time reaches a multiple of an interval.

    Attributes:
        interval: Whole milliseconds.

    Raises:
        ConfigurationError: ``interval`` is not a positive number of whole milliseconds.

    """

    def early_firings(self, backend: KeyedStateBackend, timers: WindowTimers) -> EarlyFirings:
        """Return the firings at the multiples."""
        return EveryProcessingTime(positive_ms("interval", self.interval), backend, timers)


@dataclass(frozen=True, slots=True)
class CountTrigger:
    """Fires for every ``max_count`` records of a window, and never at its end.

    Attributes:
        max_count: Number of records.

    Raises:
        ConfigurationError: ``max_count`` is not a positive integer.

    """

    max_count: int

    fires_at_end: ClassVar[bool] = False
    fires_early: ClassVar[bool] = True
    fires_by_time: ClassVar[bool] = False
    purges: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self.max_count) is not int or self.max_count < 1:
            raise ConfigurationError(
                f"found max_count={self.max_count!r} for a trigger; expected a positive integer; pass the number of "
                "records"
            )

    def early_firings(self, backend: KeyedStateBackend, timers: WindowTimers) -> EarlyFirings:
        """Return the firings by count."""
        return EveryCount(self.max_count, backend)


@dataclass(frozen=True, slots=True)
class PurgingTrigger:
    """Removes the contents of a window whenever another trigger fires it.

    Attributes:
        trigger: The other trigger.

    Raises:
        ConfigurationError: ``trigger`` is none of the other triggers.

    """

    trigger: EventTimeTrigger | ContinuousEventTimeTrigger | ContinuousProcessingTimeTrigger | CountTrigger

    purges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_trigger(self.trigger)
        if isinstance(self.trigger, PurgingTrigger):
            raise ConfigurationError(
                f"found {self.trigger!r} inside of a PurgingTrigger; expected another trigger; leave one of them out"
            )

    @property
    def fires_at_end(self) -> bool:
        """Whether the other trigger fires at the end of a window."""
        return self.trigger.fires_at_end

    @property
    def fires_early(self) -> bool:
        """Whether the other trigger fires before the end of a window."""
        return self.trigger.fires_early

    @property
    def fires_by_time(self) -> bool:
        """Whether the other trigger fires at intervals of time."""
        return self.trigger.fires_by_time

    def early_firings(self, backend: KeyedStateBackend, timers: WindowTimers) -> EarlyFirings | None:
        """Return those of the other trigger."""
        return self.trigger.early_firings(backend, timers)


Trigger = (
    EventTimeTrigger | ContinuousEventTimeTrigger | ContinuousProcessingTimeTrigger | CountTrigger | PurgingTrigger
)
"""Every trigger."""


def require_trigger(trigger: object) -> None:
    """Raise ConfigurationError unless this is a trigger."""
    if not isinstance(trigger, Trigger):
        raise ConfigurationError(
            f"found {trigger!r} as a trigger; expected a trigger of statecore; pass for example CountTrigger(100)"
        )
