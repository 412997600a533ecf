"""Harnesses that run a function without Spark, for its author's tests.

::

    harness = KeyedOperatorHarness(CountPerKey())
    harness.process(Order(k="a", amount=3), timestamp_ms=1_000)
    harness.watermark(60_000)
    assert harness.output == [("a", 3)]

    old = [KeyedOperatorHarness(CountPerKey(), parallelism=2, subtask=i) for i in range(2)]
    …
    new = KeyedOperatorHarness(CountPerKey(), parallelism=3, subtask=0, restore_from=[h.snapshot() for h in old])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import pyarrow as pa

from statecore.errors import ConfigurationError, MaxParallelismError
from statecore.functions import BatchProcessFunction, UserFunction
from statecore.model import (
    DistributionMode,
    MapStateDescriptor,
    OperatorStateHandle,
    OutputTag,
    StatePartitions,
    key_group_for,
    key_group_range,
    parse_row,
    redistribute_operator_state,
    row_ddl,
)
from statecore.model.arrow_values import from_arrow
from statecore.model.keys import KeyColumns
from statecore.model.metrics import MetricFigure
from statecore.state import HeapKeyedStateBackend, KeyedSnapshot, OperatorStateBackend, ProcessOperator
from statecore.state.batches import BatchKeys
from statecore.state.contexts import NO_WATERMARK
from statecore.state.dead_letters import DeadLetters, check_on_error
from statecore.state.harness_keys import HarnessKey, KeyOf
from statecore.state.operator_state import OperatorStateSnapshot
from statecore.state.output_schema import cast_to_schema, convert_to_schema
from statecore.state.process import MAIN_OUTPUT, ONE_INPUT, TWO_INPUTS
from statecore.state.tables import split_scope

__all__ = [
    "BatchOperatorHarness",
    "BroadcastOperatorHarness",
    "HarnessSnapshot",
    "KeyedOperatorHarness",
    "ManualClock",
    "TwoInputOperatorHarness",
    "physical",
]


def __dir__() -> list[str]:
    """Return the public names, for people who look what there is."""
    return __all__


class ManualClock:
    """A clock that only moves when it is set or advanced.

    Args:
        now_ms: Milliseconds since 1970-01-01 UTC.

    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time."""
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Set the time; it may go back."""
        self._now_ms = now_ms

    def advance(self, ms: int) -> None:
        """Advance the time."""
        self._now_ms += ms


def physical(backend: HeapKeyedStateBackend, name: str) -> dict[Any, Any]:
    """Return the stored form of a keyed state, expired rows included.

    Returns:
        Per key tuple, or (key tuple, window) for state of a window: the value or accumulator; a list of elements; a
        dict of entries. With a time to live every value, element and entry is a cell (value, timestamp in ms).

    """
    backend.settle()
    table = backend.tables.get(name)
    if table is None:
        return {}
    rows = ((split_scope(scope), stored) for group in table.copied_groups().values() for scope, stored in group.items())
    return {key if namespace is None else (key, namespace): stored for (key, namespace), stored in rows}


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """State of one subtask, for ``restore_from``.

    Attributes:
        subtask, parallelism, max_parallelism: Those of the harness that took it.
        watermark: The watermark, in ms.
        now_ms: The processing time, in ms.
        keys: Per input the columns of its key as far as the harness knew them; None for a key of unknown columns.

    """

    subtask: int
    parallelism: int
    max_parallelism: int
    watermark: int
    now_ms: int
    keyed: KeyedSnapshot | None
    operator: Mapping[str, OperatorStateSnapshot]
    keys: tuple[KeyColumns | None, ...] = ()


