"""The job builder, with which a job file's ``build(job)`` describes a job.

::

    source ─► key_by ─► process(uid) ─► sink
                           │  └─► side_output ─► sink
    source ─► broadcast ───┘ connect         every output is a stream again: key_by, broadcast, process, sink
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from statecore.errors import ConfigurationError, JobDefinitionError
from statecore.functions import UserFunction
from statecore.model import MapStateDescriptor, OutputTag, parse_row, row_ddl
from statecore.runtime.messages import INTERNAL
from statecore.runtime.sinks import Sink
from statecore.snapshot.job_files import read_job_file, read_source
from statecore.snapshot.keyed_files import RESERVED
from statecore.state.dead_letters import check_on_error
from statecore.state.process import MAIN_OUTPUT, fires_timers, require_fit
from statecore.storage import FileStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB_MODULE = "statecore_job_"
"""Prefix of the module names of job files; the file's name follows."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Source:
    """A named input.

    Attributes:
        name: Its identity in savepoints.
        read: Creates the streaming DataFrame from a session.
        event_time: Column with the records' event time, or None.
        max_lateness: How far the watermark stays behind the newest event time.

    """

    name: str
    read: Callable[[SparkSession], DataFrame]
    event_time: str | None = None
    max_lateness: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an operator.

    Attributes:
        uid: The operator.
        tag: Name of a side output's tag, or ``MAIN_OUTPUT``.
        schema: Schema of its rows, as Spark DDL.

    """

    uid: str
    tag: str
    schema: str


Input = Source | Output
"""Input of an operator."""


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
class BroadcastInput:
    """The input that every subtask of an operator reads in full.

    Attributes:
        order_by: Columns that each epoch's records are sorted by.
        states: The broadcast states that the function keeps them in.

    """

    input: Input
    order_by: tuple[str, ...]
    states: tuple[MapStateDescriptor, ...]


@dataclass(slots=True)
class OperatorPlan:
    """One operator: its inputs, key, function and outputs.

    Attributes:
        key_columns: Empty for an operator without a key.
        parallelism: Number of its subtasks; None for the job's.
        late: Side output that takes late records of the main input; None passes them to the function.
        on_error: Side output that takes records that the function fails on; None lets a failure end the epoch.

    """

    uid: str
    input: Input
    key_columns: tuple[str, ...]
    order_by: tuple[str, ...]
    broadcast: BroadcastInput | None
    function: UserFunction
    output: str | type
    parallelism: int | None = None
    late: OutputTag | None = None
    on_error: OutputTag | None = None
    sinks: list[SinkBinding] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The main input, and the broadcast one if there is one."""
        return (self.input,) if self.broadcast is None else (self.input, self.broadcast.input)


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
    ) -> Stream:
        """Add a source.

        Args:
            name: Its identity in savepoints: letters, digits, ``_``, ``-`` and ``.``.
            read: Returns the streaming DataFrame, given a session. Limit what one epoch reads, for example with
                ``maxFilesPerTrigger``.
            event_time: Column of type timestamp with the records' event time. A null there means none.
            max_lateness: How far the watermark stays behind the newest event time; zero by default.

        Returns:
            The source's records.

        Raises:
            JobDefinitionError: The name is taken or unusable, or the lateness is negative or comes without event time.

        """
        _check_name("source", name, [source.name for source in self.sources])
        if max_lateness is not None and (event_time is None or max_lateness < timedelta(0)):
            raise JobDefinitionError(
                f"found max_lateness={max_lateness!r} and event_time={event_time!r} for source {name!r}; expected a "
                "timedelta that is not negative, and an event-time column; name the column, or omit max_lateness"
            )
        source = Source(name, read, event_time, max_lateness or timedelta(0))
        self.sources.append(source)
        return Stream(self, source)

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
        read = {each.name for operator in self.operators for each in operator.inputs if isinstance(each, Source)}
        unread = [source.name for source in self.sources if source.name not in read]
        if unread:
            raise JobDefinitionError(
                f"found the sources {unread}, which no operator reads; expected every source to be read; "
                "remove them, or process them"
            )
        return self


class Stream:
    """Records without a key: a source, or an output of an operator."""

    def __init__(self, job: Job, stream_input: Input) -> None:
        self._job = job
        self._input = stream_input

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
        return KeyedStream(self._job, self._input, columns, tuple(order_by))

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
        return BroadcastStream(self._job, BroadcastInput(self._input, tuple(order_by), states))

    def connect(self, broadcast: BroadcastStream) -> ConnectedStream:
        """Connect these records, which have no key, to a broadcast stream."""
        return ConnectedStream(self._job, self._input, (), (), broadcast)

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
        plan = OperatorPlan(uid, self._input, (), (), None, function, output, parallelism, late, on_error)
        return _processed(self._job, plan)


class BroadcastStream:
    """Records that every subtask gets; pass it to ``connect`` of another stream."""

    def __init__(self, job: Job, broadcast: BroadcastInput) -> None:
        self.job = job
        self.broadcast = broadcast


class KeyedStream:
    """Records partitioned by key."""

    def __init__(self, job: Job, stream_input: Input, columns: tuple[str, ...], order_by: tuple[str, ...]) -> None:
        self._job = job
        self._input = stream_input
        self._columns = columns
        self._order_by = order_by

    def connect(self, broadcast: BroadcastStream) -> ConnectedStream:
        """Connect these records to a broadcast stream."""
        return ConnectedStream(self._job, self._input, self._columns, self._order_by, broadcast)

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
        order = self._order_by
        plan = OperatorPlan(uid, self._input, self._columns, order, None, function, output, parallelism, late, on_error)
        return _processed(self._job, plan)


class ConnectedStream:
    """Records and the broadcast stream that they are connected to."""

    def __init__(
        self,
        job: Job,
        stream_input: Input,
        columns: tuple[str, ...],
        order_by: tuple[str, ...],
        broadcast: BroadcastStream,
    ) -> None:
        self._job = job
        self._plan = (stream_input, columns, order_by, broadcast.broadcast)

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
        """Run a ``KeyedBroadcastProcessFunction``, or without a key a ``BroadcastProcessFunction``, on both streams.

        Arguments and errors are those of ``KeyedStream.process``. Broadcast records are never late.
        """
        return _processed(self._job, OperatorPlan(uid, *self._plan, function, output, parallelism, late, on_error))


class OutputStream(Stream):
    """One output of an operator: a stream that a sink can publish."""

    def __init__(self, job: Job, plan: OperatorPlan, tag: str, schema: str) -> None:
        super().__init__(job, Output(plan.uid, tag, schema))
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
        require_fit(plan.function, keyed=bool(plan.key_columns), broadcast=plan.broadcast is not None)
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


def _check_late(plan: OperatorPlan, late: OutputTag) -> None:
    if not isinstance(late, OutputTag):
        raise JobDefinitionError(
            f"found late={late!r} for operator {plan.uid!r}; expected an OutputTag; give OutputTag(name, columns)"
        )
    if isinstance(plan.input, Source) and plan.input.event_time is None:
        raise JobDefinitionError(
            f"found late={late.name!r} for operator {plan.uid!r}, whose source {plan.input.name!r} has no event time; "
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
