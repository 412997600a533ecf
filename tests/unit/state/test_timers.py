"""Timers: each fires once, in order, under its key, wherever that key is by then."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from heapq import heappush
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    HeapKeyedStateBackend,
    KeyedProcessFunction,
    KeyGroupRange,
    TimeDomain,
    ValueStateDescriptor,
    Window,
    key_group_for,
    key_group_range,
)
from statecore.errors import StateTypeError
from statecore.model import StateKind, key_encoder
from statecore.snapshot.keyed_files import KeyedRows
from statecore.snapshot.live_rows import apply_rows
from statecore.state.tables import TableSchema, joined_scope, split_scope
from statecore.state.timers import EVENT_TIMERS, TimerTable, new_table
from statecore.testing import HarnessSnapshot, KeyedOperatorHarness, ManualClock, physical
from tests.support.examples import examples

Do = namedtuple("Do", ["k", "act"])
LAST = 2**63 - 1


class Acting(KeyedProcessFunction):
    """Does with the timer service what a record says, and yields (key, timestamp, domain) for every firing.

    Args:
        then: Called when a timer fires, with the timestamp and the context.

    """

    def __init__(self, then: Callable[[int, Any], None] = lambda timestamp, ctx: None) -> None:
        self._then = then

    def process_element(self, value: Do, ctx: Any) -> None:
        value.act(ctx.timer_service())

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        self._then(timestamp_ms, ctx)
        yield ctx.get_current_key()[0], timestamp_ms, ctx.time_domain()


def event(*timestamps: int) -> Callable[[Any], Any]:
    return lambda service: [service.register_event_time_timer(timestamp) for timestamp in timestamps] and None


def fired(harness: KeyedOperatorHarness) -> list[tuple[Any, int]]:
    return [(key, timestamp) for key, timestamp, _ in harness.output]


class TestFiring:
    def test_a_timer_fires_once_when_its_time_has_come_and_not_before(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.process(Do("a", event(10)))
        tested.watermark(9)
        assert tested.output == []
        tested.watermark(10)
        tested.watermark(11)
        assert tested.output == [("a", 10, TimeDomain.EVENT_TIME)]

    def test_a_timer_registered_twice_fires_once(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.process(Do("a", event(10, 10)))
        tested.process(Do("a", event(10)))
        tested.watermark(10)
        assert fired(tested) == [("a", 10)]

    def test_a_timer_that_fired_may_be_registered_again(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        for _ in range(2):
            tested.process(Do("a", event(10)))
            tested.watermark(10)
        assert fired(tested) == [("a", 10), ("a", 10)]

    def test_a_timer_in_the_past_fires_with_the_next_watermark(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.watermark(100)
        tested.process(Do("a", event(10)))
        assert tested.output == []
        tested.watermark(100)
        assert fired(tested) == [("a", 10)]

    def test_timers_of_all_keys_fire_in_the_order_of_their_timestamps(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        for n in range(50):
            tested.process(Do(f"k{n}", event((n * 37) % 50, 100 + n)))
        tested.watermark(LAST)
        assert [timestamp for _, timestamp in fired(tested)] == [*range(50), *range(100, 150)]

    def test_a_deleted_timer_does_not_fire_and_others_do(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.process(Do("a", event(10, 20, 30)))
        tested.process(Do("b", event(10)))
        tested.process(Do("a", lambda service: service.delete_event_time_timer(10)))
        tested.process(Do("a", lambda service: service.delete_event_time_timer(30)))
        tested.process(Do("a", lambda service: service.delete_event_time_timer(99)))
        tested.watermark(LAST)
        assert fired(tested) == [("b", 10), ("a", 20)]

    def test_a_timer_deleted_and_registered_again_fires_once(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.process(Do("a", event(10)))
        tested.watermark(0)
        tested.process(Do("a", lambda service: service.delete_event_time_timer(10)))
        tested.process(Do("a", event(10)))
        tested.watermark(LAST)
        assert fired(tested) == [("a", 10)]

    def test_a_timer_that_is_moved_with_every_record_fires_once_at_its_last_place(self) -> None:
        def move(n: int) -> Callable[[Any], None]:
            def act(service: Any) -> None:
                service.delete_event_time_timer(n - 1)
                service.register_event_time_timer(n)

            return act

        tested = KeyedOperatorHarness(Acting(), max_parallelism=1)
        tested.process(Do("other", event(150, 400)))
        for n in range(300):
            tested.process(Do("a", move(n)))
            if n % 50 == 0:
                tested.watermark(n - 1)
        assert tested.output == [("other", 150, TimeDomain.EVENT_TIME)]
        tested.watermark(LAST)
        assert fired(tested)[1:] == [("a", 299), ("other", 400)]

    def test_a_timer_registered_while_firing_and_due_already_fires_in_the_same_run_and_in_order(self) -> None:
        def then(timestamp: int, ctx: Any) -> None:
            if timestamp == 10:
                for later in (25, 15, 5, 99):
                    ctx.timer_service().register_event_time_timer(later)

        tested = KeyedOperatorHarness(Acting(then))
        tested.process(Do("a", event(10)))
        tested.process(Do("b", event(20)))
        tested.watermark(30)
        assert fired(tested) == [("a", 10), ("a", 5), ("a", 15), ("b", 20), ("a", 25)]
        tested.watermark(99)
        assert fired(tested)[5:] == [("a", 99)]

    def test_a_timer_deleted_while_another_fires_does_not_fire(self) -> None:
        tested = KeyedOperatorHarness(Acting(lambda _, ctx: ctx.timer_service().delete_event_time_timer(20)))
        tested.process(Do("a", event(10, 20)))
        tested.process(Do("b", event(20)))
        tested.watermark(30)
        assert fired(tested) == [("a", 10), ("b", 20)]

    def test_event_and_processing_time_are_apart(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.process(Do("a", event(10)))
        tested.process(Do("a", lambda service: service.register_processing_time_timer(10)))
        tested.process(Do("a", lambda service: service.register_processing_time_timer(20)))
        tested.process(Do("a", lambda service: service.delete_event_time_timer(20)))
        tested.set_processing_time(10)
        assert tested.output == [("a", 10, TimeDomain.PROCESSING_TIME)]
        tested.watermark(30)
        assert tested.output[1:] == [("a", 10, TimeDomain.EVENT_TIME)]
        tested.process(Do("a", lambda service: service.delete_processing_time_timer(20)))
        tested.set_processing_time(30)
        assert len(tested.output) == 2

    @pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, LAST])
    def test_timers_reach_from_the_first_to_the_last_timestamp(self, timestamp: int) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.process(Do("a", event(timestamp)))
        if timestamp > -(2**63):
            tested.watermark(timestamp - 1)
            assert tested.output == []
        tested.watermark(timestamp)
        assert fired(tested) == [("a", timestamp)]

    @pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1, 1.0, "1", True, None])
    @pytest.mark.parametrize("domain", ["event", "processing"])
    @pytest.mark.parametrize("what", ["register", "delete"])
    def test_a_timestamp_that_is_no_64_bit_integer_is_refused(self, timestamp: Any, domain: str, what: str) -> None:
        tested = KeyedOperatorHarness(Acting())
        with pytest.raises(StateTypeError, match=r"found the timestamp .*; expected milliseconds .* 64-bit"):
            tested.process(Do("a", lambda service: getattr(service, f"{what}_{domain}_time_timer")(timestamp)))
        assert physical(tested.keyed_backend, f"__{domain}_timers") == {}

    def test_a_namespace_has_its_own_timers_and_they_fire_within_it(self) -> None:
        seen = []

        class Windowed(Acting):
            def open(self, ctx: Any) -> None:
                self.backend = ctx.keyed_backend
                self.state = ctx.get_state(ValueStateDescriptor("s", "int"))

            def process_element(self, value: Do, ctx: Any) -> None:
                for n, window in enumerate((None, Window(0, 10), Window(10, 20))):
                    self.backend.set_current_namespace(window)
                    self.state.update(n)
                    ctx.timer_service().register_event_time_timer(10)
                self.backend.set_current_namespace(Window(0, 10))
                ctx.timer_service().delete_event_time_timer(10)
                self.backend.set_current_namespace(None)

            def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
                seen.append((self.backend.namespace, self.state.value(), ctx.get_current_key()))
                yield from ()

        tested = KeyedOperatorHarness(Windowed())
        tested.process(Do("a", None))
        tested.watermark(10)
        assert sorted(seen, key=str) == [(None, 0, ("a",)), (Window(10, 20), 2, ("a",))]
        assert tested.keyed_backend.namespace is None


class TestRescale:
    def test_timers_survive_a_rescale_and_each_fires_once(self) -> None:
        old = [KeyedOperatorHarness(Acting(), parallelism=2, subtask=index) for index in range(2)]
        keys = [f"k{n}" for n in range(40)]
        for n, key in enumerate(keys):
            own = old[0] if key_group_for((key,), ["string"], 128) < 64 else old[1]
            own.process(Do(key, event(n, 1_000 + n)))
            own.process(Do(key, lambda service: service.register_processing_time_timer(5)))
        for each in old:
            each.watermark(19)
        new = [
            KeyedOperatorHarness(Acting(), parallelism=3, subtask=index, restore_from=[each.snapshot() for each in old])
            for index in range(3)
        ]
        for each in new:
            each.watermark(LAST)
            each.set_processing_time(5)
        found = sorted(output for each in [*old, *new] for output in each.output)
        assert found == sorted(
            [(key, n, TimeDomain.EVENT_TIME) for n, key in enumerate(keys)]
            + [(key, 1_000 + n, TimeDomain.EVENT_TIME) for n, key in enumerate(keys)]
            + [(key, 5, TimeDomain.PROCESSING_TIME) for key in keys]
        )
        assert all(each.output for each in new)

    def test_timers_of_one_timestamp_fire_in_the_same_order_before_and_after_a_restore(self) -> None:
        def run(keys: Sequence[str], *, restored: bool) -> list[Any]:
            tested = KeyedOperatorHarness(Acting(), max_parallelism=4)
            for key in keys:
                tested.process(Do(key, event(10)))
            if restored:
                tested = KeyedOperatorHarness(Acting(), max_parallelism=4, restore_from=tested.snapshot())
            tested.watermark(10)
            return fired(tested)

        keys = [f"k{n}" for n in range(30)]
        expected = run(keys, restored=False)
        places = sorted((key_group_for((key,), ["string"], 4), repr((key,)), key) for key in keys)
        assert expected == [(key, 10) for _, _, key in places]
        assert run(keys[::-1], restored=False) == expected
        assert run(keys, restored=True) == expected
        assert run(keys[::-1], restored=True) == expected

    def test_a_snapshot_is_isolated_from_timers_that_come_and_go_later(self) -> None:
        tested = KeyedOperatorHarness(Acting())
        tested.process(Do("a", event(10, 20)))
        taken: HarnessSnapshot = tested.snapshot()
        tested.process(Do("a", event(30)))
        tested.watermark(15)
        restored = KeyedOperatorHarness(Acting(), restore_from=taken)
        restored.watermark(LAST)
        assert fired(restored) == [("a", 10), ("a", 20)]

    @pytest.mark.parametrize("heaped", [True, False], ids=["with heaps", "without"])
    def test_a_key_group_given_away_takes_its_timers_along(self, heaped: bool) -> None:
        source, taker = (HeapKeyedStateBackend(8, KeyGroupRange(0, 7), ManualClock()) for _ in range(2))
        timers, taken = source.timers(EVENT_TIMERS), taker.timers(EVENT_TIMERS)
        for group in (3, 4):
            for timestamp in (5, 20, 10):
                timers.register(group, (group,), timestamp)
        taken.register(1, (1,), 15)
        if heaped:
            assert list(timers.due(0)) == []
            assert list(taken.due(0)) == []
        taker.attach_key_group(3, source.detach_key_group(3))
        assert drained(timers) == [(5, (4,)), (10, (4,)), (20, (4,))]
        assert drained(taken, 5) == [(5, (3,))]
        taken.register(3, (3,), 12)
        assert drained(taken) == [(10, (3,)), (12, (3,)), (15, (1,)), (20, (3,))]

    def test_timers_that_a_changelog_brings_to_a_key_group_at_work_fire_in_their_order(self) -> None:
        backend = HeapKeyedStateBackend(8, KeyGroupRange(0, 7), ManualClock())
        timers = backend.timers(EVENT_TIMERS)
        timers.register(3, ("a",), 10)
        timers.register(3, ("b",), 20)
        assert list(timers.due(0)) == []
        rows = KeyedRows(keys=[("a",), ("c",)], key_groups=[3, 3], values=[[30], [15]], deleted=[False, False])
        apply_rows(backend.restored_table(EVENT_TIMERS, timers.schema), rows, {3}, key_encoder(["string"]))
        assert drained(timers) == [(15, ("c",)), (20, ("b",)), (30, ("a",))]

    def test_what_is_registered_deleted_or_fired_is_a_change_and_what_is_there_already_is_none(self) -> None:
        timers: Any = new_table("t", TableSchema(StateKind.TIMERS, "bigint"))

        def changed() -> dict[int, set[Any]]:
            found = {group: set(scopes) for group, scopes in timers.changed.items() if scopes}
            timers.clear_changes()
            return found

        timers.register(3, ("a",), 10)
        timers.register(3, ("a",), 20)
        timers.register(4, ("b",), 20)
        assert changed() == {3: {("a",)}, 4: {("b",)}}
        timers.register(3, ("a",), 10)
        timers.delete(3, ("a",), 99)
        timers.delete(5, ("nobody",), 10)
        assert list(timers.due(9)) == []
        assert changed() == {}
        timers.delete(3, ("a",), 10)
        assert changed() == {3: {("a",)}}
        assert drained(timers) == [(20, ("a",)), (20, ("b",))]
        assert changed() == {3: {("a",)}, 4: {("b",)}}


def drained(timers: TimerTable, now_ms: int = LAST) -> list[tuple[int, Any]]:
    return [(timer.timestamp, timer.scope) for timer in timers.due(now_ms)]


SCOPES = st.sampled_from([("a",), ("b",), (None,), joined_scope(("a",), Window(0, 10))])


def place_in_order(timestamp: int, group: int, scope: Any) -> tuple[int, int, str]:
    key, window = split_scope(scope)
    return timestamp, group, f"{key}{'' if window is None else tuple(window)}"


STEPS = st.one_of(
    st.tuples(st.just("register"), st.integers(0, 3), SCOPES, st.integers(0, 12)),
    st.tuples(st.just("delete"), st.integers(0, 3), SCOPES, st.integers(0, 12)),
    st.tuples(st.just("fire"), st.integers(0, 12)),
    st.tuples(st.just("look")),
    st.tuples(st.just("move"), st.integers(0, 3)),
)


@examples(60)
@given(st.lists(STEPS, max_size=60))
def test_timers_fire_as_a_sorted_set_would(steps: list[Any]) -> None:
    timers: Any = new_table("t", TableSchema(StateKind.TIMERS, "bigint"))
    expected: set[Any] = set()
    for step, *arguments in steps:
        if step == "register":
            timers.register(*arguments)
            expected.add(place_in_order(arguments[2], arguments[0], arguments[1]))
        elif step == "delete":
            timers.delete(*arguments)
            expected.discard(place_in_order(arguments[2], arguments[0], arguments[1]))
        elif step == "move":
            detached = timers.detach(arguments[0])
            if detached is not None:
                timers.attach(arguments[0], detached)
        elif step == "look":
            assert timers.earliest() == min((timer[0] for timer in expected), default=None)
        else:
            due = sorted(timer for timer in expected if timer[0] <= arguments[0])
            found = [place_in_order(*timer) for timer in timers.due(arguments[0])]
            assert found == due
            expected.difference_update(due)
    held = {
        place_in_order(timestamp, group, scope)
        for group, rows in timers.groups.items()
        for scope, of in rows.items()
        for timestamp in of
    }
    assert held == expected


@examples(150)
@given(
    st.lists(st.tuples(st.integers(0, 3), SCOPES, st.integers(0, 12)), min_size=1, max_size=20),
    st.lists(st.lists(STEPS.filter(lambda step: step[0] in ("register", "delete")), max_size=3), max_size=20),
    st.booleans(),
)
def test_what_is_registered_or_deleted_while_timers_fire_counts_at_once(
    registered: list[Any], meanwhile: list[list[Any]], heaped: bool
) -> None:
    timers: Any = new_table("t", TableSchema(StateKind.TIMERS, "bigint"))
    expected: set[Any] = set()

    def change(step: str, group: int, scope: Any, timestamp: int) -> None:
        getattr(timers, step)(group, scope, timestamp)
        timer = place_in_order(timestamp, group, scope)
        expected.add(timer) if step == "register" else expected.discard(timer)

    if heaped:
        assert timers.earliest() is None
    for each in registered:
        change("register", *each)
    steps = iter(meanwhile)
    for timer in timers.due(9):
        fired = place_in_order(*timer)
        assert fired == min(expected)
        expected.remove(fired)
        for step in next(steps, []):
            change(*step)
    assert not [timestamp for timestamp, *_ in expected if timestamp <= 9]
    assert [place_in_order(*timer) for timer in timers.due(LAST)] == sorted(expected)


def test_timers_that_have_not_fired_when_a_function_fails_are_still_there() -> None:
    timers: Any = new_table("t", TableSchema(StateKind.TIMERS, "bigint"))
    for timestamp in (10, 20, 30):
        timers.register(timestamp % 4, ("a",), timestamp)
    due = timers.due(25)
    assert next(due).timestamp == 10
    due.close()
    assert drained(timers) == [(20, ("a",)), (30, ("a",))]


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50)), max_size=40), st.integers(1, 8), st.integers(1, 8))
def test_the_timers_of_all_subtasks_are_neither_lost_nor_doubled_by_a_rescale(
    registered: list[tuple[int, int]], old: int, new: int
) -> None:
    before = [HeapKeyedStateBackend(16, key_group_range(16, old, index), ManualClock()) for index in range(old)]
    for key, timestamp in registered:
        own = next(each for each in before if key % 16 in each.key_groups)
        own.timers(EVENT_TIMERS).register(key % 16, (key,), timestamp)
    found: list[Any] = []
    for index in range(new):
        after = HeapKeyedStateBackend(16, key_group_range(16, new, index), ManualClock())
        after.restore([each.snapshot() for each in before])
        own_timers = drained(after.timers(EVENT_TIMERS))
        assert [timestamp for timestamp, _ in own_timers] == sorted(timestamp for timestamp, _ in own_timers)
        found += own_timers
    assert sorted(found) == sorted({(timestamp, (key,)) for key, timestamp in registered})


def test_timers_cost_the_same_whether_some_have_fired_before_or_not() -> None:
    """A head is noted once for a key group, however many timers are registered under it."""
    timers = new_table("t", TableSchema(StateKind.TIMERS, "bigint"))
    assert isinstance(timers, TimerTable)
    assert list(timers.due(0)) == []
    for timestamp in range(2_000, 0, -1):
        timers.register(0, (f"k{timestamp}",), timestamp)
    pushed = 0

    def counted(heap: list[Any], entry: Any) -> None:
        nonlocal pushed
        pushed += 1
        heappush(heap, entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("statecore.state.timers.heappush", counted)
        fired = [timer.timestamp for timer in timers.due(2_000)]
    assert fired == list(range(1, 2_001))
    assert pushed <= 2_000
