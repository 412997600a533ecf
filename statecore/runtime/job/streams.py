"""Streams, from which ``build(job)`` makes operators and their sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from statecore.arguments import require, require_callable, require_names
from statecore.errors import JobDefinitionError
from statecore.functions import UserFunction
from statecore.joins import CoGroupFunction, JoinFunction
from statecore.model import MapStateDescriptor, OutputTag, parse_row, row_ddl
from statecore.model.keys import check_renames
from statecore.runtime.job.checks import check_name, check_operator, require_event_time
from statecore.runtime.job.joined import CoGroupedStreams, IntervalJoin
from statecore.runtime.job.places import calling_line
from statecore.runtime.job.plans import BroadcastInput, Input, JobPlan, OperatorPlan, Origin, Output, SinkBinding
from statecore.runtime.messages import INTERNAL
from statecore.runtime.sinks import Sink
from statecore.runtime.sinks.base import ChecksColumns
from statecore.runtime.transforms import ByFunction, Filter, Select, Transformation, WithColumn
from statecore.snapshot.keyed_files import RESERVED
from statecore.state.process import MAIN_OUTPUT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Stream:
    """Records without a key: a source, an output of an operator, or a union of such streams."""

    def __init__(self, job: JobPlan, origins: tuple[Origin, ...]) -> None:
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

        Raises:
            JobDefinitionError: It is something else.

        """
        _require_expression("condition", condition)
        return self._transformed(Filter(condition, line=calling_line()))

    def select(self, *columns: str) -> Stream:
        """Replace the columns.

        Args:
            columns: Names or SQL, as in ``"upper(country) AS country"``.

        Raises:
            JobDefinitionError: No column is given, or one is no string.

        """
        require_names("columns", columns, "each column as a string")
        if not columns:
            raise JobDefinitionError("found select() without columns; expected at least one; name the columns")
        return self._transformed(Select(columns, line=calling_line()))

    def with_column(self, name: str, expression: str | Callable[[DataFrame], Column]) -> Stream:
        """Add or replace a column.

        Args:
            name: The column.
            expression: SQL, as in ``"price * quantity"``, or a function that makes a column of a DataFrame.

        Raises:
            JobDefinitionError: The name is no string, or the expression is something else.

        """
        require("name", name, str, "the name of a column")
        _require_expression("expression", expression)
        return self._transformed(WithColumn(name, expression, line=calling_line()))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Transform the DataFrame of each epoch: any stateless Spark SQL, joins with tables included.

        The function is called in every epoch, so it reads the current content of a table. After another operator, rows
        have further columns, ``__statecore_…``, which the result must keep: select by ``stream.select`` instead. There,
        the rows are also computed before, and held until the epoch's end; the other transformations cost less.

        Args:
            function: Returns a DataFrame that depends on single records and on tables. A stateful result, or one that
                would differ in a replay, ends the driver with an error.

        Raises:
            JobDefinitionError: It is no function.

        """
        require_callable("function", function, "a function of a DataFrame")
        return self._transformed(ByFunction(function, line=calling_line()))

    def _transformed(self, transformation: Transformation) -> Stream:
        origins = (replace(each, transformations=(*each.transformations, transformation)) for each in self._origins)
        return Stream(self._job, tuple(origins))

    def key_by(
        self, *columns: str, order_by: Sequence[str] = (), renames: Mapping[str, str] | None = None
    ) -> KeyedStream:
        """Partition the records by columns.

        Restored state must have been written under the same columns, in the same order: a job that swaps them, or
        names another one, does not start.

        Args:
            columns: Key columns. A key is always a tuple of their values.
            order_by: Columns that each epoch's records are sorted by; without them records have no order.
            renames: Old name of a key column → its present name, to restore state that was written under the old one.
                Declare only a column that still has the same values. It may stay after the rename.

        Returns:
            The same records, with a key.

        Raises:
            JobDefinitionError: No column is given, one is given twice, is no string, or has a name that state files
                reserve; ``order_by`` is no sequence of columns; or a rename does not lead from a former column to one
                of these.

        """
        require_names("columns", columns, "each column as a string")
        _require_order(order_by)
        require("renames", renames or {}, Mapping, "a mapping of old names to present ones")
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
        check_renames(columns, renames or {})
        order, names = tuple(order_by), dict(renames or {})
        return KeyedStream(self._job, Input(self._origins, columns, order, key_renames=names, line=calling_line()))

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
            JobDefinitionError: No state is given, one is not a ``MapStateDescriptor``, or ``order_by`` is no sequence
                of columns.

        """
        _require_order(order_by)
        if not states or not all(isinstance(state, MapStateDescriptor) for state in states):
            raise JobDefinitionError(
                f"found broadcast{states!r}; expected at least one MapStateDescriptor; name the broadcast states"
            )
        return BroadcastStream(BroadcastInput(self._origins, (), tuple(order_by), states, line=calling_line()))

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
        """Refuse: only an operator's output can be published.

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

    def __init__(self, job: JobPlan, stream_input: Input) -> None:
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

    def interval_join(self, other: KeyedStream) -> IntervalJoin[ProcessedStream]:
        """Join these records, on the left, with those of another keyed stream that are near in event time.

        Raises:
            JobDefinitionError: The other stream has no key, or one of another number of columns; or a source of one of
                the two streams has no event time.

        """
        connected = self.connect(other)
        require_event_time(connected.inputs, "an interval join")
        return IntervalJoin(connected)

    def co_group(self, other: KeyedStream) -> CoGroupedStreams[ProcessedStream]:
        """Group these records, on the left, with those of another keyed stream, by key and window.

        Raises:
            JobDefinitionError: The other stream has no key, or one of another number of columns.

        """
        return CoGroupedStreams(self.connect(other), CoGroupFunction)

    def join(self, other: KeyedStream) -> CoGroupedStreams[ProcessedStream]:
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

    def __init__(self, job: JobPlan, first: Input, connected: Input) -> None:
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


class OutputStream(Stream):
    """One output of an operator: a stream that a sink can publish."""

    def __init__(self, job: JobPlan, plan: OperatorPlan, tag: str, schema: str) -> None:
        super().__init__(job, (Output(plan.uid, tag, schema),))
        self._plan = plan
        self._binding = (tag, schema)

    def sink(self, name: str, sink: Sink) -> None:
        """Publish this output's committed rows in a sink.

        Args:
            name: The sink's identity, under which it records its published epochs.
            sink: The sink that publishes the rows.

        Raises:
            JobDefinitionError: The name is taken or unusable, the sink is none, or it does not take these columns.

        """
        require("sink", sink, Sink, "a sink, such as ParquetSink(path)")
        check_name("sink", name, [binding.name for binding in self._job.sinks])
        binding = SinkBinding(name, *self._binding, sink)
        if isinstance(sink, ChecksColumns):
            sink.check_columns(parse_row(binding.schema))
        self._plan.sinks.append(binding)


class ProcessedStream(OutputStream):
    """The main output of an operator."""

    def __init__(self, job: JobPlan, plan: OperatorPlan) -> None:
        super().__init__(job, plan, MAIN_OUTPUT, row_ddl(plan.output))

    def side_output(self, tag: OutputTag) -> OutputStream:
        """Return the rows that the function sends to ``tag``.

        Args:
            tag: A tag that the function uses. Its ``value_type`` gives the columns.

        Raises:
            JobDefinitionError: It is no tag.

        """
        require("tag", tag, OutputTag, "an OutputTag(name, columns)")
        return OutputStream(self._job, self._plan, tag.name, tag.value_type)


def _processed(job: JobPlan, plan: OperatorPlan) -> ProcessedStream:
    plan.line = calling_line()
    check_operator(plan, [operator.uid for operator in job.operators])
    job.operators.append(plan)
    return ProcessedStream(job, plan)


def _require_expression(argument: str, expression: object) -> None:
    if not isinstance(expression, str):
        require_callable(argument, expression, "SQL, or a function that makes a column of a DataFrame")


def _require_order(order_by: Sequence[str]) -> None:
    require_names("order_by", order_by, 'a sequence of columns, as in order_by=["at"]')


def _described(stream: object) -> str:
    kinds = {KeyedStream: "a keyed stream", Stream: "a stream without a key", ConnectedStream: "connected streams"}
    return next((text for kind, text in kinds.items() if isinstance(stream, kind)), repr(stream))
