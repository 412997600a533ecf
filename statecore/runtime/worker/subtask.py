"""The worker's side of an epoch: one subtask reads its records, runs the function and writes the changes.

Runs inside ``mapInArrow``. A subtask's files carry its attempt's token and count only when the epoch's manifest names
them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from statecore.errors import FunctionError, OutputTypeError
from statecore.functions import BatchProcessFunction
from statecore.model import DistributionMode, OutputTag, StateKind
from statecore.release import RELEASE
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.messages import (
    AFTER_WATERMARK,
    ANCHOR,
    BEFORE_WATERMARK,
    BROADCAST,
    KEY_GROUP,
    EpochSpec,
    OperatorSpec,
    SubtaskCommit,
)
from statecore.runtime.worker.acknowledging import acknowledge_now
from statecore.runtime.worker.cache import SubtaskStateLoader
from statecore.runtime.worker.crossing import CrossingRows
from statecore.runtime.worker.garbage_collection import rare_collections
from statecore.runtime.worker.heavy_keys import HeavyKeys
from statecore.runtime.worker.input import MERGED, Part, SubtaskInput
from statecore.runtime.worker.memory import worker_memory
from statecore.runtime.worker.outputs import Outputs
from statecore.runtime.worker.part_buffer import PartBuffer
from statecore.runtime.worker.releases import require_release_of_driver
from statecore.runtime.worker.writing import StateWriter
from statecore.snapshot.live_rows import count_rows, count_state
from statecore.snapshot.manifest import FileKind, KeyedFile, StateSchema, TtlRef
from statecore.state import HeapKeyedStateBackend, ProcessOperator
from statecore.state.contexts import NO_WATERMARK
from statecore.state.dead_letters import DeadLetters
from statecore.state.operator_state import HeldOperatorState
from statecore.state.process import ONE_INPUT, TWO_INPUTS, can_combine


class EpochClock:
    """The epoch's time, the same on every worker and on replay; in ms since 1970-01-01 UTC."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time."""
        return self._now_ms


