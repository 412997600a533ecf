"""Session windows: what they collect, whatever the epochs, the parallelism and the records that fail."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    ListStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    StateTtlConfig,
    TumblingEventTimeWindows,
    Window,
    WindowFunction,
)
from statecore.errors import ConfigurationError, StateError, StateMigrationError
from statecore.testing import KeyedOperatorHarness, physical
from statecore.windows import ContentsDescriptor, WindowContext
from tests.support.subtasks import Subtasks

MS = timedelta(milliseconds=1)
Event = namedtuple("Event", ["k", "n"])
LATE = OutputTag("late", "k string, n bigint")


class MinMax(AggregateFunction):
    def create_accumulator(self) -> Any:
        return None, None

    def add(self, value: int, accumulator: Any) -> Any:
        return self.merge((value, value), accumulator)

    def get_result(self, accumulator: Any) -> Any:
        return list(accumulator)

    def merge(self, a: Any, b: Any) -> Any:
        return a if b[0] is None else (min(a[0], b[0]), max(a[1], b[1]))


SUM = ReducingStateDescriptor("contents", "bigint", reduce=lambda a, b: a + b)
EXTREMES = AggregatingStateDescriptor("contents", "struct<low:bigint,high:bigint>", aggregate=MinMax())
ALL = ListStateDescriptor("contents", "bigint")
EXPECTED: dict[str, tuple[ContentsDescriptor, Any]] = {
    "sum": (SUM, lambda values: [sum(values)]),
    "extremes": (EXTREMES, lambda values: [[min(values), max(values)]]),
    "all": (ALL, sorted),
}


class Bounds(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        yield *key, *context.window, sorted(elements)


def sessions(gap_ms: int = 10, contents: ContentsDescriptor = SUM, lateness_ms: int = 0, **settings: Any) -> Any:
    settings = {"windows": EventTimeSessionWindows(gap_ms * MS), "value": lambda event: event.n, **settings}
    windows = settings.pop("windows")
    return WindowFunction(windows, contents, process=Bounds(), allowed_lateness=lateness_ms * MS, **settings)


def kept(tested: KeyedOperatorHarness) -> dict[str, Any]:
    names = ("contents", "__sessions", "__window_timers")
    return {name: stored for name in names if (stored := physical(tested.keyed_backend, name))}


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], int]:
    """Return (key, event time, value) in the order of arrival, and how far records are behind the newest at most.

    Event times are even and gaps odd, so that no two windows just touch: whether these are one session depends on
    whether the first is still there.
    """
    event = st.tuples(st.sampled_from("abc"), st.integers(0, 60).map(lambda n: 2 * n), st.integers(1, 9))
    bound = draw(st.integers(0, 30))
    events = draw(st.lists(st.tuples(event, st.integers(0, bound)), max_size=40))
    return [event for event, delay in sorted(events, key=lambda pair: pair[0][1] + pair[1])], bound


def expected_sessions(events: list[tuple[str, int, int]], gap_ms: int, of: Any) -> list[Any]:
    """Sort, and split where nothing comes for longer than the gap."""
    found = []
    for key in {k for k, _, _ in events}:
        own = sorted((at, n) for k, at, n in events if k == key)
        cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(own)) if b[0] - a[0] > gap_ms), len(own)]
        for start, end in pairwise(cuts):
            part = own[start:end]
            found.append((key, part[0][0], part[-1][0] + gap_ms, of([n for _, n in part])))
    return sorted(found)


@given(
    arrivals(),
    st.integers(0, 20).map(lambda n: 2 * n + 1),
    st.sampled_from(sorted(EXPECTED)),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 4)), max_size=6),
)
def test_sessions_are_what_sorting_and_splitting_gives(
    arriving: tuple[list[tuple[str, int, int]], int],
    gap_ms: int,
    kind: str,
    lateness_ms: int,
    epochs: list[tuple[int, int]],
) -> None:
    events, bound = arriving
    contents, of = EXPECTED[kind]
    subtasks, left = Subtasks(lambda: sessions(gap_ms, contents, lateness_ms)), list(events)
    newest = None
    for size, parallelism in [*epochs, (len(events), 1)]:
        for k, at, n in left[:size]:
            subtasks.process(Event(k, n), at)
            newest = at if newest is None else max(newest, at)
        left = left[size:]
        if newest is not None:
            subtasks.watermark(newest - bound - 1)
        subtasks.rescale(parallelism)
    subtasks.watermark(10_000)
    assert sorted(subtasks.output()) == expected_sessions(events, gap_ms, of)
    for state in ("contents", "__sessions", "__window_timers"):
        assert subtasks.physical(state) == {}


class TestMerging:
    def test_the_state_of_merged_sessions_lies_in_one_namespace(self) -> None:
        tested = KeyedOperatorHarness(sessions())
        for at in (0, 30, 15):
            tested.process(Event("a", at), at)
        assert len(physical(tested.keyed_backend, "contents")) == 3
        for at in (8, 24):
            tested.process(Event("a", at), at)
        assert kept(tested) == {
            "contents": {(("a",), Window(0, 10)): 77},
            "__sessions": {("a",): [(0, 40, 0, 10)]},
            "__window_timers": {(("a",), Window(0, 10)): {9}},
        }
        tested.watermark(9)
        assert tested.output == []
        assert kept(tested)["__window_timers"] == {(("a",), Window(0, 10)): {39}}
        tested.watermark(39)
        assert tested.output == [("a", 0, 40, [77])]
        assert kept(tested) == {}

    def test_lists_are_put_together_earliest_session_first(self) -> None:
        class AsIs(ProcessWindowFunction):
            def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
                yield list(elements)

        tested = KeyedOperatorHarness(
            WindowFunction(EventTimeSessionWindows(10 * MS), ALL, process=AsIs(), value=lambda event: event.n)
        )
        for at in (40, 0, 20, 30, 10):
            tested.process(Event("a", at), at)
        tested.watermark(100)
        assert tested.output == [[0, 20, 40, 30, 10]]

    def test_a_session_whose_start_moves_back_fires_at_its_end(self) -> None:
        tested = KeyedOperatorHarness(sessions())
        tested.process(Event("a", 1), 20)
        tested.process(Event("a", 2), 12)
        tested.watermark(28)
        assert tested.output == []
        tested.watermark(29)
        assert tested.output == [("a", 12, 30, [3])]

    def test_contents_with_a_time_to_live_merge_as_well(self) -> None:
        ttl = StateTtlConfig(timedelta(days=1))
        extremes = AggregatingStateDescriptor("contents", "struct<low:bigint,high:bigint>", aggregate=MinMax(), ttl=ttl)
        tested = KeyedOperatorHarness(sessions(contents=extremes))
        for at in (0, 18, 9):
            tested.process(Event("a", at), at)
        tested.watermark(100)
        assert tested.output == [("a", 0, 28, [[0, 18]])]

    def test_a_record_that_fails_while_sessions_merge_leaves_them_as_they_were(self) -> None:
        def value(event: Event) -> int:
            return 7 // event.n

        bad = OutputTag("bad", "error string, record string")
        tested = KeyedOperatorHarness(sessions(value=value, lateness_ms=5), on_error=bad)
        for at in (0, 18, 40):
            tested.process(Event("a", 1), at)
        tested.watermark(9)
        before = kept(tested)
        tested.process(Event("a", 0), 9)
        assert kept(tested) == before
        assert len(tested.side_output(bad)) == 1
        tested.watermark(100)
        assert tested.output == [("a", 0, 10, [7]), ("a", 18, 28, [7]), ("a", 40, 50, [7])]


class TestRestart:
    @pytest.mark.parametrize(("old", "new"), [(0, 20), (20, 0), (5, 5)])
    @pytest.mark.parametrize("taken_at", [-1, 5, 9, 12])
    def test_the_allowed_lateness_may_change(self, old: int, new: int, taken_at: int) -> None:
        first = KeyedOperatorHarness(sessions(lateness_ms=old))
        first.process(Event("a", 1), 0)
        first.watermark(taken_at)
        second = KeyedOperatorHarness(sessions(lateness_ms=new), restore_from=first.snapshot())
        second.watermark(9 + max(old, new))
        assert kept(second) == {}
        assert [*first.output, *second.output] == [("a", 0, 10, [1])]

    def test_another_gap_holds_for_the_records_to_come(self) -> None:
        first = KeyedOperatorHarness(sessions(10))
        first.process(Event("a", 1), 0)
        second = KeyedOperatorHarness(sessions(5), restore_from=first.snapshot())
        second.process(Event("a", 2), 8)
        second.process(Event("a", 4), 14)
        second.watermark(100)
        assert second.output == [("a", 0, 13, [3]), ("a", 14, 19, [4])]

    def test_windows_of_another_kind_fire_at_their_ends(self) -> None:
        first = KeyedOperatorHarness(sessions(windows=TumblingEventTimeWindows(10 * MS)))
        first.process(Event("a", 1), 3)
        second = KeyedOperatorHarness(sessions(), restore_from=first.snapshot())
        second.process(Event("a", 2), 4)
        second.watermark(100)
        assert second.output == [("a", 0, 10, [1]), ("a", 4, 14, [2])]
        assert kept(second) == {}

    def test_other_windows_cannot_take_over_sessions(self) -> None:
        first = KeyedOperatorHarness(sessions())
        first.process(Event("a", 1), 3)
        with pytest.raises(StateMigrationError, match="found restored state '__sessions' that WindowFunction did not"):
            KeyedOperatorHarness(sessions(windows=TumblingEventTimeWindows(10 * MS)), restore_from=first.snapshot())


class TestGap:
    @pytest.mark.parametrize("gap", [timedelta(0), timedelta(-1), timedelta(microseconds=1), 10, None], ids=repr)
    def test_a_gap_that_is_no_positive_number_of_milliseconds_is_refused(self, gap: Any) -> None:
        with pytest.raises(ConfigurationError, match="expected a"):
            EventTimeSessionWindows(gap)

    def test_a_gap_per_record_is_a_function(self) -> None:
        with pytest.raises(ConfigurationError, match=r"found gap_ms=10 for session windows; expected a function"):
            DynamicEventTimeSessionWindows(10)  # type: ignore[arg-type]

    @pytest.mark.parametrize("gap", [0, -1, 1.5, None, True, timedelta(1)], ids=repr)
    def test_a_gap_of_a_record_that_is_no_positive_integer_is_refused(self, gap: Any) -> None:
        tested = KeyedOperatorHarness(sessions(windows=DynamicEventTimeSessionWindows(lambda event: gap)))
        with pytest.raises(
            StateError, match=r"found the gap .* for the record Event\(k='a', n=1\); expected a positive"
        ):
            tested.process(Event("a", 1), 0)

    def test_a_record_without_event_time_is_refused(self) -> None:
        with pytest.raises(StateError, match="without event time"):
            KeyedOperatorHarness(sessions()).process(Event("a", 1))
