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
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from statecore.errors import ConfigurationError, StateError
from statecore.functions import Function, KeyedCoProcessFunction, OnTimerContext, ProcessContext, RuntimeContext
from statecore.model import MapStateDescriptor, OutputTag, parse_row
from statecore.model.types import StructType
from statecore.model.values import ValueType, row_class, value_type
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


_LEFT, _RIGHT = "left", "right"

_Match = tuple[int, list[Any]]
"""Event time and records of the other stream that match a record."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two streams.

    Attributes:
        lower_ms, upper_ms: Where records of the other side may lie, seen from a record of this one.
        kept_ms: How long after its event time a record may still be joined.
        late: The side output for its late records.
        rows: The stored form of its records.
        made: The class of records that have this form.
        buffer: Its records, by event time.

    """

    lower_ms: int
    upper_ms: int
    kept_ms: int
    late: OutputTag | None
    rows: ValueType | None = None
    made: type | None = None
    buffer: Any = None

    def opened(self, name: str, columns: str, ctx: RuntimeContext) -> _Side:
        """Return this side with its buffer, in an epoch."""
        fields = parse_row(columns)
        row = StructType(fields).ddl()
        buffer = ctx.get_map_state(MapStateDescriptor(name, "bigint", f"array<{row}>"))
        made = row_class(tuple(field.name for field in fields)).args[0]
        return replace(self, rows=value_type(row), made=made, buffer=buffer)

    def keep(self, value: Any, timestamp_ms: int) -> None:
        """Add a record to the buffer."""
        assert self.rows is not None
        # Records of a job come from Arrow, with the types of the buffer.
        stored = value if type(value) is self.made else self.rows.conform(value)
        others = self.buffer.held().get(timestamp_ms)
        self.buffer.hold(timestamp_ms, [stored] if others is None else [*others, stored])

    @property
    def copied(self) -> Callable[[Any], Any] | None:
        """Copies a record of the buffer, which the function may change; None if nothing in it can be changed."""
        assert self.rows is not None
        return self.rows.copy

    def matches(self, timestamp_ms: int, other: _Side) -> list[_Match]:
        """Return the records of the other side that match one of this side, by event time."""
        first, last = timestamp_ms + self.lower_ms, timestamp_ms + self.upper_ms
        return [(time, rows) for time, rows in other.buffer.held().items() if first <= time <= last]

    def drop_due(self, watermark_ms: int) -> int | None:
        """Remove the records that no other can match any more; return when the next one can go."""
        newest = watermark_ms - self.kept_ms
        self.buffer.drop([time for time in self.buffer.held() if time <= newest])
        oldest = min(self.buffer.held(), default=None)
        return None if oldest is None else oldest + self.kept_ms


class IntervalJoinFunction(KeyedCoProcessFunction):
    """Joins two keyed streams; a job makes it by ``keyed.interval_join(other).between(lower, upper)``.

    Args:
        function: Gets the pairs.
        interval: Which records match.
        left: Columns of the left stream, as Spark DDL; a job fills them in.
        right: Likewise, of the right stream.
        left_late: Side output for records of the left stream behind the watermark; None drops them.
        right_late: Likewise, of the right stream.

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

    @property
    def kept_ms(self) -> dict[str, int]:
        """How long after its event time a record is kept, in ms, by the name of its stream's buffer."""
        return {_LEFT: self._left.kept_ms, _RIGHT: self._right.kept_ms}

    def of_columns(self, left: str, right: str) -> IntervalJoinFunction:
        """Return this join for streams of these columns, as Spark DDL."""
        joined = copy(self)
        joined.columns = (left, right)
        return joined

    def open(self, ctx: RuntimeContext) -> None:
        """Get the buffers."""
        left, right = self.columns
        self._left, self._right = self._left.opened(_LEFT, left, ctx), self._right.opened(_RIGHT, right, ctx)
        self._function.open(ctx)

    def process_element1(self, value: Any, ctx: ProcessContext) -> None:
        """Join a record of the left stream."""
        self._add(value, ctx, self._left, self._right)

    def process_element2(self, value: Any, ctx: ProcessContext) -> None:
        """Join a record of the right stream."""
        self._add(value, ctx, self._right, self._left)

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> None:
        """Remove the records of a key that no other can match any more."""
        dues = [side.drop_due(ctx.current_watermark()) for side in (self._left, self._right)]
        first = min((due for due in dues if due is not None), default=None)
        if first is not None:
            ctx.timer_service().register_event_time_timer(first)

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
        own.keep(value, time)
        timers = ctx.timer_service()
        assert isinstance(timers, KeyedTimers)
        # One timer per key is enough: when it fires, the next one is registered.
        earliest, due = timers.earliest_event_time_timer(), time + own.kept_ms
        if earliest is None or due < earliest:
            timers.register_event_time_timer(due)
        matches = own.matches(time, other)
        if matches:
            self._emit(value, time, matches, own, ctx)

    def _emit(self, value: Any, time: int, matches: list[_Match], own: _Side, ctx: ProcessContext) -> None:
        """Emit the pairs of a record; outputs have the later event time of their pair."""
        assert isinstance(ctx, ElementContext)
        if self._context is None:
            self._context = JoinContext(ctx)
        earlier = [match for match in matches if match[0] <= time]
        if earlier:
            ctx.emit(self._pairs(value, time, earlier, own, self._context))
        for match in matches:
            if match[0] > time:
                ctx.set_timestamp(match[0])
                ctx.emit(self._pairs(value, time, [match], own, self._context))

    def _pairs(self, value: Any, time: int, matches: list[_Match], own: _Side, join: JoinContext) -> Iterator[Any]:
        """Yield the function's outputs for the pairs of a record."""
        process, is_left = self._function.process_element, own is self._left
        copied = (self._right if is_left else self._left).copied
        for match, rows in matches:
            join.left_ms, join.right_ms = (time, match) if is_left else (match, time)
            for stored in rows:
                other = stored if copied is None else copied(stored)
                returned = process(value, other, join) if is_left else process(other, value, join)
                if returned is not None:
                    yield from outputs_of(returned, "process_element")
