"""The job builder, with which a job file's ``build(job)`` describes a job.

::

    source ─► key_by ─► process(uid) ─► sink
                           │  └─► side_output ─► sink
    source ─► broadcast ───┘ connect         every output is a stream again: key_by, union, broadcast, process, sink
    source ─► key_by ──────┘
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from statecore.errors import ConfigurationError, JobDefinitionError
from statecore.functions import UserFunction
from statecore.joins import (
    CoGroupFunction,
    CoGroupWindowFunction,
    Interval,
    IntervalJoinFunction,
    JoinFunction,
    ProcessJoinFunction,
)
from statecore.model import MapStateDescriptor, OutputTag, parse_row, row_ddl
from statecore.runtime.messages import INTERNAL
from statecore.runtime.sinks import Sink
from statecore.runtime.transforms import ByFunction, Filter, Select, Transformation, WithColumn
from statecore.snapshot.job_files import read_job_file, read_source
from statecore.snapshot.keyed_files import RESERVED
from statecore.state.dead_letters import check_on_error
from statecore.state.process import MAIN_OUTPUT, fires_timers, require_fit
from statecore.storage import FileStore
from statecore.windows import EventTimeTrigger, GlobalWindows, Trigger, WindowAssigner
from statecore.windows.assigners import SessionWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

JOB_MODULE = "statecore_job_"
"""Prefix of the module names of job files; the file's name follows."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_AT_END = EventTimeTrigger()


