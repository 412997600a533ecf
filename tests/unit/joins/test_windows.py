"""Joins and co-groups over windows: what a model of Flink's rules gives, whatever the parallelism."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    CoGroupFunction,
    CountTrigger,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    HeapKeyedStateBackend,
    JoinFunction,
    OperatorStateBackend,
    OutputTag,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    Window,
    key_group_for,
    key_group_range,
)
from statecore.errors import ConfigurationError, StateError, UnsupportedTypeError
from statecore.joins import CoGroupWindowFunction
from statecore.state.process import TWO_INPUTS, ProcessOperator
from statecore.testing import ManualClock, TwoInputOperatorHarness, physical
from statecore.windows import WindowContext
from tests.support.subtasks import TwoInputSubtasks
from tests.support.timed_outputs import TimedOutputs

MS = timedelta(milliseconds=1)
Order = namedtuple("Order", "k n")
Payment = namedtuple("Payment", "k note")
COLUMNS = ("k string not null, n bigint not null", "k string, note struct<text:string,parts:array<bigint>>")
LATE = (OutputTag("left", COLUMNS[0]), OutputTag("right", COLUMNS[1]))
BAD = OutputTag("bad", "error string, record string")
TEN = TumblingEventTimeWindows(10 * MS)


class Sides(CoGroupFunction):
    """Both sides, as plain tuples."""

    def co_group(self, key: Any, context: WindowContext, lefts: list[Any], rights: list[Any]) -> Iterator[Any]:
        yield *key, *context.window, tuple(each.n for each in lefts), tuple(each.note.text for each in rights)


class Pairs(JoinFunction):
    def join(self, left: Any, right: Any, context: WindowContext) -> Iterator[Any]:
        yield left.k, *context.window, left.n, right.note.text
        assert left.k == right.k


def grouped(function: CoGroupFunction | None = None, windows: Any = TEN, **settings: Any) -> CoGroupWindowFunction:
    tags = dict(zip(("left_late", "right_late"), LATE, strict=True))
    return CoGroupWindowFunction(function or Sides(), windows, *COLUMNS, **{**tags, **settings})


def push(tested: Any, side: int, k: str, at: int | None, n: int) -> None:
    if side == 0:
        tested.process1(Order(k, n), at)
    else:
        tested.process2(Payment(k, (f"p{n}", [n])), at)


class Model:
    """Windows that do not merge, by Flink's rules: all records, and which windows are still there."""

    def __init__(self, size: int, slide: int, lateness: int) -> None:
        self.size, self.slide, self.lateness = size, slide, lateness
        self.held: dict[tuple[str, int, int], tuple[list[int], list[str]]] = {}
        self.watermark_ms = -(2**63)
        self.fired: list[Any] = []
        self.late: list[Any] = []

    def add(self, side: int, k: str, at: int, n: int) -> None:
        starts = [start for start in range(at - self.size + 1, at + 1) if start % self.slide == 0]
        live = [start for start in starts if start + self.size - 1 + self.lateness > self.watermark_ms]
        if not live and at + self.lateness <= self.watermark_ms:
            self.late.append((side, k, n if side == 0 else f"p{n}"))
        for start in live:
            window = (k, start, start + self.size)
            sides: Any = self.held.setdefault(window, ([], []))
            sides[side].append(n if side == 0 else f"p{n}")
            if start + self.size - 1 <= self.watermark_ms:
                self.fire(window)

    def watermark(self, at: int) -> None:
        before, self.watermark_ms = self.watermark_ms, max(at, self.watermark_ms)
        for window in list(self.held):
            last = window[2] - 1
            if before < last <= self.watermark_ms:
                self.fire(window)
            if last + self.lateness <= self.watermark_ms:
                del self.held[window]

    def fire(self, window: tuple[str, int, int]) -> None:
        lefts, rights = self.held[window]
        self.fired.append((*window, tuple(lefts), tuple(rights)))


OPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 40)),
        st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 40)),
        st.tuples(st.just("watermark"), st.integers(0, 50)),
        st.tuples(st.just("rescale"), st.integers(1, 4)),
    ),
    max_size=50,
)


