"""An epoch as one Spark plan: from the micro-batch through all operators to their commits.

::

    micro-batch ─► operator ─► operator ─► commits          each arrow: placed, repartitioned, joined to the anchor
                       └─────► operator ─► commits

Rows that cross from one operator to the next carry the attempt that produced them. An operator reports the attempts
that it read from, and the driver commits only when these are the attempts in the same commit. Commits travel with the
rows and reach the end exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from statecore.model import Field
from statecore.runtime.epoch.anchor import Anchor
from statecore.runtime.epoch.observed import Observed
from statecore.runtime.epoch.plan_check import require_one_source
from statecore.runtime.epoch.reading import read_source
from statecore.runtime.epoch.transforming import transformed_columns, transformed_output, transformed_source
from statecore.runtime.job import Input, OperatorPlan, Origin, Output, Source
from statecore.runtime.job.places import at_line
from statecore.runtime.messages import (
    ATTEMPT,
    BROADCAST,
    COMMIT,
    KEY_GROUP,
    MAIN,
    MEMBER,
    PHASE,
    SECOND,
    SLOT,
    SOURCE,
    SUBTASK,
    TIMESTAMP,
    OperatorSpec,
    StreamRead,
    crossing_column,
)
from statecore.runtime.placement import column, key_group_of, subtask_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Runner = Callable[[OperatorPlan, "DataFrame"], "DataFrame"]
"""Runs an operator's subtasks over their rows; returns crossing rows and commits."""

# Columns of rows from another operator.
_PASSED = (COMMIT, ATTEMPT, PHASE, TIMESTAMP)


def read_sources(spark: SparkSession, sources: Sequence[Source], ticks: DataFrame | None) -> DataFrame:
    """Return one streaming DataFrame with the records of all sources.

    Args:
        spark: The session.
        sources: The job's sources.
        ticks: A stream without rows that is read last, or None.

    Raises:
        JobDefinitionError: A source reads no stream or several, or keeps state of Spark's own.

    """
    frames = []
    for source in sources:
        with at_line(source.line):
            frames.append(read_source(source, spark))
            require_one_source(frames[-1], source.name)
    if len(frames) == 1:
        (df,) = frames
        return df if ticks is None else df.union(_without_rows(ticks, df))
    tagged = [_tagged(df, index) for index, df in enumerate(frames)]
    if ticks is not None:
        tagged.append(_without_rows(ticks, tagged[0]))
    return _stacked(tagged)


def source_columns(records: DataFrame, sources: Sequence[Source]) -> list[str]:
    """Return the columns of each source, as Spark DDL; ``records`` is what ``read_sources`` returned."""
    every = [records] if len(sources) == 1 else [_fields(records, index) for index in range(len(sources))]
    return [", ".join(f"{field.name} {field.dataType.simpleString()}" for field in each.schema) for each in every]


def _without_rows(ticks: DataFrame, like: DataFrame) -> DataFrame:
    return ticks.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in like.schema))


def _tagged(df: DataFrame, index: int) -> DataFrame:
    record = F.struct(*(column(name) for name in df.columns))
    return df.select(F.lit(index).alias(SOURCE), record.alias(_source_column(index)))


def _fields(df: DataFrame, index: int) -> DataFrame:
    return df.select(f"{_source_column(index)}.*")


def _source_column(index: int) -> str:
    return f"{SOURCE}_{index}"


