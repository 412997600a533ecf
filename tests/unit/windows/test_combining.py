"""Records of a batch, taken together, give what they give one by one."""

from __future__ import annotations

import dataclasses
import operator
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    CountTrigger,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    HeapKeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    OperatorStateBackend,
    OutputTag,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    StateTtlConfig,
    TumblingEventTimeWindows,
    WindowFunction,
    key_group_for,
)
from statecore.errors import ConfigurationError, StateError, StateTypeError
from statecore.state import ProcessOperator
from statecore.state.batches import BatchKeys, records_by_key
from statecore.state.contexts import NO_WATERMARK, WINDOW_TIMERS
from statecore.state.heap import KeyedSnapshot
from statecore.state.process import can_combine
from statecore.testing import ManualClock, physical
from statecore.windows import EventTimeTrigger, WindowContext
from tests.support.examples import examples

MS = timedelta(milliseconds=1)
GROUPS = 4
Event = namedtuple("Event", ["k", "n", "at"])
LATE = OutputTag("late", "k string, n bigint, at bigint")


class Bounds(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        yield *key, *context.window, *elements


def sessions(
    reduce: Callable[[Any, Any], Any] = operator.add, value: Any = "n", lateness_ms: int = 0, **settings: Any
) -> WindowFunction:
    windows = settings.pop("windows", EventTimeSessionWindows(10 * MS))
    contents = settings.pop("contents", ReducingStateDescriptor("contents", "bigint", reduce=reduce))
    return WindowFunction(
        windows,
        contents,
        process=Bounds(),
        value=value,
        allowed_lateness=lateness_ms * MS,
        late_output=LATE,
        **settings,
    )


class Subtask:
    """Runs a function, on batches or record by record in the order that these are taken in."""

    def __init__(
        self, function: WindowFunction, restored: KeyedSnapshot | None = None, watermark: int = NO_WATERMARK
    ) -> None:
        self.output: list[Any] = []
        self.late: list[Any] = []
        clock = ManualClock()
        self.backend = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), clock)
        if restored is not None:
            self.backend.restore(restored)
        self.operator = ProcessOperator(
            function,
            self.backend,
            OperatorStateBackend(),
            self,
            clock=clock,
            subtask=0,
            parallelism=1,
            watermark=watermark,
        )
        self.operator.open(restored=restored is not None)

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        self.late.append(value)

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        self.output += values

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

    def stored(self) -> dict[str, Any]:
        """Return all state, from now on without changes."""
        self.backend.clear_changes()
        return {name: table.copied_groups() for name, table in self.backend.tables.items()}

    def require_changes_noted(self, before: dict[str, Any]) -> None:
        """Require that the next changelog has every row that has changed since."""
        for name, table in self.backend.tables.items():
            for group in range(GROUPS):
                old, new = before.get(name, {}).get(group, {}), table.groups.get(group, {})
                changed = {scope for scope in old.keys() | new.keys() if old.get(scope) != new.get(scope)}
                assert changed <= table.changed.get(group, {}).keys(), name

    def left(self) -> list[Any]:
        """Return the sessions with their contents, wherever these lie."""
        contents = physical(self.backend, "contents")
        if self.backend.tables["contents"].stamped:
            contents = {scope: value for scope, (value, _) in contents.items()}
        return sorted(
            (*key, start, end, contents.pop((key, namespace)))
            for key, held in physical(self.backend, "__sessions").items()
            for start, end, *namespace in held
            for namespace in [tuple(namespace)]
        ) + list(contents)


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


# Times are relative to the watermark.
EVENTS = st.lists(
    st.builds(Event, st.sampled_from("ab"), st.integers(-9, 9), st.integers(-15, 40)), min_size=3, max_size=12
)


@examples(200)
@given(
    st.lists(st.tuples(EVENTS, st.integers(0, 40)), min_size=3, max_size=6),
    st.sampled_from([operator.add, min, max]),
    st.sampled_from([0, 0, 7, 30]),
    st.booleans(),
)
def test_a_batch_gives_what_its_records_give_one_by_one(
    epochs: list[tuple[list[Event], int]], reduce: Any, lateness_ms: int, expires: bool
) -> None:
    ttl = StateTtlConfig(timedelta(days=1)) if expires else None
    contents = ReducingStateDescriptor("contents", "bigint", reduce=reduce, ttl=ttl)
    together, one_by_one = (Subtask(sessions(contents=contents, lateness_ms=lateness_ms)) for _ in range(2))
    watermark = 0
    for relative, ahead in epochs:
        events = [event._replace(at=max(0, event.at + watermark)) for event in relative]
        before = together.stored()
        together.take(events)
        one_by_one.take_one_by_one(events)
        watermark += ahead
        for each in (together, one_by_one):
            each.operator.advance_watermark(watermark)
        assert sorted(together.output) == sorted(one_by_one.output)
        assert sorted(map(tuple, together.late)) == sorted(map(tuple, one_by_one.late))
        assert together.left() == one_by_one.left()
        together.require_changes_noted(before)
        assert all(together.backend.tables[name].windowed for name in ("contents", WINDOW_TIMERS) if events)


