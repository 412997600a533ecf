"""The parts of a job: sources, operators with their inputs, and sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from statecore.functions import UserFunction
from statecore.model import MapStateDescriptor, OutputTag
from statecore.runtime.sinks import Sink
from statecore.runtime.transforms import Transformation
from statecore.state.process import fires_timers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Source:
    """A named input.

    Attributes:
        name: Its identity in savepoints.
        read: Creates the streaming DataFrame from a session.
        event_time: Column with the records' event time, or None.
        max_lateness: How far the watermark stays behind the newest event time.
        idle_after: Time without records after which the watermark of the job goes on without it; None for never.
        transformations: Transformations that this reader applies to the records, in order.
        line: The job file's line that adds it.

    """

    name: str
    read: Callable[[SparkSession], DataFrame]
    event_time: str | None = None
    max_lateness: timedelta = timedelta(0)
    idle_after: timedelta | None = None
    transformations: tuple[Transformation, ...] = ()
    line: str = field(default="", kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an operator.

    Attributes:
        uid: The operator.
        tag: Name of a side output's tag, or ``MAIN_OUTPUT``.
        schema: Schema of its rows, as Spark DDL.
        transformations: Transformations that this reader applies to the rows, in order.

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
        origins: The streams that its records come from; several for a union.
        key_columns: Empty without a key.
        order_by: Columns that each epoch's records are sorted by.
        key_renames: Old name of a key column → its present name.
        line: The job file's line that makes it an input.

    """

    origins: tuple[Origin, ...]
    key_columns: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    key_renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    line: str = field(default="", kw_only=True, compare=False)

    @property
    def is_ordered_by_event_time(self) -> bool:
        """Whether its records are sorted by the event time of its sources."""
        first = self.order_by[:1]
        return bool(first) and all(isinstance(each, Source) and first == (each.event_time,) for each in self.origins)


@dataclass(frozen=True, slots=True)
class BroadcastInput(Input):
    """The input that every subtask of an operator reads in full.

    Attributes:
        states: The broadcast states that the function keeps its records in.

    """

    states: tuple[MapStateDescriptor, ...] = ()


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


@dataclass(slots=True)
class OperatorPlan:
    """One operator: its inputs, function and outputs.

    Attributes:
        first: Its input, or the first of two.
        connected: The connected input: a second one, a broadcast one, or None.
        parallelism: Number of its subtasks; None for the job's.
        late: Side output for late records of the main input; None passes them to the function.
        on_error: Side output for records that the function fails on; None lets a failure end the epoch.
        sinks: What publishes its outputs.
        line: The job file's line that makes it.

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
    line: str = ""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The first input, and the connected one."""
        return (self.first,) if self.connected is None else (self.first, self.connected)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The streams that the records come from, input by input."""
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


class JobPlan:
    """All that a job consists of; ``build(job)`` fills it.

    Attributes:
        sources: Its sources.
        operators: Its operators, each with its sinks, in the order of their definition.

    """

    def __init__(self) -> None:
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
