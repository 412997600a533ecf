"""The job builder: what a job file's ``build(job)`` describes.

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

from statecore.errors import ConfigurationError, JobDefinitionError, MissingFileError
from statecore.functions import UserFunction
from statecore.model import MapStateDescriptor, OutputTag, parse_row
from statecore.runtime.messages import INTERNAL
from statecore.runtime.sinks import Sink
from statecore.snapshot.keyed_files import RESERVED
from statecore.state.process import MAIN_OUTPUT, fires_timers, require_fit
from statecore.storage import open_store, split_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Source:
    """A named input.

    Attributes:
        event_time: Column with the records' event time, or None.
        max_lateness: How far the watermark stays behind the newest event time.

    """

    name: str
    read: Callable[[SparkSession], DataFrame]
    event_time: str | None = None
    max_lateness: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an operator: a side output's tag name, or ``MAIN_OUTPUT``, and the schema of its rows."""

    uid: str
    tag: str
    schema: str


Input = Source | Output
"""Input of an operator."""


@dataclass(frozen=True, slots=True)
class SinkBinding:
    """A sink and its output: a side output's tag name, or ``MAIN_OUTPUT``."""

    name: str
    tag: str
    schema: str
    sink: Sink


@dataclass(frozen=True, slots=True)
class BroadcastInput:
    """Broadcast input of an operator.

    Attributes:
        order_by: Columns to sort each epoch's records by.
        states: The broadcast states that it is kept in.

    """

    input: Input
    order_by: tuple[str, ...]
    states: tuple[MapStateDescriptor, ...]


@dataclass(slots=True)
class OperatorPlan:
    """One operator: its inputs, key, function and outputs.

    Attributes:
        key_columns: None of them for an operator without a key.
        parallelism: Number of its subtasks; None for the job's.
        late: Takes late records of the main input instead of the function; None for none.

    """

    uid: str
    input: Input
    key_columns: tuple[str, ...]
    order_by: tuple[str, ...]
    broadcast: BroadcastInput | None
    function: UserFunction
    output: str
    parallelism: int | None = None
    late: OutputTag | None = None
    sinks: list[SinkBinding] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs."""
        return (self.input,) if self.broadcast is None else (self.input, self.broadcast.input)


class Job:
    """Collects the definition that ``build(job)`` makes.

    Args:
        settings: The job's settings, as registered in the catalog.

    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings: Mapping[str, str] = MappingProxyType(dict(settings or {}))
        self.sources: list[Source] = []
        self.operators: list[OperatorPlan] = []

    @property
    def sinks(self) -> list[SinkBinding]:
        """The sinks of all operators."""
        return [binding for operator in self.operators for binding in operator.sinks]

    @property
    def fires_timers(self) -> bool:
        """Whether a function does anything when a timer fires."""
        return any(fires_timers(operator.function) for operator in self.operators)

    def source(
        self,
        name: str,
        read: Callable[[SparkSession], DataFrame],
        event_time: str | None = None,
        max_lateness: timedelta | None = None,
    ) -> Stream:
        """Name an input.

        Args:
            name: Its identity in savepoints.
            read: Makes the streaming DataFrame from a session.
            event_time: Column of type timestamp with the records' event time; a record with null there has none.
            max_lateness: How far the watermark stays behind the newest event time; nothing by default.

        Raises:
            JobDefinitionError: The name is taken or not usable, or the lateness is negative or without event time.

        """
        _check_name("source", name, [source.name for source in self.sources])
        if max_lateness is not None and (event_time is None or max_lateness < timedelta(0)):
            raise JobDefinitionError(
                f"found max_lateness={max_lateness!r} and event_time={event_time!r} for source {name!r}; expected a "
                "timedelta that is not negative, with the event-time column named; name the column, or leave it out"
            )
        source = Source(name, read, event_time, max_lateness or timedelta(0))
        self.sources.append(source)
        return Stream(self, source)

    def validated(self) -> Job:
        """Return this job if it can run.

        Raises:
            JobDefinitionError: It cannot.

        """
        if not self.operators:
            raise JobDefinitionError(
                f"found {len(self.sources)} sources and no operator; expected one at least; "
                "call process(…) on a stream in build(job)"
            )
        read = {each.name for operator in self.operators for each in operator.inputs if isinstance(each, Source)}
        unread = [source.name for source in self.sources if source.name not in read]
        if unread:
            raise JobDefinitionError(
                f"found the sources {unread}, which no operator reads; expected every source to be read; "
                "leave them out, or process them"
            )
        return self


class Stream:
    """Records of a source, or an output of an operator."""

    def __init__(self, job: Job, stream_input: Input) -> None:
        self._job = job
        self._input = stream_input

    def key_by(self, *columns: str, order_by: Sequence[str] = ()) -> KeyedStream:
        """Partition by columns.

        Args:
            columns: Key columns.
            order_by: Columns to sort each epoch's records by before they are processed; without them there is no order.

        Raises:
            JobDefinitionError: No column, or one that state files use themselves.

        """
        if not columns:
            raise JobDefinitionError("found key_by() without columns; expected at least one; name the key columns")
        if len(set(columns)) < len(columns):
            raise JobDefinitionError(f"found the key columns {columns}; expected each once; leave the copies out")
        reserved = sorted((RESERVED | INTERNAL).intersection(columns))
        if reserved:
            raise JobDefinitionError(
                f"found the key columns {reserved}; expected other names, because these are used inside; "
                "rename the columns in the source"
            )
        return KeyedStream(self._job, self._input, columns, tuple(order_by))

    def broadcast(self, *states: MapStateDescriptor, order_by: Sequence[str] = ()) -> BroadcastStream:
        """Send every record to every subtask of the operator that connects this stream.

        Within an epoch, broadcast records come before the others.

        Args:
            states: The broadcast states that the function keeps them in.
            order_by: Columns to sort each epoch's records by: all subtasks must do the same in the same order.

        Raises:
            JobDefinitionError: No state, or something else than a map state's descriptor.

        """
        if not states or not all(isinstance(state, MapStateDescriptor) for state in states):
            raise JobDefinitionError(
                f"found broadcast{states!r}; expected one MapStateDescriptor at least; name the broadcast states"
            )
        return BroadcastStream(self._job, BroadcastInput(self._input, tuple(order_by), states))

    def connect(self, broadcast: BroadcastStream) -> ConnectedStream:
        """Process these records, without a key, beside broadcast ones."""
        return ConnectedStream(self._job, self._input, (), (), broadcast)

    def process(
        self,
        function: UserFunction,
        output: str,
        uid: str,
        *,
        parallelism: int | None = None,
        late: OutputTag | None = None,
    ) -> ProcessedStream:
        """Run a ``ProcessFunction`` over every record, without a key; see ``KeyedStream.process``."""
        return _processed(self._job, OperatorPlan(uid, self._input, (), (), None, function, output, parallelism, late))


