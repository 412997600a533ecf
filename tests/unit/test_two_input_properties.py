"""Functions of two inputs hold and yield the same however often they are rescaled; joins find what a full search finds.

A rescale goes from one epoch to the next, through snapshots of all subtasks.
"""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from statecore import KeyedCoProcessFunction, ListStateDescriptor, OutputTag, ProcessJoinFunction, ValueStateDescriptor
from statecore.joins import Interval, IntervalJoinFunction
from tests.support.examples import examples
from tests.support.subtasks import TwoInputSubtasks

COLUMNS = "k string, n bigint"
LATE = (OutputTag("late_left", COLUMNS), OutputTag("late_right", COLUMNS))
BALANCE = ValueStateDescriptor("balance", "bigint")
SEEN = ListStateDescriptor("seen", "struct<input:int,n:bigint>")
TIMERS = ("__event_timers", "__processing_timers")

Row = namedtuple("Row", "k n")
Record = namedtuple("Record", "input time row")
# Times are even and watermarks odd. A record at the watermark is not late, as in Flink; but whatever it may match
# may be gone, so that a full search would find too much.
TIMES = st.integers(0, 15).map(lambda n: 2 * n)
RECORD = st.builds(Record, st.sampled_from((1, 2)), TIMES, st.builds(Row, st.sampled_from("abcde"), st.integers(0, 20)))
Epoch = namedtuple("Epoch", "parallelism records advance_ms")
EPOCHS = st.lists(
    st.builds(Epoch, st.integers(1, 7), st.lists(RECORD, max_size=15), st.integers(0, 6).map(lambda n: 2 * n)),
    min_size=2,
    max_size=6,
)


class Account(KeyedCoProcessFunction):
    """Both inputs read and write one balance, one list, and each other's timers."""

    def open(self, ctx: Any) -> None:
        self.balance = ctx.get_state(BALANCE)
        self.seen = ctx.get_list_state(SEEN)

    def process_element1(self, value: Row, ctx: Any) -> Iterator[Any]:
        self.balance.update((self.balance.value() or 0) + value.n)
        self.seen.add((1, value.n))
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)
        ctx.timer_service().delete_processing_time_timer(ctx.current_processing_time() + 1)
        yield self.report(ctx, "paid in")

    def process_element2(self, value: Row, ctx: Any) -> Iterator[Any]:
        self.balance.update((self.balance.value() or 0) - value.n)
        self.seen.add((2, value.n))
        ctx.timer_service().delete_event_time_timer(ctx.timestamp() + 5)
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + 1 + value.n % 3)
        yield self.report(ctx, "paid out")
        if value.n % 5 == 0:
            self.seen.clear()

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield self.report(ctx, f"{ctx.time_domain()} {timestamp_ms}")
        self.balance.clear()

    def report(self, ctx: Any, what: str) -> tuple[Any, ...]:
        return *ctx.get_current_key(), what, self.balance.value(), str(list(self.seen.get()))


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Row, right: Row, ctx: Any) -> Iterator[Any]:
        yield left.k, left.n, right.n, ctx.left_timestamp(), ctx.right_timestamp(), ctx.timestamp()


class Run:
    """One run over epochs, at their parallelisms or alone."""

    def __init__(self, function: Callable[[], KeyedCoProcessFunction]) -> None:
        self.subtasks = TwoInputSubtasks(function)
        self.late: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())

    def epoch(self, epoch: Epoch, number: int, watermark_ms: int) -> None:
        self.subtasks.set_processing_time(number)
        for record in epoch.records:
            push = self.subtasks.process1 if record.input == 1 else self.subtasks.process2
            push(record.row, record.time)
        self.subtasks.watermark(watermark_ms)
        for tag, late in zip(LATE, self.late, strict=True):
            late.update(self.subtasks.side_output(tag))


def both_run(
    function: Callable[[], KeyedCoProcessFunction], epochs: list[Epoch], states: tuple[str, ...]
) -> tuple[Run, list[Any]]:
    """Run epochs with and without rescales, and compare; return the run with rescales and its outputs."""
    undisturbed, rescaled, watermark_ms = Run(function), Run(function), -1
    for number, epoch in enumerate(epochs):
        watermark_ms += epoch.advance_ms
        rescaled.subtasks.rescale(epoch.parallelism)
        for run in (undisturbed, rescaled):
            run.epoch(epoch, number, watermark_ms)
        for state in (*states, *TIMERS):
            assert rescaled.subtasks.physical(state) == undisturbed.subtasks.physical(state), state
    outputs = rescaled.subtasks.output()
    assert Counter(outputs) == Counter(undisturbed.subtasks.output())
    assert rescaled.late == undisturbed.late
    return rescaled, outputs


@given(EPOCHS)
def test_state_and_timers_that_two_inputs_share_survive_rescales(epochs: list[Epoch]) -> None:
    both_run(Account, epochs, (BALANCE.name, SEEN.name))


@examples(300)
@given(EPOCHS, st.tuples(st.integers(-8, 8), st.integers(0, 10)), st.booleans(), st.booleans())
def test_an_interval_join_finds_through_rescales_what_a_full_search_finds(
    epochs: list[Epoch], bounds: tuple[int, int], lower_exclusive: bool, upper_exclusive: bool
) -> None:
    lower_ms, upper_ms = bounds[0], sum(bounds)
    interval = Interval(
        timedelta(milliseconds=lower_ms), timedelta(milliseconds=upper_ms), lower_exclusive, upper_exclusive
    )
    run, outputs = both_run(
        lambda: IntervalJoinFunction(Pairs(), interval, COLUMNS, COLUMNS, left_late=LATE[0], right_late=LATE[1]),
        epochs,
        ("left", "right"),
    )

    first_ms, last_ms = lower_ms + lower_exclusive, upper_ms - upper_exclusive
    in_time: tuple[list[Record], list[Record]] = ([], [])
    late: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
    watermark_ms = -1
    for epoch in epochs:
        for record in epoch.records:
            if record.time < watermark_ms:
                late[record.input - 1][record.row] += 1
            else:
                in_time[record.input - 1].append(record)
        watermark_ms += epoch.advance_ms
    assert run.late == late
    assert Counter(outputs) == Counter(
        (*left.row, right.row.n, left.time, right.time, max(left.time, right.time))
        for left in in_time[0]
        for right in in_time[1]
        if left.row.k == right.row.k and first_ms <= right.time - left.time <= last_ms
    )
    # A record stays as long as one after the watermark may match it.
    for name, records, reach_ms in (("left", in_time[0], last_ms), ("right", in_time[1], -first_ms)):
        kept = Counter((*each.row, each.time) for each in records if each.time + max(reach_ms, 0) > watermark_ms)
        assert kept == buffered(run.subtasks, name), name


def buffered(subtasks: TwoInputSubtasks, name: str) -> Counter[tuple[str, int, int]]:
    return Counter(
        (*row, time) for times in subtasks.physical(name).values() for time, rows in times.items() for row in rows
    )