class Dataflow:
    """The plan of one epoch.

    Args:
        df: The micro-batch, as ``read_sources`` returns it.
        sources: The job's sources.
        operators: The job's operators, each after those that it reads from.
        anchors: Per operator uid the layout of its subtasks.
        max_parallelism: Number of key groups.
        columns: The columns of streams, as far as they are known; filled here, for the following epochs.

    """

    def __init__(
        self,
        df: DataFrame,
        sources: Sequence[Source],
        operators: Sequence[OperatorPlan],
        anchors: Mapping[str, Anchor],
        max_parallelism: int,
        columns: dict[Origin, tuple[Field, ...]],
    ) -> None:
        self._operators = operators
        self._sources = [source.name for source in sources]
        self._columns = columns
        self._anchors = anchors
        self._max_parallelism = max_parallelism
        self._persisted: list[DataFrame] = []
        uses = Counter(_uid(each) for operator in operators for each in operator.origins)
        self._uses = uses
        # An input with two readers is computed once: a second run might produce its rows in another order.
        self._df = self._shared(df) if uses[None] > 1 else df
        self._crossing: dict[str, DataFrame] = {}
        self._observed: dict[str, Observed] = {}

    def columns_of(self, origin: Origin) -> tuple[Field, ...]:
        """Return the columns of a stream.

        Raises:
            JobDefinitionError: Its transformations are refused.

        """
        if origin not in self._columns:
            self._columns[origin] = transformed_columns(lambda: self._sample(origin), origin)
        return self._columns[origin]

    def observed(self) -> dict[str, StreamRead]:
        """Return the figures of the transformed sources, after the epoch has run."""
        return {name: observed.read() for name, observed in self._observed.items()}

    def _sample(self, origin: Origin) -> DataFrame:
        """Return rows with the columns of a stream before its transformations."""
        if isinstance(origin, Source):
            return self._records(origin)
        carried = f"{ATTEMPT} bigint, {PHASE} int, {TIMESTAMP} bigint"
        return self._df.sparkSession.createDataFrame([], f"{origin.schema}, {carried}")

    def _records(self, source: Source) -> DataFrame:
        """Return a source's records of the epoch."""
        if len(self._sources) == 1:
            return self._df
        index = self._sources.index(source.name)
        return _fields(self._df.where(F.col(SOURCE) == index), index)

    def commits(self, run: Runner, specs: Mapping[str, OperatorSpec]) -> DataFrame:
        """Return the commits of all operators' subtasks.

        Args:
            run: Runs an operator.
            specs: Per operator uid the message to its subtasks.

        """
        # Only now: the specs have refused a missing event-time column.
        self._observed = self._observe()
        passed_on: set[str] = set()
        ends = []
        for operator in self._operators:
            done = run(operator, self._input(operator, specs, passed_on))
            consumers = self._uses[operator.uid]
            if consumers == 0:
                ends.append(done)
            else:
                self._crossing[operator.uid] = self._computed(done) if consumers > 1 else done
        return _stacked(ends)

    def _observe(self) -> dict[str, Observed]:
        origins = (origin for operator in self._operators for origin in operator.origins)
        transformed = {each.name: each for each in origins if isinstance(each, Source) and each.transformations}
        return {name: Observed(self._records(source), source) for name, source in transformed.items()}

    def close(self) -> None:
        """Unpersist inputs with two readers."""
        for df in self._persisted:
            df.unpersist()

    def _computed(self, df: DataFrame) -> DataFrame:
        """Run an operator now and persist its output: otherwise two readers might run it as two attempts."""
        shared = self._shared(df)
        shared.count()
        return shared

    def _shared(self, df: DataFrame) -> DataFrame:
        shared = df.persist()
        self._persisted.append(shared)
        return shared

    def _input(self, operator: OperatorPlan, specs: Mapping[str, OperatorSpec], passed_on: set[str]) -> DataFrame:
        anchor = self._anchors[operator.uid]
        inputs = [
            self._union(read, spec.column, specs, passed_on, anchor)
            for read, spec in zip(operator.inputs, specs[operator.uid].inputs, strict=True)
        ]
        joined = anchor.join(_stacked(inputs))
        order = self._order(operator, joined.columns)
        return joined.sortWithinPartitions(*order) if order else joined

    def _union(
        self, read: Input, into: str, specs: Mapping[str, OperatorSpec], passed_on: set[str], anchor: Anchor
    ) -> DataFrame:
        """Return the rows of an input; where it is a union, with the number of each row's stream."""
        streams = [self._rows(origin, into, specs, passed_on, read.key_columns, anchor) for origin in read.origins]
        if len(streams) == 1:
            return streams[0]
        return _stacked([each.withColumn(MEMBER, F.lit(number)) for number, each in enumerate(streams)])

    def _rows(
        self,
        read: Origin,
        into: str,
        specs: Mapping[str, OperatorSpec],
        passed_on: set[str],
        keys: Sequence[str],
        anchor: Anchor,
    ) -> DataFrame:
        """Return rows with the record in the column ``into``, and the slot of each row's target subtask.

        In one step where that is possible: each step on a DataFrame costs milliseconds, which small epochs notice.
        """
        if isinstance(read, Source):
            observed = self._observed.get(read.name)
            df = transformed_source(self._records(read) if observed is None else observed.rows, read)
            record = F.struct(*(column(name) for name in df.columns))
            if into == BROADCAST:
                return df.select(record.alias(into), F.explode(anchor.all_slots()).alias(SLOT))
            if keys:
                return df.select(record.alias(into), *anchor.placing(tuple(keys), self._max_parallelism))
            target = _any_subtask(df.schema.simpleString(), record, anchor.parallelism)
            return df.select(record.alias(into), anchor.slot_of(target).alias(SLOT))
        return self._crossed(read, into, specs[read.uid], passed_on, keys, anchor)

    def _crossed(
        self,
        read: Output,
        into: str,
        spec: OperatorSpec,
        passed_on: set[str],
        keys: Sequence[str],
        anchor: Anchor,
    ) -> DataFrame:
        name = crossing_column(spec, read.tag)
        df = self._crossing[read.uid]
        carries = read.uid not in passed_on
        passed_on.add(read.uid)
        is_commit = F.col(COMMIT).isNotNull()
        # A subtask's own commit carries its attempt. Every reader gets it: another attempt might give it no rows.
        df = df.where(F.col(name).isNotNull() | (is_commit if carries else F.col(ATTEMPT).isNotNull() & is_commit))
        df = transformed_output(df, name, read, self._computed)
        columns = [F.col(name).alias(into), *(F.col(each) for each in _PASSED)]
        if not carries:
            columns[1] = F.lit(None).cast("string").alias(COMMIT)
        home = (F.col(SUBTASK) % anchor.parallelism).cast("int")
        if into == BROADCAST:
            slots = F.when(is_commit, F.array(anchor.slot_of(home))).otherwise(anchor.all_slots())
            return df.select(*columns, F.explode(slots).alias(SLOT))
        if keys:
            group = key_group_of([F.col(name)[key] for key in keys], self._max_parallelism)
            columns.append(F.when(~is_commit, group).alias(KEY_GROUP))
            target = subtask_of(group, self._max_parallelism, anchor.parallelism)
        else:
            target = _any_subtask(df.schema[name].dataType.simpleString(), F.col(name), anchor.parallelism)
        return df.select(*columns, anchor.slot_of(F.when(is_commit, home).otherwise(target)).alias(SLOT))

    @staticmethod
    def _order(operator: OperatorPlan, columns: Sequence[str]) -> list[Column]:
        order = [F.coalesce(F.col(PHASE), F.lit(1))] if PHASE in columns else []
        if operator.merges_by_event_time:
            first, second = operator.first.order_by[0], operator.inputs[1].order_by[0]
            return [*order, F.coalesce(F.col(MAIN)[first], F.col(SECOND)[second]), *_by_input(operator)]
        return order + _by_input(operator)


def _by_input(operator: OperatorPlan) -> list[Column]:
    """Return the order of an operator's inputs, and that of each: broadcast, first, second."""
    first = [F.col(MAIN)[name] for name in operator.first.order_by]
    if operator.connected is None:
        return first
    column = BROADCAST if operator.broadcast else SECOND
    connected = [F.col(column)[name] for name in operator.connected.order_by]
    is_first = F.col(column).isNull()
    return [is_first, *connected, *first] if operator.broadcast else [~is_first, *first, *connected]


def _stacked(rows: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all, with the columns of all; also the fields of structs are matched by name."""
    union = rows[0]
    for each in rows[1:]:
        union = union.unionByName(each, allowMissingColumns=True)
    return union


def _any_subtask(schema: str, record: Column, parallelism: int) -> Column:
    """Return a subtask computed only from the record, so that every attempt sends it to the same one."""
    text = F.to_json(record) if "map<" in schema else record
    return F.pmod(F.xxhash64(text), F.lit(parallelism)).cast("int")


def _uid(read: Origin) -> str | None:
    """Return the uid of the operator that a stream comes from, or None for the micro-batch with all sources."""
    return read.uid if isinstance(read, Output) else None
