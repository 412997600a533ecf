"""Event-time windows as Flink's window operator has them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    ProcessFunction,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from statecore.errors import ConfigurationError, StateError, StateMigrationError
from statecore.state import Window
from statecore.testing import HarnessSnapshot, KeyedOperatorHarness, physical
from statecore.windows import (
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowContext,
    WindowFunction,
)

Event = namedtuple("Event", ["k", "n"])
SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
LATE = OutputTag("late", "k string, n bigint")
TEN_MS = TumblingEventTimeWindows(timedelta(milliseconds=10))


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Event, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value.n, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


MEAN = AggregatingStateDescriptor("mean", "struct<total:bigint,count:bigint>", aggregate=Mean())
ALL = ListStateDescriptor("all", "struct<k:string,n:bigint>")


class Labelled(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        yield key[0], context.window, list(elements), context.current_watermark()


def summing(lateness_ms: int = 0, **settings: Any) -> WindowFunction:
    settings = {"process": Labelled(), **settings}
    windows = settings.pop("windows", TEN_MS)
    lateness = timedelta(milliseconds=lateness_ms)
    return WindowFunction(windows, SUM, value=lambda event: event.n, allowed_lateness=lateness, **settings)


def harness(function: KeyedProcessFunction, **settings: Any) -> KeyedOperatorHarness:
    return KeyedOperatorHarness(function, **settings)


class TestAssigners:
    @pytest.mark.parametrize(("timestamp", "start"), [(0, 0), (9, 0), (10, 10), (-1, -10), (-10, -10), (-11, -20)])
    def test_a_tumbling_window_holds_its_start_and_not_its_end(self, timestamp: int, start: int) -> None:
        assert TEN_MS.assign(timestamp) == [Window(start, start + 10)]

    def test_an_offset_shifts_the_windows(self) -> None:
        shifted = TumblingEventTimeWindows(timedelta(milliseconds=10), timedelta(milliseconds=-3))
        assert shifted.assign(6) == [Window(-3, 7)]
        assert shifted.assign(7) == [Window(7, 17)]

    @pytest.mark.parametrize("offset_ms", [10, -10, 11])
    def test_an_offset_of_a_whole_window_is_refused_as_by_flink(self, offset_ms: int) -> None:
        offset = timedelta(milliseconds=offset_ms)
        with pytest.raises(ConfigurationError, match="expected a shorter one"):
            TumblingEventTimeWindows(timedelta(milliseconds=10), offset)
        with pytest.raises(ConfigurationError, match="expected a shorter one"):
            SlidingEventTimeWindows(timedelta(milliseconds=50), timedelta(milliseconds=10), offset)

    def test_a_record_is_in_every_sliding_window_that_covers_it(self) -> None:
        sliding = SlidingEventTimeWindows(timedelta(milliseconds=10), timedelta(milliseconds=4))
        assert sliding.assign(9) == [Window(8, 18), Window(4, 14), Window(0, 10)]

    def test_a_record_between_two_windows_is_in_none(self) -> None:
        sparse = SlidingEventTimeWindows(timedelta(milliseconds=2), timedelta(milliseconds=10))
        assert sparse.assign(5) == []
        assert sparse.assign(11) == [Window(10, 12)]

    @given(st.integers(-(10**6), 10**6), st.integers(1, 50), st.integers(1, 50), st.integers(-49, 49))
    def test_sliding_windows_are_exactly_those_that_cover_the_record(
        self, timestamp: int, size: int, slide: int, offset: int
    ) -> None:
        ms, offset = timedelta(milliseconds=1), offset % slide
        found = SlidingEventTimeWindows(size * ms, slide * ms, offset * ms).assign(timestamp)
        every = range(timestamp - size + 1, timestamp + 1)
        assert sorted(w.start for w in found) == [start for start in every if (start - offset) % slide == 0]
        assert all(w.end - w.start == size for w in found)

    @pytest.mark.parametrize("size", [timedelta(0), timedelta(-1), timedelta(microseconds=1), 10])
    def test_a_size_that_is_no_positive_number_of_milliseconds_is_refused(self, size: Any) -> None:
        with pytest.raises(ConfigurationError, match="expected a"):
            TumblingEventTimeWindows(size)


class TestFiring:
    def test_a_window_fires_once_when_the_watermark_reaches_its_last_millisecond(self) -> None:
        tested = harness(summing())
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 9)
        tested.process(Event("a", 5), 10)
        tested.process(Event("b", 7), 3)
        tested.watermark(8)
        assert tested.output == []
        tested.watermark(9)
        assert sorted(tested.output) == [("a", Window(0, 10), [3], 9), ("b", Window(0, 10), [7], 9)]
        tested.watermark(18)
        assert len(tested.output) == 2
        tested.watermark(19)
        assert tested.output[2:] == [("a", Window(10, 20), [5], 19)]

    def test_windows_fire_in_the_order_of_their_ends(self) -> None:
        tested = harness(summing())
        for timestamp in (35, 5, 25, 15):
            tested.process(Event("a", timestamp), timestamp)
        tested.watermark(1000)
        assert [window.start for _, window, _, _ in tested.output] == [0, 10, 20, 30]

    def test_nothing_of_a_window_stays_after_it_was_cleared(self) -> None:
        tested = harness(summing(5))
        tested.process(Event("a", 1), 0)
        tested.watermark(13)
        assert physical(tested.keyed_backend, "sum") == {(("a",), Window(0, 10)): 1}
        tested.watermark(14)
        assert physical(tested.keyed_backend, "sum") == {}
        assert physical(tested.keyed_backend, "__window_timers") == {}

    def test_a_record_in_sliding_windows_counts_in_each(self) -> None:
        tested = harness(
            summing(windows=SlidingEventTimeWindows(timedelta(milliseconds=10), timedelta(milliseconds=5)))
        )
        tested.process(Event("a", 1), 7)
        tested.process(Event("a", 2), 3)
        tested.watermark(100)
        assert [(window, elements) for _, window, elements, _ in tested.output] == [
            (Window(-5, 5), [2]),
            (Window(0, 10), [3]),
            (Window(5, 15), [1]),
        ]

    def test_without_a_process_function_the_result_itself_is_yielded(self) -> None:
        tested = harness(WindowFunction(TEN_MS, MEAN))
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 1)
        tested.watermark(9)
        assert tested.output == [1.5]

    def test_a_column_may_be_named_as_the_value(self) -> None:
        tested = harness(WindowFunction(TEN_MS, SUM, value="n"))
        tested.process(Event("a", 1), 0)
        tested.process(Event("a", 2), 1)
        tested.watermark(9)
        assert tested.output == [3]

    def test_a_list_gives_every_element_in_the_order_it_came(self) -> None:
        tested = harness(WindowFunction(TEN_MS, ALL, process=Labelled()))
        tested.process(Event("a", 2), 5)
        tested.process(Event("a", 1), 0)
        tested.watermark(9)
        assert tested.output == [("a", Window(0, 10), [("a", 2), ("a", 1)], 9)]

    def test_a_result_whose_comparison_is_no_bool_is_yielded_as_it_is(self) -> None:
        class Pair(Mean):
            def get_result(self, accumulator: tuple[int, int]) -> Any:
                return np.array(accumulator)

        pair = AggregatingStateDescriptor("pair", "struct<total:bigint,count:bigint>", aggregate=Pair())
        tested = harness(WindowFunction(TEN_MS, pair))
        tested.process(Event("a", 4), 0)
        tested.watermark(9)
        assert [list(result) for result in tested.output] == [[4, 1]]

    def test_a_result_of_none_fires_nothing(self) -> None:
        class Nothing(Mean):
            def get_result(self, accumulator: tuple[int, int]) -> Any:
                return None

        nothing = AggregatingStateDescriptor("nothing", "struct<total:bigint,count:bigint>", aggregate=Nothing())
        tested = harness(WindowFunction(TEN_MS, nothing, process=Labelled()))
        tested.process(Event("a", 4), 0)
        tested.watermark(9)
        assert tested.output == []

    @pytest.mark.parametrize("returned", [("a", 1), Event("a", 1), "text", {"k": 1}, 5], ids=repr)
    def test_an_output_that_is_returned_and_not_yielded_is_refused(self, returned: Any) -> None:
        class Returning(ProcessWindowFunction):
            def process(self, key: Any, context: Any, elements: Any) -> Any:
                return returned

        tested = harness(summing(process=Returning()))
        tested.process(Event("a", 1), 0)
        with pytest.raises(StateError, match=r"returned by process; expected an iterable of outputs; yield it"):
            tested.watermark(9)

    @pytest.mark.parametrize("returned", [None, [], [1, 2]], ids=repr)
    def test_nothing_and_a_list_may_be_returned(self, returned: Any) -> None:
        class Returning(ProcessWindowFunction):
            def process(self, key: Any, context: Any, elements: Any) -> Any:
                return returned

        tested = harness(summing(process=Returning()))
        tested.process(Event("a", 1), 0)
        tested.watermark(9)
        assert tested.output == (returned or [])

    @pytest.mark.parametrize("windows", [5, None, TumblingEventTimeWindows, timedelta(minutes=1)], ids=repr)
    def test_what_assigns_no_windows_is_refused(self, windows: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"as the windows of a window function; expected .*; pass for"):
            WindowFunction(windows, SUM)

    def test_a_record_without_event_time_is_refused(self) -> None:
        with pytest.raises(StateError, match="without event time"):
            harness(summing()).process(Event("a", 1))

    def test_contents_of_another_kind_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="ReducingStateDescriptor"):
            WindowFunction(TEN_MS, ValueStateDescriptor("x", "int"))  # type: ignore[arg-type]


class TestLateness:
    def test_a_record_within_the_lateness_fires_its_window_again_at_once(self) -> None:
        tested = harness(summing(5))
        tested.process(Event("a", 1), 0)
        tested.watermark(9)
        tested.process(Event("a", 2), 1)
        assert [elements for _, _, elements, _ in tested.output] == [[1], [3]]
        tested.watermark(13)
        tested.process(Event("a", 4), 2)
        assert [elements for _, _, elements, _ in tested.output] == [[1], [3], [7]]

    def test_a_record_after_the_lateness_goes_to_the_late_output(self) -> None:
        tested = harness(summing(5, late_output=LATE))
        tested.watermark(14)
        tested.process(Event("a", 1), 9)
        tested.process(Event("a", 2), 10)
        assert tested.side_output(LATE) == [Event("a", 1)]
        tested.watermark(19)
        assert [elements for _, _, elements, _ in tested.output] == [[2]]

    def test_without_a_late_output_such_a_record_is_dropped(self) -> None:
        tested = harness(summing())
        tested.watermark(9)
        tested.process(Event("a", 1), 9)
        tested.watermark(1000)
        assert tested.output == []

    def test_a_late_record_that_is_first_in_its_window_fires_it(self) -> None:
        tested = harness(summing(5))
        tested.watermark(12)
        tested.process(Event("a", 1), 4)
        assert [elements for _, _, elements, _ in tested.output] == [[1]]
        tested.watermark(14)
        assert physical(tested.keyed_backend, "sum") == {}
        assert len(tested.output) == 1

    @pytest.mark.parametrize("tag", ["late", ("late", "k string"), OutputTag], ids=repr)
    def test_a_late_output_that_is_no_tag_is_refused(self, tag: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"as the late output of a window function; expected .*; pass"):
            summing(late_output=tag)

    @pytest.mark.parametrize("taken_at", [-1, 5, 9, 12, 15])
    @pytest.mark.parametrize(("old", "new"), [(5, 10), (10, 5), (10, 0), (5, 0), (0, 5), (5, 5)])
    def test_a_window_is_cleared_also_when_the_lateness_changes(self, old: int, new: int, taken_at: int) -> None:
        first = harness(summing(old))
        first.process(Event("a", 1), 0)
        first.watermark(taken_at)
        second = harness(summing(new), restore_from=first.snapshot())
        second.watermark(max(taken_at, 9 + max(old, new)))
        assert physical(second.keyed_backend, "sum") == {}
        assert physical(second.keyed_backend, "__window_timers") == {}
        fired = [elements for _, _, elements, _ in [*first.output, *second.output]]
        assert fired == [[1]]

    @pytest.mark.parametrize("step", [1, 3, 100])
    @pytest.mark.parametrize(("old", "new"), [(5, 10), (0, 10)])
    def test_a_longer_lateness_holds_for_windows_that_are_there(self, old: int, new: int, step: int) -> None:
        first = harness(summing(old))
        first.process(Event("a", 1), 0)
        second = harness(summing(new), restore_from=first.snapshot())
        for watermark in range(0, 19, step):
            second.watermark(watermark)
        second.watermark(18)
        second.process(Event("a", 2), 1)
        assert [elements for _, _, elements, _ in second.output] == [[1], [3]]
        second.watermark(19)
        assert physical(second.keyed_backend, "sum") == {}

    @pytest.mark.parametrize("new", [5, 0])
    def test_a_shorter_lateness_holds_for_windows_that_are_there(self, new: int) -> None:
        first = harness(summing(10))
        first.process(Event("a", 1), 0)
        second = harness(summing(new, late_output=LATE), restore_from=first.snapshot())
        second.watermark(9 + new)
        assert physical(second.keyed_backend, "sum") == {}
        second.process(Event("a", 2), 1)
        assert second.side_output(LATE) == [Event("a", 2)]
        second.watermark(100)
        assert [elements for _, _, elements, _ in second.output] == [[1]]

    def test_a_negative_lateness_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="lateness"):
            summing(-1)


class Reminding(KeyedProcessFunction):
    """A function with timers and without windows; notes where its timers fire."""

    def __init__(self, domain: str = "event") -> None:
        self.domain = domain

    def process_element(self, value: Any, ctx: Any) -> None:
        getattr(ctx.timer_service(), f"register_{self.domain}_time_timer")(value.n)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key()[0], timestamp_ms


class TestTimersOfOthers:
    @pytest.mark.parametrize("domain", ["event", "processing"])
    def test_a_function_with_windows_cannot_take_over_other_timers(self, domain: str) -> None:
        first = harness(Reminding(domain))
        first.process(Event("a", 3))
        message = rf"found restored timers '__{domain}_timers' that WindowFunction cannot fire; expected .*; use the"
        with pytest.raises(StateMigrationError, match=message):
            harness(summing(), restore_from=first.snapshot())

    def test_a_function_without_windows_cannot_take_over_theirs(self) -> None:
        class Summed(Reminding):
            def open(self, ctx: Any) -> None:
                ctx.get_reducing_state(SUM)

        first = harness(summing())
        first.process(Event("a", 3), 0)
        with pytest.raises(StateMigrationError, match=r"restored timers '__window_timers' that Summed cannot fire"):
            harness(Summed(), restore_from=first.snapshot())

    def test_timers_that_have_all_fired_are_in_nobodys_way(self) -> None:
        first = harness(Reminding())
        first.process(Event("a", 3))
        first.watermark(3)
        second = harness(summing(), restore_from=first.snapshot())
        second.process(Event("a", 3), 10)
        second.watermark(19)
        assert len(second.output) == 1
        third = harness(Reminding(), restore_from=second.snapshot(), allow_non_restored_state=True)
        third.watermark(100)
        assert third.output == []

    @pytest.mark.parametrize("domain", ["event", "processing"])
    def test_where_that_is_allowed_other_timers_are_dropped_when_they_are_due(self, domain: str) -> None:
        first = harness(Reminding(domain))
        first.process(Event("a", 3))
        first.process(Event("a", 30))
        second = harness(summing(), restore_from=first.snapshot(), allow_non_restored_state=True)
        second.process(Event("a", 1), 0)
        second.watermark(10)
        second.set_processing_time(10)
        assert [elements for _, _, elements, _ in second.output] == [[1]]
        assert physical(second.keyed_backend, f"__{domain}_timers") == {("a",): {30}}
        third = harness(Reminding(domain), restore_from=second.snapshot(), allow_non_restored_state=True)
        third.watermark(30)
        third.set_processing_time(30)
        assert third.output == [("a", 30)]

    def test_where_that_is_allowed_timers_of_windows_are_dropped_when_they_are_due(self) -> None:
        first = harness(summing(5))
        first.process(Event("a", 1), 0)
        first.process(Event("a", 1), 10)
        second = harness(Reminding(), restore_from=first.snapshot(), allow_non_restored_state=True)
        second.process(Event("a", 9))
        second.set_processing_time(100)
        assert physical(second.keyed_backend, "__window_timers") == {
            (("a",), Window(0, 10)): {9},
            (("a",), Window(10, 20)): {19},
        }
        second.watermark(9)
        assert second.output == [("a", 9)]
        assert physical(second.keyed_backend, "__window_timers") == {(("a",), Window(10, 20)): {19}}

    @pytest.mark.parametrize("domain", ["event", "processing"])
    @pytest.mark.parametrize("what", ["register", "delete"])
    def test_a_function_with_windows_registers_no_timers_of_its_own(self, domain: str, what: str) -> None:
        class Own(WindowFunction):
            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                getattr(ctx.timer_service(), f"{what}_{domain}_time_timer")(1)
                yield from super().process_element(value, ctx)

        with pytest.raises(
            StateError, match=r"timer requested by a function with windows; expected none, .*; register"
        ):
            harness(Own(TEN_MS, SUM, value=lambda event: event.n)).process(Event("a", 1), 0)


class Delegating(KeyedProcessFunction):
    """Hands everything on to a window function, and puts its name before the outputs."""

    def __init__(self, inner: WindowFunction) -> None:
        self.inner = inner

    def open(self, ctx: Any) -> None:
        self.inner.open(ctx)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        for output in self.inner.process_element(value, ctx):
            yield "outer", output

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        for output in self.inner.on_timer(timestamp_ms, ctx):
            yield "outer", output


class TestDelegation:
    def test_a_function_may_hand_everything_on_to_a_window_function(self) -> None:
        tested = harness(Delegating(summing(process=None)))
        tested.process(Event("a", 1), 0)
        tested.watermark(9)
        assert tested.output == [("outer", 1)]

    def test_a_timer_outside_of_a_window_is_refused(self) -> None:
        class Firing(Delegating):
            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                yield from self.inner.on_timer(5, ctx)

        with pytest.raises(
            StateError, match=r"found the timer 5 without a window; expected the timer of a window; let"
        ):
            harness(Firing(summing())).process(Event("a", 1), 0)

    def test_a_context_of_somebody_elses_making_is_refused(self) -> None:
        class Wrapping(Delegating):
            def open(self, ctx: Any) -> None:
                self.inner.open(object())  # type: ignore[arg-type]

        with pytest.raises(StateError, match=r"passed to open\(\) of a window function; expected the operator"):
            harness(Wrapping(summing()))

    def test_windows_need_keys(self) -> None:
        class Keyless(ProcessFunction):
            def open(self, ctx: Any) -> None:
                summing().open(ctx)

            def process_element(self, value: Any, ctx: Any) -> None:
                return None

        with pytest.raises(StateError, match="keyed state requested by a function without keys; expected a Keyed"):
            harness(Keyless(), key=None)  # type: ignore[arg-type]

    @pytest.mark.parametrize("ask", ["get_broadcast_state", "apply_to_keyed_state"])
    def test_a_window_has_no_broadcast_state(self, ask: str) -> None:
        class Asking(ProcessWindowFunction):
            def process(self, key: Any, context: Any, elements: Any) -> Any:
                getattr(context, ask)(*[None] * (1 if ask.startswith("get") else 2))

        tested = harness(summing(process=Asking()))
        tested.process(Event("a", 1), 0)
        with pytest.raises(StateError, match=rf"found {ask}\(\)"):
            tested.watermark(9)


EVENTS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 100), st.integers(1, 9)), max_size=30)


@given(EVENTS, EVENTS, st.integers(1, 5), st.integers(1, 5))
def test_windows_give_the_same_with_a_rescale_in_between(
    before: list[Any], after: list[Any], old: int, new: int
) -> None:
    def feed(tested: list[KeyedOperatorHarness], events: list[Any]) -> None:
        for k, timestamp, n in events:
            for each in tested:
                try:
                    each.process(Event(k, n), timestamp)
                    break
                except StateError:
                    continue

    def start(parallelism: int, snapshots: list[HarnessSnapshot]) -> list[KeyedOperatorHarness]:
        return [
            harness(summing(20), parallelism=parallelism, subtask=subtask, restore_from=snapshots)
            for subtask in range(parallelism)
        ]

    undisturbed = start(1, [])
    first = start(old, [])
    for side in (undisturbed, first):
        feed(side, before)
        for each in side:
            each.watermark(50)
    second = start(new, [each.snapshot() for each in first])
    for side in (undisturbed, second):
        feed(side, after)
        for each in side:
            each.watermark(1000)
    outputs = sorted(output for each in [*first, *second] for output in each.output)
    assert outputs == sorted(output for each in undisturbed for output in each.output)