def test_a_session_that_waited_for_late_records_does_not_fire_again_once_that_wait_is_given_up() -> None:
    waiting = Subtask(sessions(lateness_ms=30))
    waiting.take([Event(key, 1, 0) for key in "ab"])
    waiting.operator.advance_watermark(9)
    assert waiting.output == [("a", 0, 10, 1), ("b", 0, 10, 1)]
    for take in (Subtask.take, Subtask.take_one_by_one):
        subtask = Subtask(sessions(), waiting.backend.snapshot(), watermark=9)
        take(subtask, [Event("a", 5, 8)])
        subtask.operator.advance_watermark(100)
        assert subtask.output == [("a", 0, 18, 6)]
        assert subtask.left() == []


def test_a_part_that_touches_a_session_or_bridges_two_makes_one_of_them() -> None:
    subtask = Subtask(sessions())
    for at in (0, 30, 10, 20):
        subtask.take([Event("a", 1, at)])
    assert subtask.left() == [("a", 0, 40, 4)]
    subtask.take([Event("a", 1, 60)])
    subtask.take([Event("a", 1, 45), Event("a", 1, 53)])
    assert subtask.left() == [("a", 0, 40, 4), ("a", 45, 70, 3)]


def test_sessions_that_overflow_over_several_batches_are_refused() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 2**63 - 2, 0)])
    subtask.take([Event("a", 1, 1)])
    with pytest.raises(StateTypeError, match="for state 'contents' under key"):
        subtask.take([Event("a", 1, 2)])
    assert list(physical(subtask.backend, "contents").values()) == [2**63 - 1]


def test_a_batch_with_a_key_of_another_subtask_is_refused() -> None:
    rows, keys, times = columns([Event("a", 5, 0)], pa.int64())
    elsewhere = dataclasses.replace(keys, key_groups=keys.key_groups + GROUPS)
    with pytest.raises(StateError, match="expected a key group of this subtask, 0 to 3"):
        Subtask(sessions()).operator.process_combined(rows, elsewhere, times)


def test_a_record_whose_window_has_just_ended_is_late_and_goes_to_the_late_output_as_it_is() -> None:
    subtask = Subtask(sessions())
    subtask.operator.advance_watermark(9)
    subtask.take([Event("a", 1, 0), Event("b", 2, 1)])
    assert subtask.late == [("a", 1, 0)]
    assert subtask.left() == [("b", 1, 11, 2)]


def test_only_sums_minima_and_maxima_of_a_column_of_integers_are_combined() -> None:
    assert can_combine(sessions())
    assert not can_combine(sessions(lambda a, b: a + b))
    assert not can_combine(sessions(value=lambda event: event.n))
    assert not can_combine(sessions(contents=ListStateDescriptor("contents", "bigint")))
    # The sum of doubles depends on the order of the additions.
    assert not can_combine(sessions(contents=ReducingStateDescriptor("contents", "double", reduce=operator.add)))
    assert not can_combine(sessions(trigger=CountTrigger(2)))
    assert not can_combine(sessions(trigger=PurgingTrigger(EventTimeTrigger())))
    assert not can_combine(sessions(windows=DynamicEventTimeSessionWindows(lambda event: 10)))
    assert not can_combine(sessions(windows=TumblingEventTimeWindows(10 * MS)))


def test_values_that_are_null_or_no_integers_are_added_one_by_one() -> None:
    nulls = Subtask(sessions())
    nulls.take([Event("a", 5, 0), Event("a", None, 1)])
    assert physical(nulls.backend, "contents") == {}
    with pytest.raises(StateTypeError, match=r"found 5.5 for state 'contents'"):
        Subtask(sessions()).take([Event("a", 5.5, 0)], n=pa.float64())


def test_a_sum_that_does_not_fit_is_refused() -> None:
    with pytest.raises(StateTypeError, match="for state 'contents' under key"):
        Subtask(sessions()).take([Event("a", 2**63 - 1, 0), Event("a", 1, 1)])


def test_a_record_without_event_time_is_refused() -> None:
    rows, keys, _ = columns([Event("a", 5, 0)], pa.int64())
    with pytest.raises(StateError, match="without event time"):
        Subtask(sessions()).operator.process_combined(rows, keys, pa.nulls(1, pa.int64()))


def test_a_value_that_is_no_column_is_refused() -> None:
    with pytest.raises(StateError, match=r"found no column 'm' in the record .*; expected .*; pass one of its columns"):
        Subtask(sessions(value="m")).take([Event("a", 5, 0)])
    with pytest.raises(ConfigurationError, match=r"found value=5 for a window function; expected"):
        sessions(value=5)


def test_the_end_of_a_session_is_a_change_of_all_that_is_kept_of_it() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0)])
    before = subtask.stored()
    subtask.operator.advance_watermark(9)
    assert subtask.left() == []
    subtask.require_changes_noted(before)