@dataclass(frozen=True, slots=True)
class Source:
    """A named input.

    Attributes:
        name: Its identity in savepoints.
        read: Creates the streaming DataFrame from a session.
        event_time: Column with the records' event time, or None.
        max_lateness: How far the watermark stays behind the newest event time.
        idle_after: Time without records after which the watermark of the job goes on without it; None for never.
        transformations: What this reader of it does with the records first, in order.

    """

    name: str
    read: Callable[[SparkSession], DataFrame]
    event_time: str | None = None
    max_lateness: timedelta = timedelta(0)
    idle_after: timedelta | None = None
    transformations: tuple[Transformation, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an operator.

    Attributes:
        uid: The operator.
        tag: Name of a side output's tag, or ``MAIN_OUTPUT``.
        schema: Schema of its rows, as Spark DDL.
        transformations: What this reader of it does with the rows first, in order.

    """

    uid: str
    tag: str
    schema: str
    transformations: tuple[Transformation, ...] = ()


Origin = Source | Output
"""What a stream comes from."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of an operator.

    Attributes:
        origins: What its records come from; several for a union.
        key_columns: Empty without a key.
        order_by: Columns that each epoch's records are sorted by.

    """

    origins: tuple[Origin, ...]
    key_columns: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()

    @property
    def is_ordered_by_event_time(self) -> bool:
        """Whether its records are sorted by the event time of its sources."""
        first = self.order_by[:1]
        return bool(first) and all(isinstance(each, Source) and first == (each.event_time,) for each in self.origins)


@dataclass(frozen=True, slots=True)
class SinkBinding:
    """A sink and the output that it publishes.

    Attributes:
        name: The sink's identity within the job.
        tag: Name of a side output's tag, or ``MAIN_OUTPUT``.
        schema: Schema of the rows, as Spark DDL.

    """

    name: str
    tag: str
    schema: str
    sink: Sink


@dataclass(frozen=True, slots=True)
class BroadcastInput(Input):
    """The input that every subtask of an operator reads in full.

    Attributes:
        states: The broadcast states that the function keeps its records in.

    """

    states: tuple[MapStateDescriptor, ...] = ()


@dataclass(slots=True)
class OperatorPlan:
    """One operator: its inputs, function and outputs.

    Attributes:
        first: Its input, or the first of two.
        connected: What its input is connected to: a second input, a broadcast one, or None.
        parallelism: Number of its subtasks; None for the job's.
        late: Side output that takes late records of the main input; None passes them to the function.
        on_error: Side output that takes records that the function fails on; None lets a failure end the epoch.

    """

    uid: str
    first: Input
    connected: Input | None
    function: UserFunction
    output: str | type
    parallelism: int | None = None
    late: OutputTag | None = None
    on_error: OutputTag | None = None
    sinks: list[SinkBinding] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The first input, and what it is connected to."""
        return (self.first,) if self.connected is None else (self.first, self.connected)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """What the records of all inputs come from, input by input."""
        return tuple(origin for each in self.inputs for origin in each.origins)

    @property
    def broadcast(self) -> tuple[MapStateDescriptor, ...]:
        """The broadcast states, none without a broadcast input."""
        return self.connected.states if isinstance(self.connected, BroadcastInput) else ()

    @property
    def has_two_inputs(self) -> bool:
        """Whether two streams are connected, none of them broadcast."""
        return self.connected is not None and not isinstance(self.connected, BroadcastInput)

    @property
    def merges_by_event_time(self) -> bool:
        """Whether the records of two inputs come in one order, that of event time."""
        return self.has_two_inputs and all(each.is_ordered_by_event_time for each in self.inputs)


class Job:
    """The job that ``build(job)`` describes.

    Attributes:
        settings: The job's settings as registered, read-only.

    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings: Mapping[str, str] = MappingProxyType(dict(settings or {}))
        self.sources: list[Source] = []
        self.operators: list[OperatorPlan] = []

    @property
    def sinks(self) -> list[SinkBinding]:
        """All sinks of the job."""
        return [binding for operator in self.operators for binding in operator.sinks]

    @property
    def fires_timers(self) -> bool:
        """Whether any function handles timers."""
        return any(fires_timers(operator.function) for operator in self.operators)

    def source(
        self,
        name: str,
        read: Callable[[SparkSession], DataFrame],
        event_time: str | None = None,
        max_lateness: timedelta | None = None,
        idle_after: timedelta | None = None,
    ) -> Stream:
        """Add a source.

        Args:
            name: Its identity in savepoints: letters, digits, ``_``, ``-`` and ``.``.
            read: Returns the streaming DataFrame, given a session. Limit what one epoch reads, for example with
                ``maxFilesPerTrigger``.
            event_time: Column of type timestamp with the records' event time. A null there means none.
            max_lateness: How far the watermark stays behind the newest event time; zero by default.
            idle_after: Time without records after which the watermark of the job goes on without this source. Without
                it, a source that has no records holds back the event time of all. Records that come later may be late.

        Returns:
            The source's records.

        Raises:
            JobDefinitionError: The name is taken or unusable, the lateness is negative, ``idle_after`` is not positive,
                or one of the two comes without event time.

        """
        _check_name("source", name, [source.name for source in self.sources])
        if max_lateness is not None and (event_time is None or max_lateness < timedelta(0)):
            raise JobDefinitionError(
                f"found max_lateness={max_lateness!r} and event_time={event_time!r} for source {name!r}; expected a "
                "timedelta that is not negative, and an event-time column; name the column, or omit max_lateness"
            )
        if idle_after is not None and (event_time is None or idle_after <= timedelta(0)):
            raise JobDefinitionError(
                f"found idle_after={idle_after!r} and event_time={event_time!r} for source {name!r}; expected a "
                "positive timedelta, and an event-time column; name the column, or omit idle_after"
            )
        source = Source(name, read, event_time, max_lateness or timedelta(0), idle_after)
        self.sources.append(source)
        return Stream(self, (source,))

    def validated(self) -> Job:
        """Return this job if it can run.

        Raises:
            JobDefinitionError: It has no operator, or a source that no operator reads.

        """
        if not self.operators:
            raise JobDefinitionError(
                f"found {len(self.sources)} sources and no operator; expected at least one; "
                "call process(…) on a stream in build(job)"
            )
        read = {each.name for operator in self.operators for each in operator.origins if isinstance(each, Source)}
        unread = [source.name for source in self.sources if source.name not in read]
        if unread:
            raise JobDefinitionError(
                f"found the sources {unread}, which no operator reads; expected every source to be read; "
                "remove them, or process them"
            )
        return self


class Stream:
    """Records without a key: a source, an output of an operator, or a union of such streams."""

    def __init__(self, job: Job, origins: tuple[Origin, ...]) -> None:
        self._job = job
        self._origins = origins

    def union(self, *others: Stream) -> Stream:
        """Return the records of this stream and of others, in no particular order.

        All have the same columns, by name and type; their order does not matter. The event time of each record is that
        of the stream that it comes from.

        Raises:
            JobDefinitionError: Another stream is none, or has a key.

        """
        for other in others:
            if not isinstance(other, Stream):
                raise JobDefinitionError(
                    f"found union({other!r}); expected streams without a key; give the results of source(…) or "
                    "process(…), and call key_by() on the union"
                )
        return Stream(self._job, (*self._origins, *(origin for other in others for origin in other._origins)))

    def filter(self, condition: str | Callable[[DataFrame], Column]) -> Stream:
        """Keep the records that meet a condition.

        Args:
            condition: SQL, as in ``"amount > 0"``, or a function that makes a column of a DataFrame.

        """
        return self._transformed(Filter(condition))

    def select(self, *columns: str) -> Stream:
        """Replace the columns.

        Args:
            columns: Names or SQL, as in ``"upper(country) AS country"``.

        """
        return self._transformed(Select(columns))

    def with_column(self, name: str, expression: str | Callable[[DataFrame], Column]) -> Stream:
        """Add or replace a column.

        Args:
            name: The column.
            expression: SQL, as in ``"price * quantity"``, or a function that makes a column of a DataFrame.

        """
        return self._transformed(WithColumn(name, expression))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Transform the DataFrame of each epoch: any stateless Spark SQL, joins with tables included.

        The function is called in every epoch, so a table that it reads is as it is then. After another operator, rows
        have further columns, ``__statecore_…``, which the result must keep: select by ``stream.select`` instead. There,
        the rows are also computed before, and held until the epoch's end; the other transformations cost less.

        Args:
            function: Returns a DataFrame that depends on single records and on tables. What is stateful, or would
                differ when an epoch is replayed, ends the driver with an error.

        """
        return self._transformed(ByFunction(function))

    def _transformed(self, transformation: Transformation) -> Stream:
        origins = (replace(each, transformations=(*each.transformations, transformation)) for each in self._origins)
        return Stream(self._job, tuple(origins))

    def key_by(self, *columns: str, order_by: Sequence[str] = ()) -> KeyedStream:
        """Partition the records by columns.

        Args:
            columns: Key columns. A key is always a tuple of their values.
            order_by: Columns that each epoch's records are sorted by; without them records have no order.

        Returns:
            The same records, with a key.

        Raises:
            JobDefinitionError: No column is given, one is given twice, or one has a name that state files reserve.

        """
        if not columns:
            raise JobDefinitionError("found key_by() without columns; expected at least one; name the key columns")
        if len(set(columns)) < len(columns):
            raise JobDefinitionError(f"found the key columns {columns}; expected each once; remove the duplicates")
        reserved = sorted((RESERVED | INTERNAL).intersection(columns))
        if reserved:
            raise JobDefinitionError(
                f"found the key columns {reserved}; expected other names, because state files reserve these; "
                "rename the columns in the source"
            )
        return KeyedStream(self._job, Input(self._origins, columns, tuple(order_by)))

    def broadcast(self, *states: MapStateDescriptor, order_by: Sequence[str] = ()) -> BroadcastStream:
        """Send every record to every subtask of the operator that it is connected to.

        Within an epoch, broadcast records come before the others.

        Args:
            states: The broadcast states that the function keeps them in.
            order_by: Columns that each epoch's records are sorted by. Give them if the order matters, because all
                subtasks must apply the records in the same order.

        Returns:
            A stream to pass to ``connect`` of another stream.

        Raises:
            JobDefinitionError: No state is given, or one is not a ``MapStateDescriptor``.

        """
        if not states or not all(isinstance(state, MapStateDescriptor) for state in states):
            raise JobDefinitionError(
                f"found broadcast{states!r}; expected at least one MapStateDescriptor; name the broadcast states"
            )
        return BroadcastStream(BroadcastInput(self._origins, (), tuple(order_by), states))

    def connect(self, other: Stream | BroadcastStream) -> ConnectedStream:
        """Connect these records, which have no key, to another stream without a key, or to a broadcast stream.

        Raises:
            JobDefinitionError: The other stream has a key.

        """
        if not isinstance(other, Stream | BroadcastStream):
            raise JobDefinitionError(
                f"found connect({_described(other)}) on a stream without a key; expected another one without a key, "
                "or stream.broadcast(…); call key_by() on both streams, or on none"
            )
        connected = other.input if isinstance(other, BroadcastStream) else Input(other._origins)
        return ConnectedStream(self._job, Input(self._origins), connected)

    def process(
        self,
        function: UserFunction,
        output: str | type,
        uid: str,
        *,
        parallelism: int | None = None,
        late: OutputTag | None = None,
        on_error: OutputTag | None = None,
    ) -> ProcessedStream:
        """Run a ``ProcessFunction`` or a ``BatchProcessFunction`` on every record.

        Arguments and errors are those of ``KeyedStream.process``.
        """
        plan = OperatorPlan(uid, Input(self._origins), None, function, output, parallelism, late, on_error)
        return _processed(self._job, plan)

    def sink(self, name: str, sink: Sink) -> None:
        """Refuse: only what an operator puts out can be published.

        Raises:
            JobDefinitionError: Always.

        """
        raise JobDefinitionError(
            f"found the sink {name!r} on a source, a union or a transformed stream; expected it on an output of an "
            "operator; call process(…) last, and sink(…) on what it returns"
        )


class BroadcastStream:
    """Records that every subtask gets; pass it to ``connect`` of another stream."""

    def __init__(self, broadcast: BroadcastInput) -> None:
        self.input = broadcast


class KeyedStream:
    """Records partitioned by key."""

    def __init__(self, job: Job, stream_input: Input) -> None:
        self._job = job
        self._input = stream_input

    def connect(self, other: KeyedStream | BroadcastStream) -> ConnectedStream:
        """Connect these records to another keyed stream, or to a broadcast stream.

        The keys of two keyed streams have the same types; the names of their columns may differ.

        Raises:
            JobDefinitionError: The other stream has no key, or one of another number of columns.

        """
        if not isinstance(other, KeyedStream | BroadcastStream):
            raise JobDefinitionError(
                f"found connect({_described(other)}) on a keyed stream; expected another keyed stream, or "
                "stream.broadcast(…); call key_by() on both streams"
            )
        if isinstance(other, BroadcastStream):
            return ConnectedStream(self._job, self._input, other.input)
        own, others = self._input.key_columns, other._input.key_columns
        if len(own) != len(others):
            raise JobDefinitionError(
                f"found the keys {own} and {others} of two connected streams; expected as many columns in both, since "
                "they share one key; name the columns that belong together, in the same order"
            )
        return ConnectedStream(self._job, self._input, other._input)

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Join these records, on the left, with those of another keyed stream that are near in event time.

        Raises:
            JobDefinitionError: The other stream has no key, or one of another number of columns; or a source of one of
                the two streams has no event time.

        """
        connected = self.connect(other)
        _require_event_time(connected.inputs, "an interval join")
        return IntervalJoin(connected)

    def co_group(self, other: KeyedStream) -> CoGroupedStreams:
        """Group these records, on the left, with those of another keyed stream, by key and window.

        Raises:
            JobDefinitionError: The other stream has no key, or one of another number of columns.

        """
        return CoGroupedStreams(self.connect(other), CoGroupFunction)

    def join(self, other: KeyedStream) -> CoGroupedStreams:
        """Join these records, on the left, with those of another keyed stream in the same window.

        Raises:
            JobDefinitionError: The other stream has no key, or one of another number of columns.

        """
        return CoGroupedStreams(self.connect(other), JoinFunction)

    def process(
        self,
        function: UserFunction,
        output: str | type,
        uid: str,
        *,
        parallelism: int | None = None,
        late: OutputTag | None = None,
        on_error: OutputTag | None = None,
    ) -> ProcessedStream:
        """Run a ``KeyedProcessFunction`` or a ``BatchProcessFunction`` on every record.

        Args:
            function: An instance. It is shipped to the workers.
            output: Columns of the main output: Spark DDL, or a dataclass or NamedTuple that declares them.
            uid: The operator's stable identity in savepoints.
            parallelism: Number of this operator's subtasks, which a rescale of the job does not change; by default the
                job's.
            late: Side output, with the columns of the records, for records whose event time is at or behind the
                watermark. They skip the function. Without it the function gets every record.
            on_error: Side output for records that the function fails on, with any of the columns ``error``, ``uid``,
                ``key`` and ``record`` (strings; the last two are JSON), ``epoch`` and ``timestamp_ms`` (bigint). Keyed
                state, timers and outputs are then as if the record had not been there. Without it a failure ends the
                epoch.

        Returns:
            The main output.

        Raises:
            JobDefinitionError: The function does not fit the stream, the uid is taken or unusable, the parallelism is
                below 1, ``late`` is given for a source without event time, or ``on_error`` with other columns or for a
                function over batches.
            UnsupportedTypeError: The columns of the output or of ``late`` cannot be parsed.

        """
        plan = OperatorPlan(uid, self._input, None, function, output, parallelism, late, on_error)
        return _processed(self._job, plan)


class ConnectedStream:
    """Two connected streams: both with the same key, both without, or the second broadcast."""

    def __init__(self, job: Job, first: Input, connected: Input) -> None:
        self._job = job
        self.inputs = (first, connected)

    def process(
        self,
        function: UserFunction,
        output: str | type,
        uid: str,
        *,
        parallelism: int | None = None,
        late: OutputTag | None = None,
        on_error: OutputTag | None = None,
    ) -> ProcessedStream:
        """Run a function on both streams.

        It is a ``KeyedCoProcessFunction``, or without a key a ``CoProcessFunction``; on a broadcast stream, it is a
        ``KeyedBroadcastProcessFunction``, or without a key a ``BroadcastProcessFunction``.

        Arguments and errors are those of ``KeyedStream.process``. ``late`` is for a stream with a broadcast one only,
        whose records are never late: the columns of two other streams differ.
        """
        return _processed(self._job, OperatorPlan(uid, *self.inputs, function, output, parallelism, late, on_error))


class IntervalJoin:
    """Two keyed streams to join; ``between`` gives the interval."""

    def __init__(self, connected: ConnectedStream) -> None:
        self._connected = connected

    def between(
        self, lower: timedelta, upper: timedelta, *, lower_exclusive: bool = False, upper_exclusive: bool = False
    ) -> IntervalJoined:
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


class IntervalJoined:
    """The pairs of an interval join."""

    def __init__(self, connected: ConnectedStream, interval: Interval) -> None:
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
    ) -> ProcessedStream:
        """Run a ``ProcessJoinFunction`` on every pair.

        Args:
            function: An instance. It is shipped to the workers.
            output: Columns of the main output, as Spark DDL.
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


class CoGroupedStreams:
    """Two keyed streams to join or to co-group; ``window`` gives the windows."""

    def __init__(self, connected: ConnectedStream, kind: type) -> None:
        self._connected = connected
        self._kind = kind

    def window(
        self,
        windows: WindowAssigner | SessionWindows | GlobalWindows,
        *,
        allowed_lateness: timedelta = timedelta(0),
        trigger: Trigger = _AT_END,
    ) -> WindowedCoGroup:
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
            _require_event_time(self._connected.inputs, "a join or co-group over windows")
        windowed = partial(CoGroupWindowFunction, windows=windows, allowed_lateness=allowed_lateness, trigger=trigger)
        return WindowedCoGroup(self._connected, self._kind, windowed)


class WindowedCoGroup:
    """The windows of a join or a co-group."""

    def __init__(self, connected: ConnectedStream, kind: type, windowed: Callable[..., CoGroupWindowFunction]) -> None:
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
    ) -> ProcessedStream:
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


