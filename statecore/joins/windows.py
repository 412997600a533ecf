"""Window joins and co-groups: records of two keyed streams that have a key and a window in common.

The rules are those of Flink, where a join is a co-group as well::

    left     ───●──────●───│───────────│───●────►  event time
    right    ──────●───────│──●──●─────│────────►
                           │           │
    co-group   (2, 1 record)  (0, 2)     (1, 0)     each window that has a record
    join       2 pairs        none       none       each pair

Both streams share the windows of a key: records of either extend a session. A window's contents are one list of keyed
state, in which each record is on one of two sides::

    records    struct<left:struct<…>,right:struct<…>>, one of the two null
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from copy import copy
from datetime import timedelta
from functools import partial
from typing import Any

from statecore.errors import ConfigurationError
from statecore.functions import KeyedCoProcessFunction, OnTimerContext, ProcessContext, RuntimeContext
from statecore.model import ListStateDescriptor, OutputTag, parse_row
from statecore.model.types import StructType
from statecore.state.process import outputs_of
from statecore.windows import (
    EventTimeTrigger,
    GlobalWindows,
    ProcessWindowFunction,
    Trigger,
    WindowAssigner,
    WindowContext,
    WindowFunction,
)
from statecore.windows.assigners import SessionWindows

_AT_END = EventTimeTrigger()
_ANY_LIST = ListStateDescriptor("records", "bigint")


class CoGroupFunction(ABC):
    """Turns the records of two streams in a window into outputs when the window fires."""

    @abstractmethod
    def co_group(
        self, key: tuple[Any, ...], context: WindowContext, lefts: list[Any], rights: list[Any]
    ) -> Iterable[Any] | None:
        """Yield outputs: tuples with the columns of the output schema.

        Args:
            key: Values of the key columns.
            context: The window, the watermark and the side outputs.
            lefts: All records of the first stream in the window.
            rights: All records of the second stream in the window. One of the two may be empty.

        """


class JoinFunction(CoGroupFunction):
    """Turns each pair of records of two streams in a window into outputs when the window fires."""

    @abstractmethod
    def join(self, left: Any, right: Any, context: WindowContext) -> Iterable[Any] | None:
        """Yield outputs for a pair: tuples with the columns of the output schema.

        Args:
            left: A record of the first stream.
            right: A record of the second stream, with the same key and window.
            context: The window, the watermark and the side outputs.

        """

    def co_group(
        self, key: tuple[Any, ...], context: WindowContext, lefts: list[Any], rights: list[Any]
    ) -> Iterator[Any]:
        """Yield the outputs of each pair; there is none if one side is empty."""
        for left in lefts:
            for right in rights:
                yield from outputs_of(self.join(left, right, context), "join")


class CoGroupWindowFunction(KeyedCoProcessFunction):
    """Co-groups two keyed streams; a job makes it by ``keyed.co_group(other).window(…)`` or ``keyed.join(other)…``.

    Args:
        function: Gets both sides of a window; a ``JoinFunction`` its pairs.
        windows: Assigns records of both streams to windows.
        left: Columns of the left stream, as Spark DDL; a job fills them in.
        right: Likewise, of the right stream.
        allowed_lateness: Time after its end in which a window still accepts records; each of them fires it again, with
            all that it holds.
        left_late: Side output for later records of the left stream; None drops them.
        right_late: Likewise, of the right stream.
        trigger: Decides when a window fires.

    Attributes:
        columns: Columns of the left and the right stream.
        late: The side outputs for late records of the left and the right stream.

    Raises:
        ConfigurationError: ``function`` is no ``CoGroupFunction``, or as for ``WindowFunction``.

    """

    def __init__(
        self,
        function: CoGroupFunction,
        windows: WindowAssigner | SessionWindows | GlobalWindows,
        left: str = "",
        right: str = "",
        *,
        allowed_lateness: timedelta = timedelta(0),
        left_late: OutputTag | None = None,
        right_late: OutputTag | None = None,
        trigger: Trigger = _AT_END,
    ) -> None:
        if not isinstance(function, CoGroupFunction):
            raise ConfigurationError(
                f"found {function!r} for a window co-group; expected a CoGroupFunction or a JoinFunction; subclass one "
                "and give an object of it"
            )
        self.columns = (left, right)
        self.late = (left_late, right_late)
        self._windows_with = partial(
            WindowFunction, windows, process=_Sides(function), allowed_lateness=allowed_lateness, trigger=trigger
        )
        # Refuse invalid settings now; the type of the contents is known only with the columns.
        for tag in self.late:
            self._windows_with(contents=_ANY_LIST, late_output=tag)
        self._left: WindowFunction
        self._right: WindowFunction

    def of_columns(self, left: str, right: str) -> CoGroupWindowFunction:
        """Return this co-group for streams of these columns, as Spark DDL."""
        grouped = copy(self)
        grouped.columns = (left, right)
        return grouped

    @property
    def in_windows(self) -> WindowFunction:
        """The windows, with a list as contents; its type is known only with the columns."""
        return self._windows_with(contents=_ANY_LIST)

    def open(self, ctx: RuntimeContext) -> None:
        """Get the state of the windows, which both streams share."""
        left, right = (StructType(parse_row(columns)).ddl() for columns in self.columns)
        records = ListStateDescriptor(_ANY_LIST.name, f"struct<left:{left},right:{right}>")
        self._left = self._windows_with(contents=records, value=_on_the_left, late_output=self.late[0])
        self._right = self._windows_with(contents=records, value=_on_the_right, late_output=self.late[1])
        for windows in (self._left, self._right):
            windows.open(ctx)

    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any]:
        """Add a record of the left stream to its windows."""
        return self._left.process_element(value, ctx)

    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any]:
        """Add a record of the right stream to its windows."""
        return self._right.process_element(value, ctx)

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext) -> Iterable[Any]:
        """Fire or clear a window, which both streams share."""
        return self._left.on_timer(timestamp_ms, ctx)


class _Sides(ProcessWindowFunction):
    """Gives a function the records of a window, side by side."""

    def __init__(self, function: CoGroupFunction) -> None:
        self._co_group = function.co_group

    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        lefts: list[Any] = []
        rights: list[Any] = []
        for left, right in elements:
            if left is None:
                rights.append(right)
            else:
                lefts.append(left)
        return outputs_of(self._co_group(key, context, lefts, rights), "co_group")


def _on_the_left(record: Any) -> tuple[Any, None]:
    return record, None


def _on_the_right(record: Any) -> tuple[None, Any]:
    return None, record