class _Outputs:
    """Collects a function's outputs; refuses rows that do not fit their schema or tag, as a job does."""

    def __init__(self, schema: str | type | None) -> None:
        self._schema = None if schema is None else parse_row(row_ddl(schema))
        self._values: dict[str, list[Any]] = {}

    def of(self, tag: str) -> list[Any]:
        return self._values.setdefault(tag, [])

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        convert_to_schema([value], tag.fields, _purpose(tag))
        self.of(tag.name).append(value)

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        for value in values:
            if self._schema is not None:
                convert_to_schema([value], self._schema, _MAIN)
            self.of(MAIN_OUTPUT).append(value)

    def emit_batch(self, tag: OutputTag | None, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        if tag is not None:
            rows = cast_to_schema(rows, tag.fields, _purpose(tag))
        elif self._schema is not None:
            rows = cast_to_schema(rows, self._schema, _MAIN)
        self.of(MAIN_OUTPUT if tag is None else tag.name).extend(from_arrow(rows.to_struct_array()))


_MAIN = "for the main output"


def _purpose(tag: OutputTag) -> str:
    return f"for side output {tag.name!r}"


class _Options(TypedDict, total=False):
    key_types: Sequence[str] | None
    renames: Mapping[str, str] | None
    allow_non_restored_state: bool
    late: OutputTag | None
    on_error: OutputTag | None
    output: str | type | None


class _Harness:
    _broadcast: tuple[MapStateDescriptor, ...] = ()
    _two_inputs = False
    _second_key: tuple[tuple[KeyOf | None, Mapping[str, str] | None], ...] = ()

    def __init__(
        self,
        function: UserFunction,
        key: KeyOf | None = lambda v: (v.k,),
        max_parallelism: int = 128,
        parallelism: int = 1,
        subtask: int = 0,
        restore_from: Iterable[HarnessSnapshot] | HarnessSnapshot = (),
        *,
        key_types: Sequence[str] | None = None,
        renames: Mapping[str, str] | None = None,
        allow_non_restored_state: bool = False,
        late: OutputTag | None = None,
        on_error: OutputTag | None = None,
        output: str | type | None = None,
    ) -> None:
        self.clock = ManualClock()
        self._function = function
        self.operator_backend = OperatorStateBackend()
        self._key = HarnessKey(type(function).__name__, ((key, renames), *self._second_key), key_types)
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._subtask = subtask
        self._outputs = _Outputs(output)
        self._epoch = 0
        own = key_group_range(max_parallelism, parallelism, subtask)
        self._keyed = HeapKeyedStateBackend(max_parallelism, own, self.clock) if self._key.is_there else None
        snapshots = _checked_snapshots(restore_from, max_parallelism)
        watermark = self._restore(snapshots) if snapshots else NO_WATERMARK
        self._letters = None
        if on_error is not None:
            check_on_error(on_error, function)
            self._letters = DeadLetters(on_error, type(function).__name__, self._epoch)
        self._operator = ProcessOperator(
            function,
            self._keyed,
            self.operator_backend,
            self._outputs,
            clock=self.clock,
            subtask=subtask,
            parallelism=parallelism,
            broadcast=self._broadcast,
            watermark=watermark,
            late=late,
            dead_letters=self._letters,
            two_inputs=self._two_inputs,
        )
        with self._naming():
            self._operator.open(restored=bool(snapshots), allow_non_restored_state=allow_non_restored_state)

    @property
    def keyed_backend(self) -> HeapKeyedStateBackend:
        """Keyed state of the subtask, for ``physical``.

        Raises:
            ConfigurationError: The function has no keys.

        """
        if self._keyed is None:
            raise ConfigurationError(
                "found keyed state requested of a harness without keys; expected one with key=…; give the harness a key"
            )
        return self._keyed

    @property
    def output(self) -> list[Any]:
        """All outputs so far."""
        return self._outputs.of(MAIN_OUTPUT)

    @property
    def metrics(self) -> dict[str, MetricFigure]:
        """The function's metrics so far, by name."""
        return {figure.name: figure for figure in self._operator.metrics.figures()}

    def side_output(self, tag: OutputTag) -> list[Any]:
        """Return all rows of a side output so far."""
        return self._outputs.of(tag.name)

    def process(self, value: Any, timestamp_ms: int | None = None) -> None:
        """Push a record.

        Args:
            value: The argument of ``process_element``.
            timestamp_ms: Its event time.

        Raises:
            ConfigurationError: ``key`` did not return a tuple.
            StateError: Its key belongs to another subtask.
            StateMigrationError: The types of its key are not those of the keys before it.

        """
        if isinstance(self._function, BatchProcessFunction):
            raise ConfigurationError(
                f"found a single record for {type(self._function).__name__}; expected a function over records, since "
                "this one takes batches; use BatchOperatorHarness and its process_batch"
            )
        self._push(value, timestamp_ms, ONE_INPUT)

    def watermark(self, timestamp_ms: int) -> None:
        """Advance event time and fire the timers that it reaches."""
        with self._naming():
            self._operator.advance_watermark(timestamp_ms)

    def set_processing_time(self, timestamp_ms: int) -> None:
        """Set the epoch's time, which TTL also follows, and fire the timers that it reaches."""
        self.clock.set(timestamp_ms)
        with self._naming():
            self._operator.fire_processing_time()

    def snapshot(self) -> HarnessSnapshot:
        """Take a snapshot; later writes do not change it."""
        with self._naming():
            self._operator.snapshot(self._epoch)
        self._epoch += 1
        if self._letters is not None:
            self._letters.epoch = self._epoch
        return HarnessSnapshot(
            self._subtask,
            self._parallelism,
            self._max_parallelism,
            self._operator.watermark,
            self.clock.now_ms(),
            None if self._keyed is None else self._keyed.snapshot(),
            self.operator_backend.snapshot(),
            self._key.columns,
        )

    def close(self) -> None:
        """End the function."""
        with self._naming():
            self._operator.close()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Add a note to a function's error: where the function failed, and on what."""
        self._operator.failed_on = ""
        try:
            yield
        except Exception as error:
            if self._operator.failed_on:
                error.add_note(f"subtask {self._subtask}, epoch {self._epoch}, {self._operator.failed_on}")
            raise

    def _push(self, value: Any, timestamp_ms: int | None, method: str) -> None:
        key, key_group = self._key.place(value, int(method == TWO_INPUTS[1]), self._max_parallelism)
        with self._naming():
            self._operator.process([(key, key_group, value, timestamp_ms)], method)

    def _restore(self, snapshots: Sequence[HarnessSnapshot]) -> int:
        for taken in snapshots:
            self._key.restore(taken.keys)
        # Time continues from the snapshot: restored state may carry its timestamps.
        self.clock.set(max(taken.now_ms for taken in snapshots))
        if self._keyed is not None:
            self._keyed.restore([taken.keyed for taken in snapshots if taken.keyed is not None])
        self.operator_backend.restore(_operator_share(snapshots, self._parallelism, self._subtask))
        return min(taken.watermark for taken in snapshots)


class KeyedOperatorHarness(_Harness):
    """Runs one subtask of a function on a keyed stream; ``key=None`` runs a ``ProcessFunction``.

    Args:
        function: The function; the object lives as long as its harness.
        key: Returns a record's key as a tuple; or the key's columns, as in ``key_by``: restored state is then
            checked for their names and order, too.
        max_parallelism: Number of key groups.
        parallelism: Number of subtasks.
        subtask: Index of this subtask.
        restore_from: Snapshots of the old subtasks, of any parallelism; a missing subtask had no state.
        key_types: Spark DDL per key field; by default derived from the Python values of the keys.
        renames: Old name of a key column → its present name, as in ``key_by(…, renames=…)`` of a job.
        allow_non_restored_state: Whether the function may leave restored state unregistered.
        late: Side output for records at or behind the watermark, as in ``process(…, late=…)`` of a job.
        on_error: Side output for records that the function fails on, as in ``process(…, on_error=…)`` of a job; their
            uid is the name of the function's class.
        output: Schema of the main output, as in ``process(…, output=…)`` of a job; None accepts any output.

    Raises:
        ConfigurationError: The function does not fit the stream, or the snapshots are not those of one set of subtasks.
        MaxParallelismError: The snapshots have another number of key groups.
        StateMigrationError: The restored state does not fit the function, or was written under another key.

    """


class BroadcastOperatorHarness(_Harness):
    """Runs one subtask of a function with broadcast state, on a keyed stream when ``key`` is given.

    Args:
        function: The function to run.
        broadcast: The broadcast states that the function may use.
        key: Returns a record's key as a tuple, or the key's columns; None for a stream without keys.

    The other arguments are those of ``KeyedOperatorHarness``.

    Raises:
        ConfigurationError: ``broadcast`` is not a list of descriptors; or as for ``KeyedOperatorHarness``.
        MaxParallelismError, StateMigrationError: As for ``KeyedOperatorHarness``.

    """

    def __init__(
        self,
        function: UserFunction,
        broadcast: Sequence[MapStateDescriptor],
        key: KeyOf | None = None,
        max_parallelism: int = 128,
        parallelism: int = 1,
        subtask: int = 0,
        restore_from: Iterable[HarnessSnapshot] | HarnessSnapshot = (),
        **options: Unpack[_Options],
    ) -> None:
        self._broadcast = _checked_broadcast(broadcast)
        super().__init__(function, key, max_parallelism, parallelism, subtask, restore_from, **options)

    def process_broadcast(self, value: Any, timestamp_ms: int | None = None) -> None:
        """Push a record of the broadcast stream; every subtask gets it."""
        with self._naming():
            self._operator.process_broadcast(value, timestamp_ms)


class TwoInputOperatorHarness(_Harness):
    """Runs one subtask of a function on two connected streams; ``key=None`` runs a ``CoProcessFunction``.

    Args:
        function: The function to run.
        key: Returns the key of a record of the first stream as a tuple, or the key's columns; None for streams without
            keys.
        key2: Likewise, of the second stream; by default ``key``, with its ``renames``.
        renames2: As ``renames``, of ``key2``.

    The other arguments are those of ``KeyedOperatorHarness``; a job takes no ``late`` for two streams.

    Raises:
        ConfigurationError, MaxParallelismError, StateMigrationError: As for ``KeyedOperatorHarness``.

    """

    _two_inputs = True

    def __init__(
        self,
        function: UserFunction,
        key: KeyOf | None = lambda v: (v.k,),
        key2: KeyOf | None = None,
        max_parallelism: int = 128,
        parallelism: int = 1,
        subtask: int = 0,
        restore_from: Iterable[HarnessSnapshot] | HarnessSnapshot = (),
        *,
        renames2: Mapping[str, str] | None = None,
        **options: Unpack[_Options],
    ) -> None:
        second = (key, options.get("renames")) if key is None or key2 is None else (key2, renames2)
        self._second_key = (second,)
        super().__init__(function, key, max_parallelism, parallelism, subtask, restore_from, **options)

    def process1(self, value: Any, timestamp_ms: int | None = None) -> None:
        """Push a record of the first stream; arguments and errors are those of ``KeyedOperatorHarness.process``."""
        self._push(value, timestamp_ms, TWO_INPUTS[0])

    def process2(self, value: Any, timestamp_ms: int | None = None) -> None:
        """Push a record of the second stream; arguments and errors are those of ``KeyedOperatorHarness.process``."""
        self._push(value, timestamp_ms, TWO_INPUTS[1])


class BatchOperatorHarness(_Harness):
    """Runs one subtask of a ``BatchProcessFunction``; ``key=()`` runs it on a stream without keys.

    Outputs are tuples, one for each row.

    Args:
        function: The function to run.
        key: The key's columns.

    The other arguments are those of ``KeyedOperatorHarness``.

    Raises:
        ConfigurationError, MaxParallelismError, StateMigrationError: As for ``KeyedOperatorHarness``.

    """

    def __init__(
        self,
        function: BatchProcessFunction,
        key: Sequence[str] = ("k",),
        max_parallelism: int = 128,
        parallelism: int = 1,
        subtask: int = 0,
        restore_from: Iterable[HarnessSnapshot] | HarnessSnapshot = (),
        **options: Unpack[_Options],
    ) -> None:
        self._columns = list(key)
        super().__init__(function, key, max_parallelism, parallelism, subtask, restore_from, **options)

    def process_batch(self, batch: pa.RecordBatch, timestamps_ms: Sequence[int | None] | None = None) -> None:
        """Push records.

        Args:
            batch: The batch for ``process_batch``.
            timestamps_ms: The event time of each record; None for a record without one.

        Raises:
            StateError: A key belongs to another subtask.
            StateMigrationError: The types of a key are not those of the keys before it.

        """
        if batch.num_rows:
            times = None if timestamps_ms is None else pa.array(timestamps_ms, pa.int64())
            keys = self._keys(batch.select(self._columns))
            with self._naming():
                self._operator.process_batch(batch, keys, times)

    def _keys(self, fields: pa.RecordBatch) -> BatchKeys | None:
        if not self._columns:
            return None
        rows = list(zip(*map(from_arrow, fields.columns), strict=True))
        types = self._key.types_of(rows)
        groups = [key_group_for(row, types, self._max_parallelism) for row in rows]
        return BatchKeys.of(fields, types, pa.array(groups))


def _checked_broadcast(broadcast: Sequence[MapStateDescriptor]) -> tuple[MapStateDescriptor, ...]:
    declared = tuple(broadcast) if isinstance(broadcast, Iterable) else ()
    if not declared or not all(isinstance(each, MapStateDescriptor) for each in declared):
        raise ConfigurationError(
            f"found broadcast={broadcast!r}; expected a list of MapStateDescriptors; put the descriptor into a list"
        )
    return declared


def _checked_snapshots(
    restore_from: Iterable[HarnessSnapshot] | HarnessSnapshot, max_parallelism: int
) -> list[HarnessSnapshot]:
    given = [restore_from] if isinstance(restore_from, HarnessSnapshot) else restore_from
    snapshots = list(given) if isinstance(given, Iterable) else [given]
    strange = [taken for taken in snapshots if not isinstance(taken, HarnessSnapshot)]
    if strange:
        raise ConfigurationError(
            f"found {strange[0]!r} in restore_from; expected the result of a harness's snapshot(); give one or "
            "several of these"
        )
    other = {taken.max_parallelism for taken in snapshots} - {max_parallelism}
    if other:
        raise MaxParallelismError(
            f"found snapshots of max parallelism {sorted(other)}; expected {max_parallelism}; give the "
            "harness the same: max parallelism cannot change by reference, only by rewriting a savepoint"
        )
    parallelisms = sorted({taken.parallelism for taken in snapshots})
    if len(parallelisms) > 1:
        raise ConfigurationError(
            f"found snapshots of parallelism {parallelisms} in restore_from; expected one; give those of the subtasks "
            "of one run"
        )
    subtasks = [taken.subtask for taken in snapshots]
    twice = sorted({subtask for subtask in subtasks if subtasks.count(subtask) > 1})
    if twice:
        raise ConfigurationError(
            f"found several snapshots of the subtasks {twice} in restore_from; expected one of each; remove the "
            "older ones"
        )
    return sorted(snapshots, key=lambda taken: taken.subtask)


def _operator_share(
    snapshots: Sequence[HarnessSnapshot], parallelism: int, subtask: int
) -> Iterator[Mapping[str, OperatorStateSnapshot]]:
    """Yield one new subtask's share of the old operator state, in order."""
    previous: list[list[OperatorStateHandle]] = [[] for _ in range(snapshots[0].parallelism)]
    taken_from = {}
    strategies: dict[str, str] = {}
    for taken in snapshots:
        path = f"subtask-{taken.subtask}"
        taken_from[path] = taken.operator
        states = {
            name: StatePartitions(state.mode, tuple(range(len(state.elements))))
            for name, state in taken.operator.items()
        }
        split = {name: state for name, state in taken.operator.items() if state.mode is DistributionMode.SPLIT}
        strategies.update({name: state.strategy for name, state in split.items()})
        previous[taken.subtask].append(OperatorStateHandle(path, states))
    for handle in redistribute_operator_state(previous, parallelism, strategies=strategies)[subtask]:
        held = taken_from[handle.path]
        yield {
            name: replace(held[name], elements=tuple(held[name].elements[offset] for offset in partitions.offsets))
            for name, partitions in handle.states.items()
        }