class OutputStream(Stream):
    """One output of an operator: a stream that a sink can publish."""

    def __init__(self, job: Job, plan: OperatorPlan, tag: str, schema: str) -> None:
        super().__init__(job, (Output(plan.uid, tag, schema),))
        self._plan = plan
        self._binding = (tag, schema)

    def sink(self, name: str, sink: Sink) -> None:
        """Publish this output's committed rows in a sink.

        Args:
            name: The sink's identity, under which it records its published epochs.
            sink: The sink that publishes the rows.

        Raises:
            JobDefinitionError: The name is taken or unusable.

        """
        _check_name("sink", name, [binding.name for binding in self._job.sinks])
        self._plan.sinks.append(SinkBinding(name, *self._binding, sink))


class ProcessedStream(OutputStream):
    """The main output of an operator."""

    def __init__(self, job: Job, plan: OperatorPlan) -> None:
        super().__init__(job, plan, MAIN_OUTPUT, row_ddl(plan.output))

    def side_output(self, tag: OutputTag) -> OutputStream:
        """Return the rows that the function sends to ``tag``.

        Args:
            tag: A tag that the function uses. Its ``value_type`` gives the columns.

        """
        return OutputStream(self._job, self._plan, tag.name, tag.value_type)


def _processed(job: Job, plan: OperatorPlan) -> ProcessedStream:
    try:
        keyed = bool(plan.first.key_columns)
        require_fit(plan.function, keyed=keyed, broadcast=bool(plan.broadcast), two_inputs=plan.has_two_inputs)
        if plan.on_error is not None:
            check_on_error(plan.on_error, plan.function)
    except ConfigurationError as error:
        raise JobDefinitionError(f"operator {plan.uid!r}: {error}") from None
    _check_name("operator uid", plan.uid, [operator.uid for operator in job.operators])
    parse_row(row_ddl(plan.output))
    if plan.parallelism is not None and plan.parallelism < 1:
        raise JobDefinitionError(
            f"found parallelism={plan.parallelism} of operator {plan.uid!r}; expected 1 or more; omit it for the "
            "job's parallelism"
        )
    if plan.late is not None:
        _check_late(plan, plan.late)
    job.operators.append(plan)
    return ProcessedStream(job, plan)


