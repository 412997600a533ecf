"""Interval joins: records of two keyed streams that lie within an interval of event time from each other.

The rules are those of Flink's interval join. Each record is kept, under its key, until no record of the other stream
can match it any more::

    left     ────────────●────────────────────────►  event time
                 lower ┌─┴──┐ upper
    right    ──────────┴●──●┴────●────────────────►  joins with the first two

Both buffers are keyed state, so joins survive savepoints and rescales like all keyed state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from statecore.errors import ConfigurationError, StateError
from statecore.functions import Function, KeyedCoProcessFunction, OnTimerContext, ProcessContext, RuntimeContext
from statecore.model import MapStateDescriptor, OutputTag, parse_row
from statecore.model.types import StructType
from statecore.state.contexts import ElementContext, KeyedTimers
from statecore.state.process import outputs_of


class JoinContext:
    """Passed to ``ProcessJoinFunction.process_element``."""

    __slots__ = ("_element", "left_ms", "right_ms")

    def __init__(self, element: ElementContext) -> None:
        self._element = element
        self.left_ms = self.right_ms = 0

    def left_timestamp(self) -> int:
        """Return the event time of the left record, in ms."""
        return self.left_ms

    def right_timestamp(self) -> int:
        """Return the event time of the right record, in ms."""
        return self.right_ms

    def timestamp(self) -> int:
        """Return the event time of the outputs, in ms: the later one of both records."""
        return max(self.left_ms, self.right_ms)

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit a value to a side output."""
        self._element.output(tag, value)


class ProcessJoinFunction(Function, ABC):
    """Turns each pair of records that an interval join finds into outputs."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: JoinContext) -> Iterable[Any] | None:
        """Yield outputs for a pair: tuples with the columns of the output schema.

        Args:
            left: A record of the first stream.
            right: A record of the second stream, with the same key.
            ctx: Event times and side outputs.

        """


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a right record may lie, seen from the event time of a left one.

    Attributes:
        lower, upper: The bounds; whole milliseconds, negative ones are in the past.
        lower_exclusive, upper_exclusive: Whether a bound itself is outside.

    Raises:
        ConfigurationError: A bound is not a timedelta of whole milliseconds, or ``upper`` is below ``lower``.

    """

    lower: timedelta
    upper: timedelta
    lower_exclusive: bool = False
    upper_exclusive: bool = False

    def __post_init__(self) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if not isinstance(bound, timedelta) or bound % timedelta(milliseconds=1):
                raise ConfigurationError(
                    f"found {name}={bound!r} for an interval join; expected a timedelta of whole milliseconds; pass "
                    "timedelta(…)"
                )
        if self.upper < self.lower:
            raise ConfigurationError(
                f"found an interval from {self.lower} to {self.upper}; expected a lower bound that is not above the "
                "upper one; swap them"
            )

    @property
    def lower_ms(self) -> int:
        """The first millisecond inside."""
        return self.lower // timedelta(milliseconds=1) + self.lower_exclusive

    @property
    def upper_ms(self) -> int:
        """The last millisecond inside."""
        return self.upper // timedelta(milliseconds=1) - self.upper_exclusive


@dataclass(slots=True)
class _Side:
    """One of the two streams.

    Attributes:
        lower_ms, upper_ms: Where records of the other side may lie, seen from a record of this one.
        kept_ms: How long after its event time a record may still be joined.
        late: The side output for its late records.
        buffer: Its records, by event time.

    """

    lower_ms: int
    upper_ms: int
    kept_ms: int
    late: OutputTag | None
    buffer: Any = None

    def matching(self, timestamp_ms: int, other: _Side) -> list[int]:
        """Return the event times of records of the other side that match one of this side."""
        first, last = timestamp_ms + self.lower_ms, timestamp_ms + self.upper_ms
        return [time for time in other.buffer.keys() if first <= time <= last]  # noqa: SIM118

    def due_ms(self) -> int | None:
        """Return when the oldest record that is kept can go."""
        return min((time + self.kept_ms for time in self.buffer.keys()), default=None)  # noqa: SIM118

    def drop_due(self, watermark_ms: int) -> None:
        """Remove the records that no other can match any more."""
        for time in self.buffer.keys():  # noqa: SIM118
            if time + self.kept_ms <= watermark_ms:
                self.buffer.remove(time)


