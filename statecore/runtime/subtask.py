"""The worker's side of an epoch: one subtask takes its records, runs the function, writes what changed.

Runs inside ``mapInArrow``. What a subtask writes carries its attempt's token and counts only when the epoch's manifest
names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat

import msgspec
import pyarrow as pa

from statecore.model import DistributionMode, StateKind, key_encoder
from statecore.model.values import row_class
from statecore.runtime.cache import SubtaskStateLoader
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.memory import worker_memory
from statecore.runtime.messages import (
    ANCHOR,
    INTERNAL,
    KEY_GROUP,
    SUBTASK,
    EpochSpec,
    OperatorSpec,
    SubtaskCommit,
)
from statecore.runtime.outputs import Outputs
from statecore.runtime.state_writer import StateWriter
from statecore.snapshot.arrow_values import from_arrow
from statecore.snapshot.manifest import FileKind, StateSchema, TtlRef
from statecore.state import HeapKeyedStateBackend, ProcessOperator
from statecore.state.operator import HeldOperatorState
from statecore.state.process import Record


class _EpochClock:
    """The epoch's time, the same on every worker and on replay."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def subtask_runner(
    spec: OperatorSpec, epoch: EpochSpec
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that ``mapInArrow`` runs in every subtask; its one output row is the subtask's commit."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        commit = _run(spec, epoch, batches)
        if commit is not None:
            yield pa.RecordBatch.from_pydict({"commit": [msgspec.json.encode(commit).decode()]})

    return run


def _run(spec: OperatorSpec, epoch: EpochSpec, batches: Iterator[pa.RecordBatch]) -> SubtaskCommit | None:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        # Only a partition without marker row is empty; the driver misses its commit and fails the epoch.
        return None
    subtask = first.column(ANCHOR)[0].as_py()
    clock = _EpochClock(epoch.now_ms)
    started = time.monotonic()
    loader = SubtaskStateLoader(spec, epoch, subtask, clock)
    keyed = loader.keyed()
    operator, old_files = loader.operator()
    outputs = Outputs(spec.sinks)
    process = ProcessOperator(
        spec.function, keyed, operator, outputs.emit, clock=clock, subtask=subtask, parallelism=len(epoch.subtasks)
    )
    loaded = time.monotonic()
    rows = _Counter()
    try:
        process.open(restored=loader.is_restored(), allow_non_restored_state=spec.allow_non_restored_state)
        # The epoch before ends here: only now is it known how far event time went in all subtasks.
        if epoch.watermark_ms is not None:
            process.advance_watermark(epoch.watermark_ms)
        process.fire_processing_time()
        process.process(rows.count(_records(spec, first, batches)))
        process.snapshot(epoch.epoch)
    finally:
        process.close()
    processed = time.monotonic()
    fault_point(FaultPoint.BEFORE_CHANGELOG, epoch.epoch)
    writer = StateWriter(spec, epoch, subtask)
    moves_in = epoch.foreign_store is not None
    replaces = moves_in or keyed.rewrite_needed
    keyed_files = writer.keyed(keyed, FileKind.BASE if replaces else FileKind.CHANGELOG)
    keyed.clear_changes()
    changed = operator.changed()
    held = operator.detach()
    if moves_in:
        changed = sorted(held)
    # A state that did not change keeps its files: elements of a union that all subtasks hold stay one and the same.
    kept = [] if moves_in else [item for item in old_files if item.state not in changed]
    written = writer.operator({name: held[name] for name in changed})
    operator_files = tuple(sorted([*kept, *written], key=lambda item: item.state))
    operator_token = epoch.subtasks[subtask].operator_token
    if changed or not operator_token:
        operator_token = writer.token
    staged = outputs.stage(f"{epoch.lineage}-{epoch.epoch}", f"{subtask:05d}-{writer.token}")
    tokens = _versions(epoch, subtask, writer.token if keyed_files else "", replaces)
    memory = worker_memory()
    commit = SubtaskCommit(
        subtask=subtask,
        keyed=tuple(keyed_files),
        replaces=replaces,
        operator=operator_files if changed or moves_in else None,
        operator_token=operator_token,
        states=tuple(_schemas(keyed, held)),
        outputs=tuple(staged),
        rows=rows.value,
        max_event_time_ms=rows.max_event_time_ms,
        cached_key_groups=loader.cached_key_groups,
        load_ms=_ms(loaded - started),
        process_ms=_ms(processed - loaded),
        write_ms=_ms(time.monotonic() - processed),
        memory_used=memory.used,
        memory_limit=memory.limit,
    )
    loader.keep_keyed(keyed, tokens)
    loader.keep_operator(held, operator_token, operator_files)
    fault_point(FaultPoint.CHANGELOG_WRITTEN, epoch.epoch)
    return commit


def _records(spec: OperatorSpec, first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """Yield the records; the marker row of a subtask without records is no record."""
    names = [name for name in first.schema.names if name not in INTERNAL]
    make = row_class(tuple(names))
    key_positions = [names.index(field.name) for field in spec.key_fields]
    encode = key_encoder([field.type for field in spec.key_fields])
    for batch in _chain(first, rest):
        if batch.num_rows == 0 or batch.column(SUBTASK).null_count:
            continue
        columns = [from_arrow(batch.column(name)) for name in names]
        keys = map(encode, zip(*(columns[i] for i in key_positions), strict=True))
        values = map(make, zip(*columns, strict=True))
        times = _event_times_ms(batch, spec.event_time)
        yield from zip(keys, batch.column(KEY_GROUP).to_pylist(), values, times, strict=True)


def _event_times_ms(batch: pa.RecordBatch, column: str | None) -> Iterable[int | None]:
    if column is None:
        return repeat(None, batch.num_rows)
    # Arrow counts a timestamp in microseconds, and rounding down is right before 1970, too.
    return [None if us is None else us // 1000 for us in batch.column(column).cast(pa.int64()).to_pylist()]


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


class _Counter:
    def __init__(self) -> None:
        self.value = 0
        self.max_event_time_ms: int | None = None

    def count(self, records: Iterator[Record]) -> Iterator[Record]:
        newest: int | None = None
        for record in records:
            self.value += 1
            timestamp = record[3]
            if timestamp is not None and (newest is None or timestamp > newest):
                newest = timestamp
            yield record
        self.max_event_time_ms = newest


def _versions(epoch: EpochSpec, subtask: int, token: str, replaces: bool) -> dict[int, str]:
    """Return the version that each key group has after this attempt."""
    spec = epoch.subtasks[subtask]
    if token or replaces:
        start, end = spec.key_groups
        return dict.fromkeys(range(start, end + 1), token)
    return {key_group: head for start, end, head in spec.heads for key_group in range(start, end + 1)}


def _schemas(keyed: HeapKeyedStateBackend, operator: Mapping[str, HeldOperatorState]) -> Iterator[StateSchema]:
    for name, table in sorted(keyed.tables.items()):
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


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