def subtask_runner(
    spec: OperatorSpec, epoch: EpochSpec
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that ``mapInArrow`` runs in every subtask.

    It yields the outputs that other operators read, forwarded commits of operators, and last the subtask's own commit.
    """
    release = RELEASE

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        acknowledge_now()
        require_release_of_driver(release)
        yield from _run(spec, epoch, batches)

    return run


def _run(spec: OperatorSpec, epoch: EpochSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        # Only a partition without a marker row is empty; the driver misses its commit and fails the epoch.
        return
    with rare_collections():
        attempt = _Attempt(spec, epoch, first.column(ANCHOR)[0].as_py())
        with attempt.naming_failures():
            yield from attempt.process(chain((first,), batches))
            fault_point(FaultPoint.BEFORE_CHANGELOG, epoch.epoch)
            yield attempt.commit()


class _Attempt:
    """One attempt of a subtask at an epoch; its token is in the name of every file it writes."""

    def __init__(self, spec: OperatorSpec, epoch: EpochSpec, subtask: int) -> None:
        self._spec, self._epoch, self._subtask = spec, epoch, subtask
        self._number = secrets.randbits(63)
        self._started = time.monotonic()
        clock = EpochClock(epoch.now_ms)
        self._loader = SubtaskStateLoader(spec, epoch, subtask, clock)
        self._keyed = self._loader.keyed() if spec.key_fields else None
        self._operator, self._old_files = self._loader.operator()
        self._outputs = Outputs(spec.sinks)
        self._crossing = CrossingRows(spec, subtask, self._number)
        self._input = SubtaskInput(spec, epoch.watermark_ms)
        self._buffer = PartBuffer(spec)
        self._heavy = None if self._keyed is None else HeavyKeys(spec.key_fields, self._keyed)
        self._combines = can_combine(spec.function) and not (spec.ordered or spec.late or spec.on_error)
        self._advanced = False
        self._waited_s = 0.0
        self._process = ProcessOperator(
            spec.function,
            self._keyed,
            self._operator,
            _WithCrossing(self._outputs, self._crossing) if spec.crossings else self._outputs,
            clock=clock,
            subtask=subtask,
            parallelism=len(epoch.subtasks),
            broadcast=spec.broadcast,
            watermark=NO_WATERMARK if epoch.watermark_before_ms is None else epoch.watermark_before_ms,
            late=spec.late,
            dead_letters=None if spec.on_error is None else DeadLetters(spec.on_error, spec.uid, epoch.epoch),
            two_inputs=spec.has_two_inputs,
        )
        self._loaded = self._processed = time.monotonic()

    @contextmanager
    def naming_failures(self) -> Iterator[None]:
        """Add place and input to a failure of the function; other errors pass unchanged.

        Raises:
            FunctionError: The function failed, or an output does not fit.

        """
        try:
            yield
        except Exception as error:
            place = f"uid {self._spec.uid!r}, subtask {self._subtask}, epoch {self._epoch.epoch}"
            if not isinstance(error, OutputTypeError):
                if not self._process.failed_on:
                    raise
                # Outputs are checked in bulk, so the record that filled the buffer is not necessarily the cause.
                place += f", {self._process.failed_on}"
            notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
            named = FunctionError(f"{place}: {type(error).__name__}: {error}{notes}")
            # Spark drops the cause when it simplifies a traceback, and with it the line of the job file.
            raise named.with_traceback(error.__traceback__) from error

    def process(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the function over the epoch's rows; yield the rows for other operators."""
        spec, process = self._spec, self._process
        try:
            process.open(restored=self._loader.is_restored(), allow_non_restored_state=spec.allow_non_restored_state)
            if not spec.reads_operator:
                yield from self._advance()
            for batch in self._waiting_for(batches):
                passed = self._input.commits(batch)
                if passed:
                    yield self._crossing.passed_on(passed)
                for part in self._buffer.add(self._input.parts(batch)):
                    yield from self._process_part(part)
            for part in self._buffer.flush():
                yield from self._process_part(part)
            if not self._advanced:
                yield from self._advance()
            process.snapshot(self._epoch.epoch)
        finally:
            if self._heavy is not None:
                self._heavy.calls.end()
            process.close()
        self._processed = time.monotonic()

    def commit(self) -> pa.RecordBatch:
        """Write the changes, keep the state in memory, and return the commit."""
        spec, epoch, keyed = self._spec, self._epoch, self._keyed
        writer = StateWriter(spec, epoch, self._subtask)
        moves_in = epoch.foreign_store is not None
        replaces = moves_in or (keyed is not None and keyed.rewrite_needed)
        keyed_files: list[KeyedFile] = []
        if keyed is not None:
            keyed_files = writer.keyed(keyed, FileKind.BASE if replaces else FileKind.CHANGELOG)
            keyed.clear_changes()
        changed = self._operator.changed()
        held = self._operator.detach()
        if moves_in:
            changed = sorted(held)
        # An unchanged state keeps its files, so elements of a union that all subtasks hold are not duplicated.
        kept = [] if moves_in else [item for item in self._old_files if item.state not in changed]
        written = writer.operator({name: held[name] for name in changed})
        operator_files = tuple(sorted([*kept, *written], key=lambda item: item.state))
        operator_token = self._loader.start.operator_token
        if changed or not operator_token:
            operator_token = writer.token
        staged = self._outputs.stage(f"{epoch.lineage}-{epoch.epoch}", f"{self._subtask:05d}-{writer.token}")
        memory, read = worker_memory(), self._input
        commit = SubtaskCommit(
            uid=spec.uid,
            subtask=self._subtask,
            attempt=self._number,
            read_from=tuple(sorted(read.read_from)),
            keyed=tuple(keyed_files),
            replaces=replaces,
            operator=operator_files if changed or moves_in else None,
            operator_token=operator_token,
            states=tuple(_schemas(keyed, held)),
            outputs=tuple(staged),
            read=read.read,
            next_event_timer_ms=self._process.next_event_timer_ms,
            next_processing_timer_ms=self._process.next_processing_timer_ms,
            key_groups=0 if keyed is None else len(keyed.key_groups),
            cached_key_groups=self._loader.cached_key_groups,
            state_rows={} if keyed is None else _state_rows(keyed, maps=epoch.counts_state or epoch.restores),
            key_group_rows=_counted(keyed) if keyed is not None and epoch.counts_state else None,
            heavy_keys=() if self._heavy is None else self._heavy.key_shares(),
            heavy_key_groups=() if self._heavy is None else self._heavy.key_group_shares(),
            load_ms=_ms(self._loaded - self._started),
            read_ms=_ms(self._waited_s),
            process_ms=_ms(self._processed - self._loaded - self._waited_s),
            write_ms=_ms(time.monotonic() - self._processed),
            memory_used=memory.used,
            memory_limit=memory.limit,
            host_share=memory.host_share,
            metrics=self._process.metrics.figures(),
        )
        if keyed is not None:
            token = writer.token if keyed_files else ""
            groups = self._loader.start.key_groups
            tokens = dict.fromkeys(range(groups[0], groups[1] + 1), token) if token or replaces else None
            self._loader.keep_keyed(keyed, tokens)
        self._loader.keep_operator(held, operator_token, operator_files)
        fault_point(FaultPoint.CHANGELOG_WRITTEN, epoch.epoch)
        return self._crossing.own_commit(msgspec.json.encode(commit).decode())

    def _waiting_for(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; add up the time until each of them is there."""
        while True:
            asked = time.monotonic()
            batch = next(batches, None)
            self._waited_s += time.monotonic() - asked
            if batch is None:
                return
            yield batch

    def _process_part(self, part: Part) -> Iterator[pa.RecordBatch]:
        if part.phase == AFTER_WATERMARK and not self._advanced:
            # All rows that other operators emitted before their watermark advanced have been processed.
            yield from self._advance()
        inputs = self._spec.inputs
        for each in inputs if part.input == MERGED else (inputs[part.input],):
            if self._heavy is not None and each.keys:
                self._heavy.rows.add(part.rows.column(each.column), each.keys, part.rows.column(KEY_GROUP))
        with self._calling():
            self._hand_over(part)
        yield from self._crossing.batches(part.phase)

    def _calling(self) -> AbstractContextManager[None]:
        """Return the context manager to call the function in."""
        return nullcontext() if self._heavy is None else self._heavy.calls.calling()

    def _hand_over(self, part: Part) -> None:
        """Give the records of a part to the function."""
        spec, process, read = self._spec, self._process, self._input
        if isinstance(spec.function, BatchProcessFunction):
            process.process_batch(*read.batch(part))
        elif self._combines:
            rows, keys, times = read.batch(part)
            assert keys is not None
            process.process_combined(rows, keys, times)
        elif part.input == MERGED:
            for number, records in read.merged_records(part):
                process.process(records, TWO_INPUTS[number])
        elif spec.inputs[part.input].column == BROADCAST:
            for _, _, value, timestamp in read.records(part):
                process.process_broadcast(value, timestamp)
        else:
            process.process(read.records(part), TWO_INPUTS[part.input] if spec.has_two_inputs else ONE_INPUT)

    def _advance(self) -> Iterator[pa.RecordBatch]:
        """Advance the watermark and fire timers.

        This completes the previous epoch, whose event time over all subtasks is known only now.
        """
        self._advanced = True
        with self._calling():
            if self._epoch.watermark_ms is not None:
                self._process.advance_watermark(self._epoch.watermark_ms)
            self._process.fire_processing_time()
        yield from self._crossing.batches(BEFORE_WATERMARK)


class _WithCrossing:
    """Sends every output to sinks and to other operators."""

    def __init__(self, outputs: Outputs, crossing: CrossingRows) -> None:
        self._outputs, self._crossing = outputs, crossing

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        self._outputs.emit(tag, value, timestamp_ms)
        self._crossing.emit(tag, value, timestamp_ms)

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        outputs = list(values)
        self._outputs.emit_all(outputs, timestamp_ms)
        self._crossing.emit_all(outputs, timestamp_ms)

    def emit_batch(self, tag: OutputTag | None, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        self._outputs.emit_batch(tag, rows, timestamps_ms)
        self._crossing.emit_batch(tag, rows, timestamps_ms)


def _schemas(keyed: HeapKeyedStateBackend | None, operator: Mapping[str, HeldOperatorState]) -> Iterator[StateSchema]:
    for name, table in sorted(keyed.tables.items() if keyed is not None else ()):
        yield StateSchema(
            name=name,
            scope="keyed",
            kind=table.kind,
            type=table.type,
            stamped=table.stamped,
            windowed=table.windowed,
            ttl=None if table.ttl is None else TtlRef.of(table.ttl),
        )
    for name, state in operator.items():
        kind = StateKind.MAP if state.mode is DistributionMode.BROADCAST else StateKind.LIST
        yield StateSchema(
            name=name, scope="operator", kind=kind, type=state.type, strategy=state.strategy, mode=state.mode
        )


def _state_rows(keyed: HeapKeyedStateBackend, *, maps: bool) -> dict[str, int]:
    return {
        name: count_state(table) + sum(columns.count(name) for columns in keyed.columns.values())
        for name, table in keyed.tables.items()
        if maps or table.kind is not StateKind.MAP
    }


def _counted(keyed: HeapKeyedStateBackend) -> dict[str, tuple[int, ...]]:
    owned = range(keyed.key_groups.start, keyed.key_groups.end + 1)
    return {
        name: tuple(
            count_rows(table, group) + (keyed.columns[group].count(name) if group in keyed.columns else 0)
            for group in owned
        )
        for name, table in keyed.tables.items()
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