class BroadcastStream:
    """Records for every subtask."""

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
        """Process these records beside broadcast ones."""
        return ConnectedStream(self._job, self._input, self._columns, self._order_by, broadcast)

    def process(
        self,
        function: UserFunction,
        output: str,
        uid: str,
        *,
        parallelism: int | None = None,
        late: OutputTag | None = None,
    ) -> ProcessedStream:
        """Run a ``KeyedProcessFunction`` over every record.

        Args:
            function: What to run.
            output: Schema of its main output, as Spark DDL.
            uid: Stable identity of the operator in savepoints.
            parallelism: Number of subtasks of this operator, which a rescale of the job leaves as it is; by default
                the job's.
            late: Side output, with the records' own columns, for those whose event time is at or behind the watermark:
                they go there and not to the function. Without it the function gets every record.

        Raises:
            JobDefinitionError: The function is none, the uid is taken or not usable, the parallelism is not positive,
                or the records that ``late`` asks for have no event time.
            UnsupportedTypeError: The output schema, or that of the late records, cannot be parsed.

        """
        order = self._order_by
        plan = OperatorPlan(uid, self._input, self._columns, order, None, function, output, parallelism, late)
        return _processed(self._job, plan)


class ConnectedStream:
    """Records beside those of a broadcast stream."""

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
        output: str,
        uid: str,
        *,
        parallelism: int | None = None,
        late: OutputTag | None = None,
    ) -> ProcessedStream:
        """Run a ``KeyedBroadcastProcessFunction``, or without a key a ``BroadcastProcessFunction``, over both streams.

        See ``KeyedStream.process``; broadcast records are never too late for it.
        """
        return _processed(self._job, OperatorPlan(uid, *self._plan, function, output, parallelism, late))


class OutputStream(Stream):
    """One output of an operator."""

    def __init__(self, job: Job, plan: OperatorPlan, tag: str, schema: str) -> None:
        super().__init__(job, Output(plan.uid, tag, schema))
        self._plan = plan
        self._binding = (tag, schema)

    def sink(self, name: str, sink: Sink) -> None:
        """Publish this output's committed rows in a sink.

        Raises:
            JobDefinitionError: The name is taken or not usable.

        """
        _check_name("sink", name, [binding.name for binding in self._job.sinks])
        self._plan.sinks.append(SinkBinding(name, *self._binding, sink))


class ProcessedStream(OutputStream):
    """The main output of an operator."""

    def __init__(self, job: Job, plan: OperatorPlan) -> None:
        super().__init__(job, plan, MAIN_OUTPUT, plan.output)

    def side_output(self, tag: OutputTag) -> OutputStream:
        """Return what the function sends to ``tag``: one column per field of its type."""
        return OutputStream(self._job, self._plan, tag.name, tag.value_type)


def _processed(job: Job, plan: OperatorPlan) -> ProcessedStream:
    try:
        require_fit(plan.function, keyed=bool(plan.key_columns), broadcast=plan.broadcast is not None)
    except ConfigurationError as error:
        raise JobDefinitionError(f"operator {plan.uid!r}: {error}") from None
    _check_name("operator uid", plan.uid, [operator.uid for operator in job.operators])
    parse_row(plan.output)
    if plan.parallelism is not None and plan.parallelism < 1:
        raise JobDefinitionError(
            f"found parallelism={plan.parallelism} of operator {plan.uid!r}; expected 1 or more; leave it out for the "
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
            "expected one, because late is what event time has passed; name the column in source(…, event_time=…), "
            "or leave late out"
        )
    parse_row(late.value_type)


def fetch_artifact(artifact: str, directory: Path) -> Path:
    """Return a job file that can be loaded: itself, or a copy in ``directory`` of one that lies in a store.

    Raises:
        JobDefinitionError: There is no such file.
        StorageError: Its store cannot be reached.

    """
    if "://" not in artifact:
        return Path(artifact)
    folder, name = split_url(artifact)
    try:
        data = open_store(folder).read(name)
    except MissingFileError:
        raise JobDefinitionError(
            f"found no job file {artifact}; expected a Python file that defines build(job); register the job again"
        ) from None
    copy = directory / name
    copy.write_bytes(data)
    return copy


def load_job(artifact: str | Path, settings: Mapping[str, str]) -> Job:
    """Run ``build(job)`` of a job file.

    Functions are shipped to the workers by value: a job file is no module that they could import.

    Raises:
        JobDefinitionError: There is no such file, it has no ``build``, or it describes no job that can run.

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
    job = Job(settings)
    build(job)
    return job.validated()


def _load_module(path: Path) -> ModuleType:
    name = f"statecore_job_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
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