class IntervalJoinFunction(KeyedCoProcessFunction):
    """Joins two keyed streams; a job makes it by ``keyed.interval_join(other).between(lower, upper)``.

    Args:
        function: Gets the pairs.
        interval: Which records match.
        left, right: Columns of the two streams, as Spark DDL; a job fills them in.
        left_late, right_late: Side outputs for records behind the watermark; None drops them.

    Attributes:
        columns: Columns of the left and the right stream.

    """

    def __init__(
        self,
        function: ProcessJoinFunction,
        interval: Interval,
        left: str = "",
        right: str = "",
        *,
        left_late: OutputTag | None = None,
        right_late: OutputTag | None = None,
    ) -> None:
        if not isinstance(function, ProcessJoinFunction):
            raise ConfigurationError(
                f"found {function!r} for an interval join; expected a ProcessJoinFunction; subclass it and give an "
                "object of it"
            )
        self._function = function
        self.columns = (left, right)
        lower, upper = interval.lower_ms, interval.upper_ms
        self._left = _Side(lower, upper, max(upper, 0), left_late)
        self._right = _Side(-upper, -lower, max(-lower, 0), right_late)
        self._context: JoinContext | None = None

    @property
    def late(self) -> tuple[OutputTag | None, OutputTag | None]:
        """The side outputs for late records of the left and the right stream."""
        return self._left.late, self._right.late

    def of_columns(self, left: str, right: str) -> IntervalJoinFunction:
        """Return this join for streams of these columns, as Spark DDL."""
        joined = copy(self)
        joined.columns = (left, right)
        return joined

    def open(self, ctx: RuntimeContext) -> None:
        """Get the buffers."""
        self._left, self._right = copy(self._left), copy(self._right)
        for name, side, columns in zip(("left", "right"), (self._left, self._right), self.columns, strict=True):
            rows = f"array<{StructType(parse_row(columns)).ddl()}>"
            side.buffer = ctx.get_map_state(MapStateDescriptor(name, "bigint", rows))
        self._function.open(ctx)

    def process_element1(self, value: Any, ctx: ProcessContext) -> None:
        """Join a record of the left stream."""
        self._add(value, ctx, self._left, self._right)

    def process_element2(self, value: Any, ctx: ProcessContext) -> None:
        """Join a record of the right stream."""
        self._add(value, ctx, self._right, self._left)

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> None:
        """Remove the records of a key that no other can match any more."""
        watermark = ctx.current_watermark()
        dues = []
        for side in (self._left, self._right):
            side.drop_due(watermark)
            dues.append(side.due_ms())
        left = [due for due in dues if due is not None]
        if left:
            ctx.timer_service().register_event_time_timer(min(left))

    def close(self) -> None:
        """Close the function that gets the pairs."""
        self._function.close()

    def _add(self, value: Any, ctx: ProcessContext, own: _Side, other: _Side) -> None:
        time = ctx.timestamp()
        if time is None:
            raise StateError(
                f"found the record {value!r} without event time; expected one, because an interval join follows event "
                "time; set event_time=… on the source"
            )
        if time < ctx.current_watermark():
            if own.late is not None:
                ctx.output(own.late, value)
            return
        own.buffer.put(time, [*(own.buffer.get(time) or ()), value])
        timers = ctx.timer_service()
        assert isinstance(timers, KeyedTimers)
        # One timer per key is enough: when it fires, the next one is registered.
        earliest, due = timers.earliest_event_time_timer(), time + own.kept_ms
        if earliest is None or due < earliest:
            timers.register_event_time_timer(due)
        for match in own.matching(time, other):
            for found in other.buffer.get(match):
                if own is self._left:
                    self._emit(value, time, found, match, ctx)
                else:
                    self._emit(found, match, value, time, ctx)

    def _emit(self, left: Any, left_ms: int, right: Any, right_ms: int, ctx: ProcessContext) -> None:
        assert isinstance(ctx, ElementContext)
        join = self._context
        if join is None:
            join = self._context = JoinContext(ctx)
        join.left_ms, join.right_ms = left_ms, right_ms
        ctx.set_timestamp(join.timestamp())
        ctx.emit(outputs_of(self._function.process_element(left, right, join), "process_element"))