def _require_event_time(inputs: Sequence[Input], where: str) -> None:
    origins = (origin for each in inputs for origin in each.origins)
    timeless = [origin.name for origin in origins if isinstance(origin, Source) and origin.event_time is None]
    if timeless:
        raise JobDefinitionError(
            f"found the source {timeless[0]!r} without event time in {where}; expected event time on both sides; "
            "name the column in source(…, event_time=…)"
        )


def _check_late(plan: OperatorPlan, late: OutputTag) -> None:
    if not isinstance(late, OutputTag):
        raise JobDefinitionError(
            f"found late={late!r} for operator {plan.uid!r}; expected an OutputTag; give OutputTag(name, columns)"
        )
    if plan.has_two_inputs:
        raise JobDefinitionError(
            f"found late={late.name!r} for operator {plan.uid!r} of two inputs; expected one input, whose columns the "
            "late records have; compare ctx.timestamp() with ctx.current_watermark() in the function, and call "
            "ctx.output()"
        )
    timeless = [each.name for each in plan.first.origins if isinstance(each, Source) and each.event_time is None]
    if timeless:
        raise JobDefinitionError(
            f"found late={late.name!r} for operator {plan.uid!r}, whose source {timeless[0]!r} has no event time; "
            "expected one, because lateness follows event time; name the column in source(…, event_time=…), "
            "or omit late"
        )
    parse_row(late.value_type)