@given(st.sampled_from([(10, 10), (20, 5), (5, 20)]), st.sampled_from([0, 15]), OPS)
def test_both_sides_of_each_window_and_their_pairs_are_what_the_model_gives(
    shape: tuple[int, int], lateness: int, ops: list[Any]
) -> None:
    size, slide = shape
    windows = TumblingEventTimeWindows(size * MS) if size == slide else SlidingEventTimeWindows(size * MS, slide * MS)
    settings = {"windows": windows, "allowed_lateness": lateness * MS}
    model = Model(size, slide, lateness)
    both = [TwoInputSubtasks(lambda f=function: grouped(f, **settings)) for function in (Sides(), Pairs())]  # type: ignore[misc]
    late: list[list[Any]] = [[], []]
    for n, op in enumerate([*ops, ("watermark", 1_000)]):
        match op:
            case ("watermark", at):
                model.watermark(at)
                for subtasks in both:
                    subtasks.watermark(model.watermark_ms)
            case ("rescale", parallelism):
                for subtasks in both:
                    subtasks.rescale(parallelism)
            case (side, k, at):
                model.add(side, k, at, n)
                for subtasks in both:
                    push(subtasks, side, k, at, n)
        for found, subtasks in zip(late, both, strict=True):
            found += [(0, row.k, row.n) for row in subtasks.side_output(LATE[0])]
            found += [(1, row.k, row.note[0]) for row in subtasks.side_output(LATE[1])]
    assert late == [model.late, model.late]
    assert Counter(both[0].output()) == Counter(model.fired)
    pairs = [(k, start, end, *pair) for k, start, end, *sides in model.fired for pair in product(*sides)]
    assert Counter(both[1].output()) == Counter(pairs)
    for state in ("records", "__window_timers"):
        assert both[0].physical(state) == {}


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[tuple[int, str, int, int]], int]:
    """Return (side, key, event time, number) in the order of arrival, and how far records are behind at most.

    Event times are even and gaps odd, so that no two windows just touch.
    """
    event = st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 60).map(lambda n: 2 * n))
    bound = draw(st.integers(0, 30))
    events = draw(st.lists(st.tuples(event, st.integers(0, bound)), max_size=40))
    arriving = sorted(events, key=lambda pair: pair[0][2] + pair[1])
    return [(*event, n) for n, (event, _) in enumerate(arriving)], bound


def expected_sessions(events: list[tuple[int, str, int, int]], gap: int) -> list[Any]:
    """Sort the records of both streams, and split where nothing comes for longer than the gap."""
    found = []
    for key in {k for _, k, _, _ in events}:
        own = sorted((at, n, side) for side, k, at, n in events if k == key)
        cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(own)) if b[0] - a[0] > gap), len(own)]
        for start, end in pairwise(cuts):
            part = own[start:end]
            lefts = sorted(n for _, n, side in part if side == 0)
            rights = sorted(f"p{n}" for _, n, side in part if side == 1)
            found.append((key, part[0][0], part[-1][0] + gap, lefts, rights))
    return sorted(found)


@given(arrivals(), st.integers(0, 10).map(lambda n: 2 * n + 1), st.lists(st.integers(1, 4), max_size=4))
def test_a_session_merges_with_both_of_its_sides(
    arriving: tuple[list[tuple[int, str, int, int]], int], gap: int, parallelisms: list[int]
) -> None:
    events, bound = arriving
    subtasks = TwoInputSubtasks(lambda: grouped(windows=EventTimeSessionWindows(gap * MS)))
    newest = 0
    for i, (side, k, at, n) in enumerate(events):
        push(subtasks, side, k, at, n)
        newest = max(newest, at)
        if i % 8 == 7:
            subtasks.watermark(newest - bound - 1)
            if parallelisms:
                subtasks.rescale(parallelisms.pop())
    subtasks.watermark(10_000)
    found = sorted((*head, sorted(lefts), sorted(rights)) for *head, lefts, rights in subtasks.output())
    assert found == expected_sessions(events, gap)
    for state in ("records", "__sessions", "__window_timers"):
        assert subtasks.physical(state) == {}


def test_a_record_of_either_stream_joins_sessions_whose_gap_it_may_name() -> None:
    gaps = DynamicEventTimeSessionWindows(lambda record: 40 if isinstance(record, Payment) else 10)
    tested = TwoInputOperatorHarness(grouped(windows=gaps))
    push(tested, 0, "a", 0, 1)
    push(tested, 0, "a", 45, 2)
    assert len(physical(tested.keyed_backend, "records")) == 2
    push(tested, 1, "a", 8, 3)
    assert list(physical(tested.keyed_backend, "records")) == [(("a",), Window(0, 10))]
    tested.watermark(100)
    assert tested.output == [("a", 0, 55, (1, 2), ("p3",))]


