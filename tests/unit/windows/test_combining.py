"""Records of a batch, taken together, give what they give one by one."""

from __future__ import annotations

import dataclasses
import operator
from datetime import timedelta
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    CountTrigger,
    DynamicEventTimeSessionWindows,
    HeapKeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    PurgingTrigger,
    ReducingStateDescriptor,
    StateTtlConfig,
    TumblingEventTimeWindows,
    WindowFunction,
)
from statecore.errors import ConfigurationError, StateError, StateTypeError
from statecore.state.process import can_combine
from statecore.testing import ManualClock, physical
from statecore.windows import EventTimeTrigger
from tests.support.combined import GROUPS, MS, Event, Subtask, columns, left_in, sessions
from tests.support.examples import examples

# Times are relative to the watermark.
EVENTS = st.lists(
    st.builds(Event, st.sampled_from("abcd"), st.integers(-9, 9), st.integers(-15, 40)), min_size=1, max_size=12
)


class How(Enum):
    """How the first of two equal subtasks gets to its next epoch."""

    IN_MEMORY = "its state is in memory"
    FROM_FILES = "its state is restored from files"
    ONE_BY_ONE = "as in memory, but its records are not taken together this time"
    READ = "as in memory, after somebody has read its state"


@examples(300)
@given(
    st.lists(st.tuples(EVENTS, EVENTS, st.integers(0, 40), st.sampled_from(How)), min_size=3, max_size=7),
    st.sampled_from([operator.add, min, max]),
    st.sampled_from([0, 0, 0, 7, 30]),
    st.booleans(),
)
def test_a_batch_gives_what_its_records_give_one_by_one(
    epochs: list[tuple[list[Event], list[Event], int, How]], reduce: Any, lateness_ms: int, expires: bool
) -> None:
    ttl = StateTtlConfig(timedelta(days=1)) if expires else None
    contents = ReducingStateDescriptor("contents", "bigint", reduce=reduce, ttl=ttl)

    def function() -> WindowFunction:
        return sessions(contents=contents, lateness_ms=lateness_ms)

    together, one_by_one = Subtask(function()), Subtask(function())
    files = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), ManualClock())
    watermark = 0
    for first, second, ahead, how in epochs:
        for relative in (first, second):
            events = [event._replace(at=max(0, event.at + watermark)) for event in relative]
            one_by_one.take_one_by_one(events)
            if how is How.ONE_BY_ONE:
                together.take_one_by_one(events)
            else:
                together.take(events)
        watermark += ahead
        for each in (together, one_by_one):
            each.operator.advance_watermark(watermark)
        if lateness_ms:
            assert sorted(together.output) == sorted(one_by_one.output)
        else:
            assert together.output == one_by_one.output
        assert sorted(map(tuple, together.late)) == sorted(map(tuple, one_by_one.late))
        timers = [each.operator.next_event_timer_ms for each in (together, one_by_one)]
        assert (timers[0] is None) == (timers[1] is None)
        together.write(files)
        assert left_in(files) == left_in(one_by_one.backend)
        if how is How.FROM_FILES:
            output, late = together.output, together.late
            together = Subtask(function(), files.snapshot(), watermark)
            together.output, together.late = output, late
        else:
            if how is How.READ:
                assert together.left() == one_by_one.left()
                together.write(files)
            together = together.restarted(function(), watermark)


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


def test_a_batch_with_a_key_of_another_subtask_is_refused() -> None:
    rows, keys, times = columns([Event("a", 5, 0)], pa.int64())
    elsewhere = dataclasses.replace(keys, key_groups=keys.key_groups + GROUPS)
    with pytest.raises(StateError, match="expected a key group of this subtask, 0 to 1"):
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
