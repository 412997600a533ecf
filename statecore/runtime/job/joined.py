"""Joins and co-groups of two keyed streams, from their interval or windows to their function."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Generic, Protocol, TypeVar

from statecore.errors import ConfigurationError, JobDefinitionError
from statecore.functions import UserFunction
from statecore.joins import (
    CoGroupFunction,
    CoGroupWindowFunction,
    Interval,
    IntervalJoinFunction,
    ProcessJoinFunction,
)
from statecore.model import OutputTag
from statecore.runtime.job.checks import require_event_time
from statecore.runtime.job.plans import Input
from statecore.windows import EventTimeTrigger, GlobalWindows, Trigger, WindowAssigner
from statecore.windows.assigners import SessionWindows

_AT_END = EventTimeTrigger()
Processed = TypeVar("Processed", covariant=True)
"""What ``process`` returns: the main output of the operator."""


class Connected(Protocol[Processed]):
    """Two connected keyed streams; ``inputs`` are the left and the right one."""

    inputs: tuple[Input, Input]

    def process(
        self,
        function: UserFunction,
        output: str | type,
        uid: str,
        *,
        parallelism: int | None = None,
        on_error: OutputTag | None = None,
    ) -> Processed:
        """Run a function on both streams."""


class IntervalJoin(Generic[Processed]):
    """Two keyed streams to join; ``between`` gives the interval."""

    def __init__(self, connected: Connected[Processed]) -> None:
        self._connected = connected

    def between(
        self, lower: timedelta, upper: timedelta, *, lower_exclusive: bool = False, upper_exclusive: bool = False
    ) -> IntervalJoined[Processed]:
        """Join records that lie within an interval from each other: ``left + lower <= right <= left + upper``.

        Args:
            lower: The lower bound; negative for right records before the left one.
            upper: The upper bound.
            lower_exclusive: Whether the lower bound itself is outside.
            upper_exclusive: Whether the upper bound itself is outside.

        Raises:
            ConfigurationError: A bound is not a timedelta of whole milliseconds, or ``upper`` is below ``lower``.

        """
        return IntervalJoined(self._connected, Interval(lower, upper, lower_exclusive, upper_exclusive))


class IntervalJoined(Generic[Processed]):
    """The pairs of an interval join."""

    def __init__(self, connected: Connected[Processed], interval: Interval) -> None:
        self._connected = connected
        self._interval = interval

    def process(
        self,
        function: ProcessJoinFunction,
        output: str | type,
        uid: str,
        *,
        parallelism: int | None = None,
        left_late: OutputTag | None = None,
        right_late: OutputTag | None = None,
        on_error: OutputTag | None = None,
    ) -> Processed:
        """Run a ``ProcessJoinFunction`` on every pair.

        Args:
            function: An instance. It is shipped to the workers.
            output: Columns of the main output: Spark DDL, or a dataclass or NamedTuple that declares them.
            uid: The operator's stable identity in savepoints. Its state is ``left`` and ``right``, the records that
                may still be joined.
            parallelism: As in ``KeyedStream.process``.
            left_late: Side output, with the columns of the left stream, for its records behind the watermark, which
                are not joined.
            right_late: Likewise, of the right stream.
            on_error: As in ``KeyedStream.process``.

        Returns:
            The main output; the event time of a row is the later one of its pair.

        Raises:
            JobDefinitionError, UnsupportedTypeError: As for ``KeyedStream.process``.

        """
        try:
            join = IntervalJoinFunction(function, self._interval, left_late=left_late, right_late=right_late)
        except ConfigurationError as error:
            raise JobDefinitionError(f"operator {uid!r}: {error}") from None
        return self._connected.process(join, output, uid, parallelism=parallelism, on_error=on_error)


class CoGroupedStreams(Generic[Processed]):
    """Two keyed streams to join or to co-group; ``window`` gives the windows."""

    def __init__(self, connected: Connected[Processed], kind: type) -> None:
        self._connected = connected
        self._kind = kind

    def window(
        self,
        windows: WindowAssigner | SessionWindows | GlobalWindows,
        *,
        allowed_lateness: timedelta = timedelta(0),
        trigger: Trigger = _AT_END,
    ) -> WindowedCoGroup[Processed]:
        """Put the records of both streams into windows, which they share.

        Args:
            windows: Assigns records to windows, as for ``WindowFunction``.
            allowed_lateness: Time after its end in which a window still accepts records; each of them fires it again,
                with all that it holds.
            trigger: Decides when a window fires.

        Raises:
            JobDefinitionError: A source of one of the two streams has no event time, and the windows are not
                ``GlobalWindows``.

        """
        if not isinstance(windows, GlobalWindows):
            require_event_time(self._connected.inputs, "a join or co-group over windows")
        windowed = partial(CoGroupWindowFunction, windows=windows, allowed_lateness=allowed_lateness, trigger=trigger)
        return WindowedCoGroup(self._connected, self._kind, windowed)


class WindowedCoGroup(Generic[Processed]):
    """The windows of a join or a co-group."""

    def __init__(
        self, connected: Connected[Processed], kind: type, windowed: Callable[..., CoGroupWindowFunction]
    ) -> None:
        self._connected = connected
        self._kind = kind
        self._windowed = windowed

    def process(
        self,
        function: CoGroupFunction,
        output: str | type,
        uid: str,
        *,
        parallelism: int | None = None,
        left_late: OutputTag | None = None,
        right_late: OutputTag | None = None,
        on_error: OutputTag | None = None,
    ) -> Processed:
        """Run a ``JoinFunction`` on every pair of a join, or a ``CoGroupFunction`` on both sides of every window.

        Args:
            function: An instance. It is shipped to the workers.
            output: Columns of the main output: Spark DDL, or a dataclass or NamedTuple that declares them.
            uid: The operator's stable identity in savepoints. Its state is ``records``, the contents of the windows.
            parallelism: As in ``KeyedStream.process``.
            left_late: Side output, with the columns of the left stream, for its records whose windows are gone.
            right_late: Likewise, of the right stream.
            on_error: As in ``KeyedStream.process``.

        Returns:
            The main output; the event time of a row is the last millisecond of its window.

        Raises:
            JobDefinitionError: The function is not of that kind, or ``window`` got settings that no ``WindowFunction``
                takes; or as for ``KeyedStream.process``.
            UnsupportedTypeError: As for ``KeyedStream.process``.

        """
        if not isinstance(function, self._kind):
            raise JobDefinitionError(
                f"operator {uid!r}: found {function!r}; expected a {self._kind.__name__}; subclass it and give an "
                "object of it"
            )
        try:
            grouped = self._windowed(function, left_late=left_late, right_late=right_late)
        except ConfigurationError as error:
            raise JobDefinitionError(f"operator {uid!r}: {error}") from None
        return self._connected.process(grouped, output, uid, parallelism=parallelism, on_error=on_error)