def fetch_artifact(artifact: str, sha256: str | None, files: FileStore, directory: Path) -> Path:
    """Copy a job file into ``directory``, and return the path of the copy: later edits do not matter.

    With the SHA-256 that it was registered with, it is the copy in the job's store, and no other bytes are accepted.

    Raises:
        JobDefinitionError: The file does not exist, or is not the registered one.
        StorageError: Its store cannot be reached.

    """
    data = read_source(artifact) if sha256 is None else read_job_file(files, artifact, sha256)
    copy = directory / artifact.rpartition("/")[2]
    copy.write_bytes(data)
    return copy


def load_job(artifact: str | Path, settings: Mapping[str, str]) -> Job:
    """Run ``build(job)`` of a job file and return the job.

    Functions are shipped to the workers by value, because workers cannot import a job file.

    Args:
        artifact: The job file.
        settings: The job's settings as registered.

    Raises:
        JobDefinitionError: The file does not exist, has no ``build``, or describes a job that cannot run.

    """
    path = Path(artifact)
    if not path.is_file():
        raise JobDefinitionError(
            f"found no job file {path}; expected a Python file that defines build(job); register the job again"
        )
    module = _load_module(path)
    build = getattr(module, "build", None)
    if not callable(build):
        raise JobDefinitionError(f"found no build(job) in {path}; expected one; define it")
    return described(build, settings)


def described(build: Callable[[Job], object], settings: Mapping[str, str]) -> Job:
    """Return the job that ``build(job)`` describes.

    Raises:
        JobDefinitionError: The job cannot run.

    """
    job = Job(settings)
    build(job)
    return job.validated()


def _load_module(path: Path) -> ModuleType:
    name = f"{JOB_MODULE}{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _check_name(what: str, name: str, taken: Sequence[str]) -> None:
    if not _NAME.fullmatch(name):
        raise JobDefinitionError(
            f"found the {what} {name!r}; expected letters, digits, '_', '-' and '.', as in a file name; rename it"
        )
    if name in taken:
        raise JobDefinitionError(f"found the {what} {name!r} twice; expected each name once; rename one")


def _described(stream: object) -> str:
    kinds = {KeyedStream: "a keyed stream", Stream: "a stream without a key", ConnectedStream: "connected streams"}
    return next((text for kind, text in kinds.items() if isinstance(stream, kind)), repr(stream))