def test_outputs_have_the_last_millisecond_of_their_window_also_of_late_firings() -> None:
    backend, outputs = HeapKeyedStateBackend(128, key_group_range(128, 1, 0), clock := ManualClock()), TimedOutputs()
    operator = ProcessOperator(
        grouped(Pairs(), allowed_lateness=50 * MS), backend, OperatorStateBackend(), outputs,
        clock=clock, subtask=0, parallelism=1, two_inputs=True,
    )  # fmt: skip
    operator.open(restored=False)
    group = key_group_for(("a",), ["string"], 128)
    operator.process([(("a",), group, Order("a", 1), 4)], TWO_INPUTS[0])
    operator.process([(("a",), group, Payment("a", ("p2", [])), 2)], TWO_INPUTS[1])
    operator.advance_watermark(20)
    operator.process([(("a",), group, Payment("a", ("p3", [])), 7)], TWO_INPUTS[1])
    first, second = ["a", 0, 10, 1, "p2", 9], ["a", 0, 10, 1, "p3", 9]
    assert outputs.main == [first, first, second]


def test_a_trigger_counts_the_records_of_both_streams() -> None:
    tested = TwoInputOperatorHarness(grouped(windows=GlobalWindows(), trigger=PurgingTrigger(CountTrigger(3))))
    for n in range(5):
        push(tested, n % 2, "a", None, n)
    assert [output[3:] for output in tested.output] == [((0, 2), ("p1",))]
    push(tested, 1, "a", None, 5)
    assert [output[3:] for output in tested.output[1:]] == [((4,), ("p3", "p5"))]


def test_a_record_that_the_function_fails_on_leaves_its_window_as_it_was() -> None:
    class Failing(Sides):
        def co_group(self, key: Any, context: WindowContext, lefts: list[Any], rights: list[Any]) -> Iterator[Any]:
            if any(each.n < 0 for each in lefts):
                raise ValueError("negative")
            return super().co_group(key, context, lefts, rights)

    tested = TwoInputOperatorHarness(grouped(Failing(), allowed_lateness=50 * MS), on_error=BAD)
    push(tested, 1, "a", 1, 1)
    tested.watermark(20)
    push(tested, 0, "a", 2, -1)
    push(tested, 0, "a", 2, 2)
    assert [output[3:] for output in tested.output] == [((), ("p1",)), ((2,), ("p1",))]
    assert [record for _, record in tested.side_output(BAD)] == ['{"k":"a","n":-1}']


def test_a_join_function_may_return_nothing_and_no_bare_row() -> None:
    class Returning(JoinFunction):
        def __init__(self, returned: Any) -> None:
            self.returned = returned

        def join(self, left: Any, right: Any, context: WindowContext) -> Any:
            return self.returned

    def joined(returned: Any) -> list[Any]:
        tested = TwoInputOperatorHarness(grouped(Returning(returned)))
        push(tested, 0, "a", 1, 1)
        push(tested, 1, "a", 1, 1)
        tested.watermark(20)
        return tested.output

    assert (joined(None), joined([("a", 1)])) == ([], [("a", 1)])
    with pytest.raises(StateError, match=r"found \('a', 1\) returned by join; expected an iterable"):
        joined(("a", 1))


def test_what_cannot_be_is_refused_with_what_to_do() -> None:
    for settings, found in (
        ({"function": object()}, "for a window co-group; expected a CoGroupFunction or a JoinFunction; subclass one"),
        ({"windows": TumblingEventTimeWindows}, "expected a window assigner; pass"),
        ({"allowed_lateness": -MS}, "expected zero or more"),
        ({"right_late": "late"}, "found 'late' as the late output of a window function; expected an OutputTag"),
        ({"windows": GlobalWindows()}, "expected a trigger that fires before the end"),
    ):
        with pytest.raises(ConfigurationError, match=found):
            grouped(**settings)
    with pytest.raises(UnsupportedTypeError, match="found the schema ''"):
        TwoInputOperatorHarness(CoGroupWindowFunction(Sides(), TEN))
    tested = TwoInputOperatorHarness(grouped())
    with pytest.raises(StateError, match="without event time"):
        push(tested, 1, "a", None, 1)
