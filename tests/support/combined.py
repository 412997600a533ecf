"""One subtask of a window function whose records are taken together, and the same one by one."""

from __future__ import annotations

import operator
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from statecore import (
    EventTimeSessionWindows,
    HeapKeyedStateBackend,
    KeyGroupRange,
    OperatorStateBackend,
    OutputTag,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    WindowFunction,
    key_group_for,
)
from statecore.model import key_encoder
from statecore.snapshot.keyed_files import decode_changelog, encode_changelog, key_schema
from statecore.snapshot.live_rows import apply_rows, changelog_table
from statecore.state import ProcessOperator
from statecore.state.batches import BatchKeys, records_by_key
from statecore.state.contexts import NO_WATERMARK, WINDOW_TIMERS
from statecore.state.dead_letters import DeadLetters
from statecore.state.heap import KeyedSnapshot
from statecore.testing import ManualClock, physical
from statecore.windows import WindowContext

MS = timedelta(milliseconds=1)
# Few, so that a key group holds several keys.
GROUPS = 2
Event = namedtuple("Event", ["k", "n", "at"])
KEY_SCHEMA = key_schema([("k", "string")])
LATE = OutputTag("late", "k string, n bigint, at bigint")


class Bounds(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        yield *key, *context.window, *elements


def sessions(
    reduce: Callable[[Any, Any], Any] = operator.add, value: Any = "n", lateness_ms: int = 0, **settings: Any
) -> WindowFunction:
    windows = settings.pop("windows", EventTimeSessionWindows(10 * MS))
    contents = settings.pop("contents", ReducingStateDescriptor("contents", "bigint", reduce=reduce))
    of, process = settings.pop("of", WindowFunction), settings.pop("process", None) or Bounds()
    made: WindowFunction = of(
        windows,
        contents,
        process=process,
        value=value,
        allowed_lateness=lateness_ms * MS,
        late_output=LATE,
        **settings,
    )
    return made


class Subtask:
    """Runs a function, on batches or record by record in the order that these are taken in."""

    def __init__(
        self,
        function: WindowFunction,
        restored: KeyedSnapshot | None = None,
        watermark: int = NO_WATERMARK,
        attached: HeapKeyedStateBackend | None = None,
        letters: DeadLetters | None = None,
    ) -> None:
        self.output: list[Any] = []
        self.late: list[Any] = []
        # What is emitted, with its event time.
        self.times: list[tuple[Any, int | None]] = []
        clock = ManualClock()
        self.backend = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), clock)
        if restored is not None:
            self.backend.restore(restored)
        if attached is not None:
            for group in range(GROUPS):
                self.backend.attach_key_group(group, attached.detach_key_group(group))
        self.operator = ProcessOperator(
            function,
            self.backend,
            OperatorStateBackend(),
            self,
            clock=clock,
            subtask=0,
            parallelism=1,
            watermark=watermark,
            dead_letters=letters,
        )
        self.operator.open(restored=restored is not None)

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        self.late.append(value)
        self.times.append((value, timestamp_ms))

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        values = list(values)
        self.output += values
        self.times += [(value, timestamp_ms) for value in values]

    def emit_batch(self, tag: Any, rows: Any, timestamps_ms: Any) -> None:
        raise NotImplementedError

    def take(self, events: list[Event], n: pa.DataType | None = None) -> None:
        """Process records together."""
        if events:
            self.operator.process_combined(*columns(events, n or pa.int64()))

    def take_one_by_one(self, events: list[Event]) -> None:
        """Process those whose own window has ended first, as they came, and then the others by time."""
        watermark = self.operator.watermark
        ended = [event for event in events if event.at + 9 <= watermark]
        others = sorted((event for event in events if event.at + 9 > watermark), key=lambda event: event.at)
        for part in (ended, others):
            if part:
                self.operator.process(records_by_key(*columns(part, pa.int64())))

    def restarted(self, function: WindowFunction, watermark: int, letters: DeadLetters | None = None) -> Subtask:
        """Return the subtask in its next epoch, which finds its state in memory."""
        later = Subtask(function, watermark=watermark, attached=self.backend, letters=letters)
        later.output, later.late = self.output, self.late
        return later

    def write(self, files: HeapKeyedStateBackend) -> None:
        """Bring what restores from files up to date."""
        for name, table in self.backend.tables.items():
            changes = changelog_table(self.backend, name, KEY_SCHEMA)
            if changes is not None:
                rows = decode_changelog(encode_changelog(changes), KeyGroupRange(0, GROUPS - 1))
                assert list(rows.key_groups) == sorted(rows.key_groups)
                apply_rows(files.restored_table(name, table.schema), rows, range(GROUPS), key_encoder(["string"]))
        self.backend.clear_changes()

    def left(self) -> list[Any]:
        """Return the sessions with their contents, wherever these lie."""
        return left_in(self.backend)


def left_in(backend: HeapKeyedStateBackend) -> list[Any]:
    """Return the sessions with their contents, wherever these lie; each has a timer."""
    contents, timers = physical(backend, "contents"), physical(backend, WINDOW_TIMERS)
    if contents and backend.tables["contents"].stamped:
        contents = {scope: value for scope, (value, _) in contents.items()}
    left = []
    for key, held in physical(backend, "__sessions").items():
        for start, end, *namespace in held:
            scope = key, tuple(namespace)
            assert timers.pop(scope)
            left.append((*key, start, end, contents.pop(scope)))
    return [*sorted(left), *contents, *timers]


def columns(events: list[Event], n: pa.DataType) -> tuple[pa.RecordBatch, BatchKeys, pa.Array]:
    rows = pa.RecordBatch.from_pydict(
        {
            "k": pa.array([event.k for event in events], pa.string()),
            "n": pa.array([event.n for event in events], n),
            "at": pa.array([event.at for event in events], pa.int64()),
        }
    )
    groups = pa.array([key_group_for((event.k,), ["string"], GROUPS) for event in events])
    return rows, BatchKeys.of(rows.select(["k"]), ["string"], groups), rows["at"]
