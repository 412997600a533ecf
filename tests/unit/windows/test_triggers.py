"""Triggers: when a window fires, and what it remembers across restarts."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ListStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    TumblingEventTimeWindows,
    WindowFunction,
)
from statecore.errors import ConfigurationError, StateError, StateMigrationError
from statecore.testing import KeyedOperatorHarness, physical
from statecore.windows import Trigger, WindowContext
from tests.support.subtasks import Subtasks

MS = timedelta(milliseconds=1)
Event = namedtuple("Event", ["k", "n"])
SUM = ReducingStateDescriptor("contents", "bigint", reduce=lambda a, b: a + b)
TWENTY = TumblingEventTimeWindows(20 * MS)
SESSIONS = EventTimeSessionWindows(10 * MS)


class Bounds(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        yield *context.window, *elements


def harness(trigger: Trigger, windows: Any = TWENTY, lateness_ms: int = 0, **settings: Any) -> KeyedOperatorHarness:
    settings = {"restore_from": (), **settings}
    restore_from = settings.pop("restore_from")
    function = WindowFunction(
        windows,
        SUM,
        process=Bounds(),
        value=lambda event: event.n,
        allowed_lateness=lateness_ms * MS,
        trigger=trigger,
        **settings,
    )
    return KeyedOperatorHarness(function, restore_from=restore_from)


def nothing_left(tested: KeyedOperatorHarness) -> bool:
    return not any(physical(tested.keyed_backend, name) for name in tested.keyed_backend.tables)


class TestContinuousEventTime:
    def test_a_window_fires_at_each_multiple_and_at_its_end(self) -> None:
        tested = harness(ContinuousEventTimeTrigger(5 * MS))
        tested.process(Event("a", 1), 7)
        tested.watermark(9)
        assert tested.output == []
        tested.watermark(10)
        tested.process(Event("a", 2), 12)
        tested.watermark(15)
        tested.watermark(18)
        assert tested.output == [(0, 20, 1), (0, 20, 3)]
        tested.watermark(19)
        assert tested.output[2:] == [(0, 20, 3)]
        assert nothing_left(tested)

    def test_a_watermark_that_skips_multiples_fires_for_each(self) -> None:
        tested = harness(ContinuousEventTimeTrigger(5 * MS))
        tested.process(Event("a", 1), 2)
        tested.watermark(17)
        assert tested.output == [(0, 20, 1)] * 3

    def test_a_late_record_fires_at_once(self) -> None:
        tested = harness(ContinuousEventTimeTrigger(5 * MS), lateness_ms=10)
        tested.watermark(19)
        tested.process(Event("a", 1), 2)
        assert tested.output == [(0, 20, 1)]
        tested.watermark(29)
        assert nothing_left(tested)

    def test_merged_sessions_go_on_with_the_earliest_plan(self) -> None:
        tested = harness(ContinuousEventTimeTrigger(7 * MS), SESSIONS)
        tested.process(Event("a", 1), 15)
        tested.process(Event("a", 2), 0)
        tested.process(Event("a", 4), 8)
        tested.watermark(7)
        assert tested.output == [(0, 25, 7)]
        tested.watermark(14)
        assert tested.output[1:] == [(0, 25, 7)]
        tested.watermark(24)
        assert tested.output[2:] == [(0, 25, 7)] * 2
        assert nothing_left(tested)

    def test_a_session_without_a_plan_takes_over_that_of_another(self) -> None:
        tested = harness(ContinuousEventTimeTrigger(5 * MS), SESSIONS, lateness_ms=100)
        tested.watermark(19)
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 18)
        tested.process(Event("a", 4), 9)
        assert tested.output == [(0, 10, 1)]
        tested.watermark(20)
        assert tested.output[1:] == [(0, 28, 7)]

    def test_a_session_that_grows_beyond_a_plan_at_its_end_fires_there_all_the_same(self) -> None:
        tested = harness(ContinuousEventTimeTrigger(100 * MS), SESSIONS)
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 9)
        tested.watermark(9)
        assert tested.output == [(0, 19, 3)]
        tested.watermark(18)
        assert tested.output[1:] == [(0, 19, 3)]
        assert nothing_left(tested)

    def test_the_plan_survives_a_restart(self) -> None:
        first = harness(ContinuousEventTimeTrigger(5 * MS))
        first.process(Event("a", 1), 7)
        second = harness(ContinuousEventTimeTrigger(5 * MS), restore_from=first.snapshot())
        second.watermark(10)
        assert second.output == [(0, 20, 1)]

    def test_global_windows_fire_at_multiples_for_ever(self) -> None:
        tested = harness(ContinuousEventTimeTrigger(5 * MS), GlobalWindows())
        tested.process(Event("a", 1), 2)
        tested.watermark(11)
        assert [n for *_, n in tested.output] == [1, 1]
        with pytest.raises(StateError, match="without event time"):
            tested.process(Event("b", 1))


class TestContinuousProcessingTime:
    def test_a_window_fires_once_in_each_epoch_that_reaches_a_multiple_and_at_its_end(self) -> None:
        tested = harness(ContinuousProcessingTimeTrigger(5 * MS))
        tested.set_processing_time(1_002)
        tested.process(Event("a", 1), 7)
        tested.set_processing_time(1_004)
        assert tested.output == []
        tested.set_processing_time(1_005)
        assert tested.output == [(0, 20, 1)]
        tested.process(Event("a", 2), 7)
        tested.set_processing_time(1_028)
        assert tested.output[1:] == [(0, 20, 3)]
        tested.set_processing_time(1_029)
        assert len(tested.output) == 2
        tested.watermark(19)
        assert tested.output[2:] == [(0, 20, 3)]
        assert nothing_left(tested)

    def test_merged_sessions_go_on_with_the_earliest_plan(self) -> None:
        tested = harness(ContinuousProcessingTimeTrigger(10 * MS), SESSIONS)
        tested.process(Event("a", 1), 15)
        tested.set_processing_time(5)
        tested.process(Event("a", 2), 0)
        tested.process(Event("a", 4), 8)
        tested.set_processing_time(10)
        assert tested.output == [(0, 25, 7)]
        tested.watermark(24)
        assert nothing_left(tested)

    def test_a_session_without_a_plan_takes_over_that_of_another(self) -> None:
        tested = harness(ContinuousProcessingTimeTrigger(10 * MS), SESSIONS, lateness_ms=100)
        tested.watermark(19)
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 18)
        tested.process(Event("a", 4), 9)
        tested.set_processing_time(10)
        assert tested.output == [(0, 10, 1), (0, 28, 7)]

    def test_where_that_is_allowed_its_timers_are_dropped_when_they_are_due(self) -> None:
        first = harness(ContinuousProcessingTimeTrigger(5 * MS))
        first.process(Event("a", 1), 7)
        function = WindowFunction(TWENTY, SUM)
        second = KeyedOperatorHarness(function, restore_from=first.snapshot(), allow_non_restored_state=True)
        second.watermark(10)
        assert physical(second.keyed_backend, "__window_processing_timers") != {}
        second.set_processing_time(5)
        assert physical(second.keyed_backend, "__window_processing_timers") == {}

    def test_its_timers_need_a_trigger_that_fires_them(self) -> None:
        first = harness(ContinuousProcessingTimeTrigger(5 * MS))
        first.process(Event("a", 1), 7)
        with pytest.raises(StateMigrationError, match="__next_processing_time"):
            harness(EventTimeTrigger(), restore_from=first.snapshot())


class TestCount:
    def test_a_window_fires_for_every_so_many_records_and_not_at_its_end(self) -> None:
        tested = harness(CountTrigger(2))
        for n in (1, 2, 4, 8, 16):
            tested.process(Event("a", n), 3)
        assert tested.output == [(0, 20, 3), (0, 20, 15)]
        tested.watermark(19)
        assert len(tested.output) == 2
        assert nothing_left(tested)

    def test_counts_of_merged_sessions_are_added_and_the_next_record_fires(self) -> None:
        tested = harness(CountTrigger(3), SESSIONS)
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 18)
        tested.process(Event("a", 4), 9)
        assert tested.output == [(0, 28, 7)]

    def test_a_session_that_is_never_full_leaves_nothing(self) -> None:
        tested = harness(CountTrigger(3), SESSIONS, lateness_ms=5)
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 8)
        tested.watermark(22)
        assert tested.output == []
        assert nothing_left(tested)

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=40), st.integers(1, 5))
    def test_windows_of_a_number_of_records_are_cut_per_key_across_rescales(
        self, arriving: list[tuple[str, int]], size: int
    ) -> None:
        every = ListStateDescriptor("contents", "bigint")
        subtasks = Subtasks(
            lambda: WindowFunction(
                GlobalWindows(),
                every,
                process=Gathered(),
                value=lambda event: event.n,
                trigger=PurgingTrigger(CountTrigger(size)),
            )
        )
        for n, (k, parallelism) in enumerate(arriving):
            subtasks.process(Event(k, n), None)
            subtasks.rescale(parallelism)
        own = {key: [n for n, (k, _) in enumerate(arriving) if k == key] for key in "abc"}
        full = [(key, ns[i : i + size]) for key, ns in own.items() for i in range(0, len(ns) - size + 1, size)]
        assert sorted(subtasks.output()) == sorted(full)
        left = {(key,): ns[-(len(ns) % size) :] for key, ns in own.items() if len(ns) % size}
        assert {key: stored for (key, _), stored in subtasks.physical("contents").items()} == left


class Gathered(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        yield *key, list(elements)


class TestPurging:
    def test_a_firing_removes_the_contents_and_the_window_goes_on(self) -> None:
        tested = harness(PurgingTrigger(ContinuousEventTimeTrigger(10 * MS)))
        tested.process(Event("a", 1), 2)
        tested.watermark(10)
        assert physical(tested.keyed_backend, "contents") == {}
        tested.process(Event("a", 2), 12)
        tested.watermark(19)
        assert tested.output == [(0, 20, 1), (0, 20, 2)]
        assert nothing_left(tested)

    def test_a_window_without_contents_does_not_fire(self) -> None:
        tested = harness(PurgingTrigger(EventTimeTrigger()), SESSIONS, lateness_ms=20)
        tested.process(Event("a", 1), 0)
        tested.watermark(9)
        tested.process(Event("a", 2), 5)
        tested.watermark(14)
        assert tested.output == [(0, 10, 1), (0, 15, 2)]
        tested.watermark(100)
        assert len(tested.output) == 2
        assert nothing_left(tested)


class TestSettings:
    @pytest.mark.parametrize("trigger", [EventTimeTrigger(), PurgingTrigger(EventTimeTrigger())], ids=repr)
    def test_global_windows_need_a_trigger_that_does_not_wait_for_their_end(self, trigger: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"for GlobalWindows; expected a trigger that fires before the end"
        ):
            harness(trigger, GlobalWindows())

    @pytest.mark.parametrize("trigger", [None, 5, CountTrigger, "count"], ids=repr)
    def test_what_is_no_trigger_is_refused(self, trigger: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"as a trigger; expected a trigger of statecore; pass"):
            harness(trigger)

    @pytest.mark.parametrize("max_count", [0, -1, 1.0, True, None], ids=repr)
    def test_a_count_that_is_no_positive_integer_is_refused(self, max_count: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"found max_count=.* for a trigger; expected a positive integer"):
            CountTrigger(max_count)

    @pytest.mark.parametrize("kind", [ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger])
    @pytest.mark.parametrize("interval", [timedelta(0), timedelta(microseconds=1), 5], ids=repr)
    def test_an_interval_that_is_no_positive_number_of_milliseconds_is_refused(self, kind: Any, interval: Any) -> None:
        with pytest.raises(ConfigurationError, match="expected a"):
            kind(interval)

    @pytest.mark.parametrize("inner", [PurgingTrigger(CountTrigger(1)), None, 5], ids=repr)
    def test_a_purging_trigger_needs_one_of_the_others(self, inner: Any) -> None:
        with pytest.raises(ConfigurationError, match="expected a"):
            PurgingTrigger(inner)

    def test_late_records_go_to_the_late_output_whatever_the_trigger(self) -> None:
        late = OutputTag("late", "k string, n bigint")
        tested = harness(CountTrigger(1), late_output=late)
        tested.watermark(19)
        tested.process(Event("a", 1), 3)
        assert tested.output == []
        assert tested.side_output(late) == [Event("a", 1)]


def test_an_evictor_that_keeps_nothing_gives_the_function_an_empty_window_as_in_flink() -> None:
    elements = ListStateDescriptor("contents", "bigint")
    function = WindowFunction(
        GlobalWindows(), elements, process=Bounds(), value=lambda event: event.n, trigger=CountTrigger(2),
        evictor=CountEvictor(0),
    )  # fmt: skip
    subtask = KeyedOperatorHarness(function)
    for n in range(3):
        subtask.process(Event("k", n))
    assert [len(row) for row in subtask.output] == [2]


@pytest.mark.parametrize("max_count", [-1, 1.0, True, None], ids=repr)
def test_an_evictor_of_no_count_is_refused(max_count: Any) -> None:
    with pytest.raises(ConfigurationError, match="for an evictor; expected 0 or more"):
        CountEvictor(max_count)
