"""What functions are given, and what they may do with it, on each side of a stream."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastProcessFunction,
    CheckpointedFunction,
    HeapKeyedStateBackend,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    OutputTag,
    ProcessFunction,
    ReducingStateDescriptor,
    StateTtlConfig,
    TimeDomain,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    Window,
    WindowFunction,
)
from statecore.errors import (
    ConfigurationError,
    NoCurrentKeyError,
    StateConflictError,
    StateError,
    StateMigrationError,
    StateTypeError,
)
from statecore.state import ProcessOperator
from statecore.testing import BroadcastOperatorHarness, KeyedOperatorHarness, ManualClock, physical

Row = namedtuple("Row", "k n")
TOTAL = ValueStateDescriptor("total", "bigint")
RULES = MapStateDescriptor("rules", "string", "bigint")
OTHERS = MapStateDescriptor("others", "string", "bigint")
LATE = OutputTag("late", "k string")
NOT_YET = -(2**63)

Act = Callable[[Any, Any], Any]


class Plain(ProcessFunction):
    """Does with (value, context) what it was told."""

    def __init__(self, act: Act) -> None:
        self.act = act

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.act(value, ctx)


class Keyed(KeyedProcessFunction):
    """Does with (value, context) what it was told; ``timer`` with (timestamp, context)."""

    def __init__(self, act: Act, timer: Act = lambda timestamp, ctx: None) -> None:
        self.act = act
        self.timer = timer

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(TOTAL)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.act(value, ctx)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield self.timer(timestamp_ms, ctx)


class Broadcast(BroadcastProcessFunction):
    """Does with (value, context) what it was told on each side."""

    def __init__(self, act: Act, broadcast: Act = lambda value, ctx: None) -> None:
        self.act = act
        self.broadcast = broadcast

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.act(value, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.broadcast(value, ctx)


class KeyedBroadcast(KeyedBroadcastProcessFunction):
    """Does with (value, context) what it was told on each side."""

    def __init__(
        self,
        act: Act = lambda value, ctx: None,
        broadcast: Act = lambda value, ctx: None,
        timer: Act = lambda timestamp, ctx: None,
        states: Sequence[Any] = (TOTAL,),
    ) -> None:
        self.act = act
        self.broadcast = broadcast
        self.timer = timer
        self.descriptors = states

    def open(self, ctx: Any) -> None:
        getters = {
            "value": ctx.get_state, "list": ctx.get_list_state, "map": ctx.get_map_state,
            "reducing": ctx.get_reducing_state, "aggregating": ctx.get_aggregating_state,
        }  # fmt: skip
        self.states = {each.name: getters[each.kind](each) for each in self.descriptors}

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.act(value, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.broadcast(value, ctx)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield self.timer(timestamp_ms, ctx)


def put(value: Any, ctx: Any) -> None:
    ctx.get_broadcast_state(RULES).put(*value)


WRITES: dict[str, Callable[[Any], Any]] = {
    "put": lambda state: state.put("x", 1),
    "put_all": lambda state: state.put_all({"x": 1}),
    "remove": lambda state: state.remove("a"),
    "clear": lambda state: state.clear(),
}
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))


class TestBroadcastState:
    """The rules of Flink's documentation of the broadcast state pattern."""

    def test_the_broadcast_side_reads_and_writes_and_the_other_side_sees_it(self) -> None:
        def change(value: Any, ctx: Any) -> Any:
            state = ctx.get_broadcast_state(RULES)
            state.put_all({"a": 1, "b": 2, "c": 3})
            state.put("a", 4)
            state.remove("b")
            return sorted(state.items()), state.get("a"), state.contains("b"), state.is_empty()

        def look(value: Any, ctx: Any) -> Any:
            state = ctx.get_broadcast_state(RULES)
            return sorted(state.keys()), sorted(state.values()), state.contains("a"), state.get("z"), state.is_empty()

        for key in (None, lambda value: (value.k,)):
            function = Broadcast(look, change) if key is None else KeyedBroadcast(look, change)
            tested = BroadcastOperatorHarness(function, [RULES], key=key)
            tested.process(Row("k", 1))
            tested.process_broadcast("go")
            tested.process(Row("k", 1))
            assert tested.output == [
                ([], [], False, None, True),
                ([("a", 4), ("c", 3)], 4, False, False),
                (["a", "c"], [3, 4], True, None, False),
            ]

    @each_write
    @pytest.mark.parametrize("key", [None, lambda value: (value.k,)], ids=["plain", "keyed"])
    def test_the_other_side_cannot_write(self, write: Callable[[Any], Any], key: Any) -> None:
        def act(value: Any, ctx: Any) -> None:
            write(ctx.get_broadcast_state(RULES))

        tested = BroadcastOperatorHarness(
            Broadcast(act, put) if key is None else KeyedBroadcast(act, put), [RULES], key=key
        )
        tested.process_broadcast(("a", 1))
        with pytest.raises(StateError, match=r"on broadcast state 'rules' outside of process_broadcast_element; exp"):
            tested.process(Row("k", 1))
        assert tested.operator_backend.snapshot()["rules"].elements == ({"a": 1},)

    @each_write
    @pytest.mark.parametrize("domain", ["event", "processing"])
    def test_a_timer_cannot_write_and_can_read(self, write: Callable[[Any], Any], domain: str) -> None:
        seen = []

        def on_timer(timestamp: int, ctx: Any) -> None:
            seen.append(ctx.get_broadcast_state(RULES).get("a"))
            write(ctx.get_broadcast_state(RULES))

        def register(value: Any, ctx: Any) -> None:
            getattr(ctx.timer_service(), f"register_{domain}_time_timer")(10)

        tested = BroadcastOperatorHarness(KeyedBroadcast(register, put, on_timer), [RULES], key=lambda v: (v.k,))
        tested.process_broadcast(("a", 1))
        tested.process(Row("k", 1))
        with pytest.raises(StateError, match="outside of process_broadcast_element") as info:
            tested.watermark(10) if domain == "event" else tested.set_processing_time(10)
        assert info.value.__notes__ == [f"subtask 0, epoch 0, key ('k',), {domain}_time timer 10"]
        assert seen == [1]
        assert tested.operator_backend.snapshot()["rules"].elements == ({"a": 1},)

    @pytest.mark.parametrize("side", ["process", "process_broadcast"])
    def test_a_state_that_was_not_declared_is_refused_and_the_declared_ones_are_named(self, side: str) -> None:
        def ask(value: Any, ctx: Any) -> None:
            ctx.get_broadcast_state(MapStateDescriptor("typo", "string", "bigint"))

        tested = BroadcastOperatorHarness(Broadcast(ask, ask), [RULES, OTHERS])
        message = (
            r"request for the broadcast state 'typo'; expected one of the declared \['others', 'rules'\]; declare it"
        )
        with pytest.raises(StateError, match=message):
            getattr(tested, side)(Row("k", 1))

    def test_a_declared_state_asked_for_with_another_type_is_refused(self) -> None:
        def ask(value: Any, ctx: Any) -> None:
            ctx.get_broadcast_state(MapStateDescriptor("rules", "string", "string"))

        with pytest.raises(StateConflictError, match="'rules'"):
            BroadcastOperatorHarness(Broadcast(ask), [RULES]).process(Row("k", 1))

    def test_a_declared_state_that_nobody_wrote_is_there_and_empty(self) -> None:
        tested = BroadcastOperatorHarness(Broadcast(lambda value, ctx: None), [RULES])
        assert tested.operator_backend.registered_broadcast_state_names() == ["rules"]
        assert tested.snapshot().operator["rules"].elements == ({},)

    def test_the_state_stays_declared_after_a_restore(self) -> None:
        def look(value: Any, ctx: Any) -> Any:
            return dict(ctx.get_broadcast_state(RULES).items())

        first = BroadcastOperatorHarness(Broadcast(look, put), [RULES])
        first.process_broadcast(("a", 1))
        second = BroadcastOperatorHarness(Broadcast(look, put), [RULES], restore_from=first.snapshot())
        second.process(Row("k", 1))
        assert second.output == [{"a": 1}]

    def test_on_the_broadcast_side_there_is_no_key_no_keyed_state_and_no_timer(self) -> None:
        def use(ctx: Any, what: str) -> None:
            {
                "state": lambda: function.states["total"].value(),  # type: ignore[attr-defined]
                "key": lambda: ctx.get_current_key(),
                "event": lambda: ctx.timer_service().register_event_time_timer(1),
                "processing": lambda: ctx.timer_service().register_processing_time_timer(1),
                "delete": lambda: ctx.timer_service().delete_event_time_timer(1),
            }[what]()

        function = KeyedBroadcast(broadcast=lambda value, ctx: use(ctx, value))
        tested = BroadcastOperatorHarness(function, [RULES], key=lambda v: (v.k,))
        tested.process(Row("k", 1))
        for what in ("state", "key", "event", "processing", "delete"):
            with pytest.raises(NoCurrentKeyError):
                tested.process_broadcast(what)


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


STATES = [
    TOTAL,
    ListStateDescriptor("list", "bigint"),
    MapStateDescriptor("map", "bigint", "bigint"),
    ReducingStateDescriptor("reducing", "bigint", reduce=lambda a, b: a + b),
    AggregatingStateDescriptor("aggregating", "bigint", aggregate=Sum()),
]


def write_all(states: dict[str, Any], n: int) -> None:
    states["total"].update(n)
    states["list"].add(n)
    states["map"].put(n, n)
    states["reducing"].add(n)
    states["aggregating"].add(n)


def read(state: Any) -> Any:
    if hasattr(state, "value"):
        return state.value()
    if hasattr(state, "items"):
        return dict(state.items())
    found = state.get()
    return list(found) if hasattr(found, "__next__") else found


class TestApplyToKeyedState:
    def over_all_states(self, broadcast: Act, **settings: Any) -> tuple[BroadcastOperatorHarness, KeyedBroadcast]:
        function = KeyedBroadcast(lambda value, ctx: write_all(function.states, value.n), broadcast, states=STATES)  # type: ignore[attr-defined]
        return BroadcastOperatorHarness(function, [RULES], key=lambda v: (v.k,), **settings), function

    @pytest.mark.parametrize(
        ("descriptor", "one"),
        list(zip(STATES, [3, [3], {3: 3}, 3, 3], strict=True)),
        ids=lambda of: getattr(of, "name", ""),
    )
    def test_it_sees_every_key_that_has_the_state(self, descriptor: Any, one: Any) -> None:
        seen: dict[Any, Any] = {}

        def look(value: Any, ctx: Any) -> None:
            ctx.apply_to_keyed_state(descriptor, lambda key, state: seen.update({key: read(state)}))

        tested, _ = self.over_all_states(look)
        for n in range(30):
            tested.process(Row(f"k{n}", 3))
        tested.process_broadcast("go")
        assert seen == {(f"k{n}",): one for n in range(30)}

    def test_a_key_that_lost_the_state_is_not_seen(self) -> None:
        seen = []

        def look(value: Any, ctx: Any) -> None:
            ctx.apply_to_keyed_state(TOTAL, lambda key, state: seen.append(key))

        function = KeyedBroadcast(lambda value, ctx: function.states["total"].update(value.n), look)  # type: ignore[attr-defined]
        tested = BroadcastOperatorHarness(function, [RULES], key=lambda v: (v.k,))
        tested.process(Row("a", 1))
        tested.process(Row("b", 1))
        tested.process(Row("a", None))
        tested.process_broadcast("go")
        assert seen == [("b",)]

    def test_it_may_change_and_clear_the_state_of_each_key(self) -> None:
        def change(key: Any, state: Any) -> None:
            if state.value() % 2:
                state.clear()
            else:
                state.update(state.value() * 10)

        tested, _ = self.over_all_states(lambda value, ctx: ctx.apply_to_keyed_state(TOTAL, change))
        for n in range(6):
            tested.process(Row(f"k{n}", n))
        tested.process_broadcast("go")
        assert physical(tested.keyed_backend, "total") == {("k0",): 0, ("k2",): 20, ("k4",): 40}

    def test_it_may_use_other_state_of_each_key(self) -> None:
        def copy(key: Any, state: Any) -> None:
            function.states["list"].add(state.value() + 100)  # type: ignore[attr-defined]

        tested, function = self.over_all_states(lambda value, ctx: ctx.apply_to_keyed_state(TOTAL, copy))
        for k in "ab":
            tested.process(Row(k, 1))
        tested.process_broadcast("go")
        assert physical(tested.keyed_backend, "list") == {("a",): [1, 101], ("b",): [1, 101]}

    def test_it_sees_the_keys_of_its_subtask_alone(self) -> None:
        seen: list[list[Any]] = [[], []]

        def look(subtask: int) -> Act:
            return lambda value, ctx: ctx.apply_to_keyed_state(TOTAL, lambda key, state: seen[subtask].append(key[0]))

        both = [self.over_all_states(look(subtask), parallelism=2, subtask=subtask)[0] for subtask in range(2)]
        for n in range(20):
            for each in both:
                try:
                    each.process(Row(f"k{n}", 1))
                except StateError:
                    continue
        for each in both:
            each.process_broadcast("go")
        assert all(seen)
        assert sorted(seen[0] + seen[1]) == sorted(f"k{n}" for n in range(20))

    def test_afterwards_there_is_no_current_key_also_when_it_failed(self) -> None:
        tested, function = self.over_all_states(
            lambda value, ctx: ctx.apply_to_keyed_state(TOTAL, lambda key, state: 1 // value)
        )
        tested.process(Row("a", 1))
        for value in (1, 0):
            try:
                tested.process_broadcast(value)
            except ZeroDivisionError:
                assert value == 0
            with pytest.raises(NoCurrentKeyError):
                function.states["total"].value()

    def test_without_keys_it_is_refused(self) -> None:
        function = Broadcast(
            lambda value, ctx: None, lambda value, ctx: ctx.apply_to_keyed_state(TOTAL, lambda key, state: None)
        )
        with pytest.raises(StateError, match="apply_to_keyed_state in a function without keys; expected a Keyed"):
            BroadcastOperatorHarness(function, [RULES]).process_broadcast(1)

    def test_state_of_windows_is_not_state_of_the_key(self) -> None:
        seen = []
        tested, _ = self.over_all_states(
            lambda value, ctx: ctx.apply_to_keyed_state(TOTAL, lambda key, state: seen.append((key, state.value())))
        )
        tested.process(Row("a", 1))
        backend = tested.keyed_backend
        backend.set_current_key(("a",), next(iter(backend.tables["total"].groups)))
        backend.set_current_namespace(Window(0, 10))
        backend.get_value_state(TOTAL).update(9)
        backend.set_current_namespace(None)
        tested.process_broadcast("go")
        assert seen == [(("a",), 1)]


def times(value: Any, ctx: Any) -> Any:
    service = ctx.timer_service()
    assert service.current_watermark() == ctx.current_watermark()
    assert service.current_processing_time() == ctx.current_processing_time()
    return ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time()


class TestTime:
    @pytest.mark.parametrize(
        "tested",
        [
            lambda: KeyedOperatorHarness(Plain(times), key=None),
            lambda: KeyedOperatorHarness(Keyed(times)),
            lambda: BroadcastOperatorHarness(Broadcast(times), [RULES]),
            lambda: BroadcastOperatorHarness(KeyedBroadcast(times), [RULES], key=lambda v: (v.k,)),
        ],
        ids=["plain", "keyed", "broadcast", "keyed broadcast"],
    )
    def test_every_context_tells_timestamp_watermark_and_processing_time(self, tested: Callable[[], Any]) -> None:
        harness = tested()
        harness.process(Row("a", 1))
        harness.watermark(50)
        harness.set_processing_time(7)
        harness.process(Row("a", 1), 40)
        harness.process(Row("a", 1))
        assert harness.output == [(None, NOT_YET, 0), (40, 50, 7), (None, 50, 7)]

    def test_the_broadcast_side_tells_the_time_too(self) -> None:
        tested = BroadcastOperatorHarness(Broadcast(lambda value, ctx: None, times), [RULES])
        tested.watermark(50)
        tested.set_processing_time(7)
        tested.process_broadcast("x", 40)
        tested.process_broadcast("x")
        assert tested.output == [(40, 50, 7), (None, 50, 7)]

    def test_the_watermark_never_goes_back(self) -> None:
        tested = KeyedOperatorHarness(Keyed(times))
        for watermark, expected in ((10, 10), (5, 10), (10, 10), (11, 11), (-(2**63), 11)):
            tested.watermark(watermark)
            tested.process(Row("a", 1))
            assert tested.output[-1][1] == expected

    def test_a_watermark_that_goes_back_fires_nothing(self) -> None:
        tested = KeyedOperatorHarness(
            Keyed(lambda value, ctx: ctx.timer_service().register_event_time_timer(3), lambda timestamp, ctx: "fired")
        )
        tested.watermark(10)
        tested.process(Row("a", 1))
        tested.watermark(5)
        assert "fired" not in tested.output
        tested.watermark(10)
        assert tested.output == [None, "fired"]

    def test_at_the_end_of_time_every_timer_fires(self) -> None:
        tested = KeyedOperatorHarness(
            Keyed(
                lambda value, ctx: ctx.timer_service().register_event_time_timer(2**63 - 1),
                lambda timestamp, ctx: timestamp,
            )
        )
        tested.process(Row("a", 1))
        tested.watermark(2**63 - 2)
        assert tested.output == [None]
        tested.watermark(2**63 - 1)
        assert tested.output == [None, 2**63 - 1]

    def test_the_watermark_is_there_again_after_a_restore(self) -> None:
        first = KeyedOperatorHarness(Keyed(times))
        first.watermark(50)
        second = KeyedOperatorHarness(Keyed(times), restore_from=first.snapshot())
        second.process(Row("a", 1))
        assert second.output == [(None, 50, 0)]

    def test_of_several_restored_watermarks_the_earliest_counts(self) -> None:
        old = [KeyedOperatorHarness(Keyed(times), parallelism=2, subtask=subtask) for subtask in range(2)]
        old[0].watermark(50)
        old[1].watermark(30)
        new = KeyedOperatorHarness(Keyed(times), restore_from=[each.snapshot() for each in old])
        new.process(Row("a", 1))
        assert new.output == [(None, 30, 0)]

    def test_state_with_a_time_to_live_follows_processing_time(self) -> None:
        ttl = StateTtlConfig(timedelta(milliseconds=10))

        class Counting(KeyedProcessFunction):
            def open(self, ctx: Any) -> None:
                self.count = ctx.get_state(ValueStateDescriptor("count", "bigint", ttl))

            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                self.count.update((self.count.value() or 0) + 1)
                yield self.count.value()

        tested = KeyedOperatorHarness(Counting())
        for now in (0, 9, 19, 20):
            tested.set_processing_time(now)
            tested.process(Row("a", 1))
        assert tested.output == [1, 2, 1, 2]


class TestTimers:
    def test_on_timer_is_given_domain_timestamp_key_and_the_state_of_its_key(self) -> None:
        def register(value: Any, ctx: Any) -> None:
            function.total.update(value.n)  # type: ignore[attr-defined]
            ctx.timer_service().register_event_time_timer(10)
            ctx.timer_service().register_processing_time_timer(20)

        def look(timestamp: int, ctx: Any) -> Any:
            return (
                ctx.time_domain(), timestamp, ctx.timestamp(), ctx.get_current_key(), function.total.value(),  # type: ignore[attr-defined]
                ctx.current_watermark(), ctx.current_processing_time(),
            )  # fmt: skip

        function = Keyed(register, look)
        tested = KeyedOperatorHarness(function)
        tested.process(Row("a", 1))
        tested.process(Row("b", 2))
        tested.watermark(15)
        tested.set_processing_time(25)
        fired = sorted((output for output in tested.output if output), key=str)
        assert fired == [
            (TimeDomain.EVENT_TIME, 10, 10, ("a",), 1, 15, 0),
            (TimeDomain.EVENT_TIME, 10, 10, ("b",), 2, 15, 0),
            (TimeDomain.PROCESSING_TIME, 20, 20, ("a",), 1, 15, 25),
            (TimeDomain.PROCESSING_TIME, 20, 20, ("b",), 2, 15, 25),
        ]

    def test_on_timer_may_write_state_register_timers_and_use_side_outputs(self) -> None:
        def on_timer(timestamp: int, ctx: Any) -> None:
            function.total.update((function.total.value() or 0) + 1)  # type: ignore[attr-defined]
            ctx.output(LATE, ctx.get_current_key())
            if timestamp < 30:
                ctx.timer_service().register_event_time_timer(timestamp + 10)

        function = Keyed(lambda value, ctx: ctx.timer_service().register_event_time_timer(10), on_timer)
        tested = KeyedOperatorHarness(function)
        tested.process(Row("a", 1))
        tested.watermark(100)
        assert physical(tested.keyed_backend, "total") == {("a",): 3}
        assert tested.side_output(LATE) == [("a",)] * 3

    def test_after_timers_fired_there_is_no_current_key(self) -> None:
        function = Keyed(lambda value, ctx: ctx.timer_service().register_event_time_timer(10))
        tested = KeyedOperatorHarness(function)
        tested.process(Row("a", 1))
        tested.watermark(10)
        with pytest.raises(NoCurrentKeyError):
            function.total.value()

    @pytest.mark.parametrize("domain", ["event", "processing"])
    @pytest.mark.parametrize("what", ["register", "delete"])
    def test_without_keys_there_are_no_timers(self, domain: str, what: str) -> None:
        def act(value: Any, ctx: Any) -> None:
            getattr(ctx.timer_service(), f"{what}_{domain}_time_timer")(1)

        for tested in (
            KeyedOperatorHarness(Plain(act), key=None),
            BroadcastOperatorHarness(Broadcast(act), [RULES]),
        ):
            with pytest.raises(NoCurrentKeyError, match="found a timer where there is no key; expected"):
                tested.process(Row("a", 1))
            tested.watermark(100)
            tested.set_processing_time(100)

    def test_a_timer_registered_after_the_record_is_refused(self) -> None:
        kept: list[Any] = []
        tested = KeyedOperatorHarness(Keyed(lambda value, ctx: kept.append(ctx.timer_service())))
        tested.process(Row("a", 1))
        with pytest.raises(NoCurrentKeyError):
            kept[0].register_event_time_timer(1)

    def test_a_function_that_ignores_its_timers_may(self) -> None:
        class Silent(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> None:
                ctx.timer_service().register_event_time_timer(1)

        tested = KeyedOperatorHarness(Silent())
        tested.process(Row("a", 1))
        tested.watermark(1)
        assert tested.output == []


class TestKeysAndOutputs:
    @pytest.mark.parametrize("lateness_ms", [0, 50])
    def test_state_of_the_key_lies_beside_that_of_its_windows(self, lateness_ms: int) -> None:
        class Counting(WindowFunction):
            def open(self, ctx: Any) -> None:
                super().open(ctx)
                self.total = ctx.get_state(TOTAL)

            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                for output in super().process_element(value, ctx):
                    self.total.update((self.total.value() or 0) + 100)
                    yield output
                self.total.update((self.total.value() or 0) + 1)

        contents = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)
        windows = TumblingEventTimeWindows(timedelta(milliseconds=10))
        lateness = timedelta(milliseconds=lateness_ms)
        tested = KeyedOperatorHarness(Counting(windows, contents, value=lambda v: v.n, allowed_lateness=lateness))
        tested.process(Row("a", 1), 0)
        tested.process(Row("a", 2), 25)
        tested.watermark(15)
        tested.process(Row("a", 3), 5)
        assert tested.output == ([1, 4] if lateness_ms else [1])
        assert physical(tested.keyed_backend, "total") == {("a",): 103 if lateness_ms else 3}

    def test_a_keyed_function_is_given_the_key_of_its_record(self) -> None:
        tested = KeyedOperatorHarness(Keyed(lambda value, ctx: ctx.get_current_key()), key=lambda v: (v.k, v.n))
        tested.process(Row("a", 1))
        tested.process(Row(None, 2))
        assert tested.output == [("a", 1), (None, 2)]

    def test_without_keys_there_is_no_current_key(self) -> None:
        for tested in (
            KeyedOperatorHarness(Plain(lambda value, ctx: ctx.get_current_key()), key=None),
            BroadcastOperatorHarness(Broadcast(lambda value, ctx: ctx.get_current_key()), [RULES]),
        ):
            with pytest.raises(NoCurrentKeyError, match=r"get_current_key\(\) where there is no key; .*; key the"):
                tested.process(Row("a", 1))

    def test_a_context_that_was_kept_knows_no_key(self) -> None:
        kept: list[Any] = []
        tested = KeyedOperatorHarness(Keyed(lambda value, ctx: kept.append(ctx)))
        tested.process(Row("a", 1))
        with pytest.raises(NoCurrentKeyError, match=r"get_current_key\(\) while no record or timer .*; keep the key"):
            kept[0].get_current_key()

    @pytest.mark.parametrize("fails", ["process_element", "on_timer", "process_broadcast_element"])
    def test_after_a_failure_nothing_of_the_key_stays(self, fails: str) -> None:
        def fail(value: Any, ctx: Any) -> None:
            if fails == "process_broadcast_element":
                ctx.apply_to_keyed_state(TOTAL, lambda key, state: 1 / 0)
            raise ZeroDivisionError

        def register(value: Any, ctx: Any) -> None:
            function.states["total"].update(1)  # type: ignore[attr-defined]
            ctx.timer_service().register_event_time_timer(1)

        act = fail if fails == "process_element" else register
        function = KeyedBroadcast(act, broadcast=fail, timer=fail)
        tested = BroadcastOperatorHarness(function, [RULES], key=lambda v: (v.k,))
        with pytest.raises(ZeroDivisionError):
            tested.process(Row("a", 1))
            tested.watermark(1) if fails == "on_timer" else tested.process_broadcast("go")
        assert (tested.keyed_backend.current_key, tested.keyed_backend.namespace) == (None, None)
        with pytest.raises(NoCurrentKeyError):
            function.states["total"].value()

    def test_after_a_failure_in_a_window_nothing_of_the_window_stays(self) -> None:
        def fail(value: Any) -> Any:
            raise ZeroDivisionError

        contents = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: 1 // (a - b))
        windows = TumblingEventTimeWindows(timedelta(milliseconds=10))
        for value in (fail, lambda v: v.n):
            tested = KeyedOperatorHarness(WindowFunction(windows, contents, value=value))
            with pytest.raises(ZeroDivisionError):
                tested.process(Row("a", 1), 0)
                tested.process(Row("a", 1), 0)
            assert (tested.keyed_backend.current_key, tested.keyed_backend.namespace) == (None, None)

    @pytest.mark.parametrize("tag", ["late", None, 5], ids=repr)
    def test_a_side_output_without_a_tag_is_refused(self, tag: Any) -> None:
        tested = KeyedOperatorHarness(Keyed(lambda value, ctx: ctx.output(tag, value)))
        with pytest.raises(StateError, match=r"as the tag of a side output; expected an OutputTag; give the one that"):
            tested.process(Row("a", 1))

    def test_outputs_and_side_outputs_keep_their_order_and_are_apart(self) -> None:
        other = OutputTag("other", "n int")

        def act(value: Any, ctx: Any) -> Any:
            ctx.output(LATE, (value.k,))
            ctx.output(other, (value.n,))
            ctx.output(LATE, (value.k * 2,))
            return value.n

        tested = KeyedOperatorHarness(Keyed(act))
        tested.process(Row("a", 1))
        tested.process(Row("b", 2))
        assert tested.output == [1, 2]
        assert tested.side_output(LATE) == [("a",), ("aa",), ("b",), ("bb",)]
        assert tested.side_output(other) == [(1,), (2,)]
        assert tested.side_output(OutputTag("nobody", "n int")) == []

    def test_the_broadcast_side_has_outputs_too(self) -> None:
        def act(value: Any, ctx: Any) -> Any:
            ctx.output(LATE, (value,))
            return value

        tested = BroadcastOperatorHarness(Broadcast(lambda value, ctx: None, act), [RULES])
        tested.process_broadcast("x")
        assert (tested.output, tested.side_output(LATE)) == (["x"], [("x",)])

    def test_keyed_state_asked_for_in_a_function_without_keys_is_refused(self) -> None:
        getters = {
            "get_state": STATES[0], "get_list_state": STATES[1], "get_map_state": STATES[2],
            "get_reducing_state": STATES[3], "get_aggregating_state": STATES[4],
        }  # fmt: skip
        for getter, descriptor in getters.items():

            class Asking(Plain):
                def open(self, ctx: Any, getter: str = getter, descriptor: Any = descriptor) -> None:
                    getattr(ctx, getter)(descriptor)

            with pytest.raises(StateError, match="keyed state requested by a function without keys; expected a Keyed"):
                KeyedOperatorHarness(Asking(lambda value, ctx: None), key=None)

    @pytest.mark.parametrize("kind", ["ProcessFunction", "KeyedProcessFunction", "Broadcast", "KeyedBroadcast"])
    def test_a_function_of_the_wrong_kind_is_refused_and_the_right_one_named(self, kind: str) -> None:
        def nothing(value: Any, ctx: Any) -> None:
            return None

        functions = {
            "ProcessFunction": Plain(nothing), "KeyedProcessFunction": Keyed(nothing),
            "BroadcastProcessFunction": Broadcast(nothing), "KeyedBroadcastProcessFunction": KeyedBroadcast(),
        }  # fmt: skip
        name = f"{kind}ProcessFunction" if "Broadcast" in kind else kind
        for other, function in functions.items():
            key = (lambda v: (v.k,)) if "Keyed" in kind else None

            def build(function: Any = function, key: Any = key) -> Any:
                if "Broadcast" in kind:
                    return BroadcastOperatorHarness(function, [RULES], key=key)
                return KeyedOperatorHarness(function, key=key)

            if other == name:
                build()
            else:
                with pytest.raises(ConfigurationError, match=rf"expected a {name}; subclass it"):
                    build()

    def test_what_is_no_function_at_all_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="expected a KeyedProcessFunction"):
            KeyedOperatorHarness(Keyed)  # type: ignore[arg-type]


class Returning(KeyedBroadcastProcessFunction):
    """Returns from every method what it was told, and yields nothing."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value.n:
            return self.returned
        ctx.timer_service().register_event_time_timer(1)
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return self.returned

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Any:
        return self.returned


class TestReturned:
    def harness(self, returned: Any) -> BroadcastOperatorHarness:
        tested = BroadcastOperatorHarness(Returning(returned), [RULES], key=lambda v: (v.k,))
        tested.process(Row("a", 0))
        return tested

    @pytest.mark.parametrize("returned", [("a", 1), Row("a", 1), "text", b"x", {"k": 1}, 5, object], ids=repr)
    @pytest.mark.parametrize("method", ["process_element", "process_broadcast_element", "on_timer"])
    def test_an_output_that_is_returned_and_not_yielded_is_refused(self, returned: Any, method: str) -> None:
        tested = self.harness(returned)
        run = {
            "process_element": lambda: tested.process(Row("a", 1)),
            "process_broadcast_element": lambda: tested.process_broadcast("go"),
            "on_timer": lambda: tested.watermark(1),
        }[method]
        with pytest.raises(
            StateError, match=rf"returned by {method}; expected an iterable of outputs; yield it"
        ) as info:
            run()
        assert str(info.value).startswith(f"found {returned!r} ")
        assert tested.output == []

    @pytest.mark.parametrize(
        "make",
        [
            lambda: [1, 2],
            lambda: iter([1, 2]),
            lambda: (n for n in (1, 2)),
            lambda: map(int, "12"),
            lambda: None,
            tuple,
        ],
    )
    def test_an_iterable_and_nothing_may_be_returned(self, make: Callable[[], Any]) -> None:
        tested = self.harness(make())
        tested.process(Row("a", 1))
        assert tested.output == ([1, 2] if make() else [])


class TestWithoutBroadcastState:
    ASK: Mapping[str, Callable[[Any], Any]] = {
        "get_broadcast_state": lambda ctx: ctx.get_broadcast_state(RULES),
        "apply_to_keyed_state": lambda ctx: ctx.apply_to_keyed_state(TOTAL, lambda key, state: None),
    }

    @pytest.mark.parametrize("ask", list(ASK))
    def test_a_context_that_has_none_says_so(self, ask: str) -> None:
        def act(value: Any, ctx: Any) -> None:
            with pytest.raises(StateError, match=rf"found {ask}\(\) (on a context without|outside of)"):
                self.ASK[ask](ctx)
            seen.append(ctx)

        class Early(Keyed, CheckpointedFunction):
            def initialize_state(self, context: Any) -> None:
                act(None, context)

            def open(self, ctx: Any) -> None:
                super().open(ctx)
                act(None, ctx)

            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                ctx.timer_service().register_event_time_timer(1)
                yield from super().process_element(value, ctx)

            def snapshot_state(self, context: Any) -> None:
                pass

        seen: list[Any] = []
        tested = KeyedOperatorHarness(Early(act, act))
        tested.process(Row("a", 1))
        tested.watermark(1)
        KeyedOperatorHarness(Plain(act), key=None).process(Row("a", 1))
        assert len(seen) == 5

    @pytest.mark.parametrize("key", [None, lambda value: (value.k,)], ids=["plain", "keyed"])
    def test_keyed_state_is_applied_to_on_the_broadcast_side_alone(self, key: Any) -> None:
        ask = self.ASK["apply_to_keyed_state"]

        def act(value: Any, ctx: Any) -> None:
            ask(ctx)

        tested = BroadcastOperatorHarness(Broadcast(act) if key is None else KeyedBroadcast(act), [RULES], key=key)
        with pytest.raises(
            StateError, match=r"apply_to_keyed_state\(\) outside of process_broadcast_element; expected it"
        ):
            tested.process(Row("k", 1))


WAITING = ListStateDescriptor("waiting", "bigint")
ALL = ListStateDescriptor("all", "bigint")


class Buffering(KeyedProcessFunction, CheckpointedFunction):
    """Holds records outside of state, and writes them into a split and a union list when asked to."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.buffer: list[int] = []

    def initialize_state(self, context: Any) -> None:
        self.calls.append(("initialize_state", context.is_restored()))
        store = context.operator_state_store
        self.waiting = store.get_list_state(WAITING)
        self.all = store.get_union_list_state(ALL)
        self.rules = store.get_broadcast_state(RULES)
        self.last = context.keyed_state_store.get_state(ValueStateDescriptor("last", "bigint"))
        self.buffer = list(self.waiting.get())

    def open(self, ctx: Any) -> None:
        self.calls.append(("open", ctx.subtask, ctx.parallelism))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.buffer.append(value.n)
        self.all.add(value.n)
        self.rules.put(value.k, value.n)
        yield self.last.value()
        self.last.update(value.n)

    def snapshot_state(self, context: Any) -> None:
        self.calls.append(("snapshot_state", context.epoch))
        self.waiting.update(self.buffer)

    def close(self) -> None:
        self.calls.append("close")


class TestCheckpointedFunction:
    def test_its_methods_are_called_in_their_order(self) -> None:
        function = Buffering()
        tested = KeyedOperatorHarness(function)
        tested.process(Row("a", 1))
        tested.snapshot()
        tested.snapshot()
        tested.close()
        assert function.calls == [
            ("initialize_state", False), ("open", 0, 1), ("snapshot_state", 0), ("snapshot_state", 1), "close",
        ]  # fmt: skip

    def test_what_it_writes_when_asked_to_is_in_the_snapshot(self) -> None:
        tested = KeyedOperatorHarness(Buffering())
        tested.process(Row("a", 1))
        tested.process(Row("b", 2))
        assert tested.operator_backend.snapshot()["waiting"].elements == ()
        assert tested.snapshot().operator["waiting"].elements == (1, 2)

    def test_after_a_restore_it_is_told_so_and_finds_its_state(self) -> None:
        first = KeyedOperatorHarness(Buffering())
        first.process(Row("a", 1))
        function = Buffering()
        second = KeyedOperatorHarness(function, restore_from=first.snapshot())
        assert function.calls[0] == ("initialize_state", True)
        assert (function.buffer, list(function.all.get()), dict(function.rules.items())) == ([1], [1], {"a": 1})
        second.process(Row("a", 2))
        assert second.output == [1]

    def test_a_rescale_splits_lists_gives_unions_to_everybody_and_copies_broadcasts(self) -> None:
        old = [KeyedOperatorHarness(Buffering(), parallelism=2, subtask=subtask) for subtask in range(2)]
        for n in range(20):
            for each in old:
                try:
                    each.process(Row(f"k{n}", n))
                except StateError:
                    continue
        snapshots = [each.snapshot() for each in old]
        functions = [Buffering() for _ in range(3)]
        for subtask, function in enumerate(functions):
            KeyedOperatorHarness(function, parallelism=3, subtask=subtask, restore_from=snapshots)
        assert sorted(n for function in functions for n in function.buffer) == list(range(20))
        assert sorted(len(function.buffer) for function in functions) == [6, 7, 7]
        for function in functions:
            assert sorted(function.all.get()) == list(range(20))

    def test_a_snapshot_does_not_change_when_the_function_goes_on(self) -> None:
        tested = KeyedOperatorHarness(Buffering())
        tested.process(Row("a", 1))
        taken = tested.snapshot()
        tested.process(Row("a", 2))
        tested.snapshot()
        assert taken.operator["waiting"].elements == taken.operator["all"].elements == (1,)
        assert taken.operator["rules"].elements == ({"a": 1},)
        assert taken.keyed is not None
        restored = KeyedOperatorHarness(Buffering(), restore_from=taken)
        assert physical(restored.keyed_backend, "last") == {("a",): 1}

    def test_keyed_state_is_out_of_reach_where_there_is_no_record(self) -> None:
        class Early(Keyed, CheckpointedFunction):
            def initialize_state(self, context: Any) -> None:
                self.early = context.keyed_state_store.get_state(TOTAL)
                with pytest.raises(NoCurrentKeyError):
                    self.early.value()

            def open(self, ctx: Any) -> None:
                super().open(ctx)
                with pytest.raises(NoCurrentKeyError):
                    self.total.update(1)

            def snapshot_state(self, context: Any) -> None:
                with pytest.raises(NoCurrentKeyError):
                    self.early.clear()

        tested = KeyedOperatorHarness(Early(lambda value, ctx: None))
        tested.process(Row("a", 1))
        tested.snapshot()

    def test_a_function_without_keys_may_have_operator_state_too(self) -> None:
        class Counting(Plain, CheckpointedFunction):
            def initialize_state(self, context: Any) -> None:
                self.waiting = context.operator_state_store.get_list_state(WAITING)

            def snapshot_state(self, context: Any) -> None:
                self.waiting.add(1)

        tested = KeyedOperatorHarness(Counting(lambda value, ctx: value), key=None)
        tested.process(5)
        assert tested.snapshot().keyed is None
        assert KeyedOperatorHarness(
            Counting(lambda value, ctx: value), key=None, restore_from=tested.snapshot()
        ).snapshot().operator["waiting"].elements == (1, 1, 1)


class Registering(KeyedProcessFunction, CheckpointedFunction):
    """Registers the states that it was given, and does nothing with them."""

    def __init__(self, keyed: Sequence[Any] = (), lists: Sequence[Any] = ()) -> None:
        self.keyed = keyed
        self.lists = lists
        self.states: list[Any] = []

    def initialize_state(self, context: Any) -> None:
        for descriptor in self.lists:
            context.operator_state_store.get_list_state(descriptor).add(1)

    def open(self, ctx: Any) -> None:
        self.states = [ctx.get_state(descriptor) for descriptor in self.keyed]

    def process_element(self, value: Any, ctx: Any) -> None:
        for state in self.states:
            state.update(value.n)

    def snapshot_state(self, context: Any) -> None:
        pass


class TestRestoredStateLeftOut:
    def snapshot(self) -> Any:
        tested = KeyedOperatorHarness(Registering([TOTAL], [WAITING]))
        tested.process(Row("a", 1))
        return tested.snapshot()

    @pytest.mark.parametrize(
        ("function", "left"),
        [(Registering([], [WAITING]), "'total'"), (Registering([TOTAL]), "'waiting'"), (Registering(), "'total', 'w")],
        ids=["keyed", "operator", "both"],
    )
    def test_it_is_refused_by_name(self, function: Registering, left: str) -> None:
        message = rf"found restored state {left}.* that Registering did not register; expected .*; register it"
        with pytest.raises(StateMigrationError, match=message):
            KeyedOperatorHarness(function, restore_from=self.snapshot())

    def test_it_is_kept_when_that_is_allowed(self) -> None:
        middle = KeyedOperatorHarness(Registering(), restore_from=self.snapshot(), allow_non_restored_state=True)
        middle.process(Row("a", 9))
        last = KeyedOperatorHarness(Registering([TOTAL], [WAITING]), restore_from=middle.snapshot())
        assert physical(last.keyed_backend, "total") == {("a",): 1}
        assert last.snapshot().operator["waiting"].elements == (1, 1)

    def test_timers_are_no_state_that_must_be_registered(self) -> None:
        def register(value: Any, ctx: Any) -> None:
            ctx.timer_service().register_event_time_timer(1)

        first = KeyedOperatorHarness(Keyed(register))
        first.process(Row("a", 1))
        KeyedOperatorHarness(Keyed(register), restore_from=first.snapshot())

    def test_another_kind_under_the_same_name_is_refused(self) -> None:
        first = KeyedOperatorHarness(Registering([TOTAL]))
        first.process(Row("a", 1))

        class Other(Registering):
            def open(self, ctx: Any) -> None:
                ctx.get_list_state(ListStateDescriptor("total", "bigint"))

        with pytest.raises(StateMigrationError, match="'total' as value of bigint; expected list of bigint"):
            KeyedOperatorHarness(Other(), restore_from=first.snapshot())

    def test_a_state_that_changes_its_type_must_be_registered_before_the_first_record(self) -> None:
        first = KeyedOperatorHarness(Registering([TOTAL]))
        first.process(Row("a", 1))

        class Late(Registering):
            def open(self, ctx: Any) -> None:
                self.runtime = ctx

            def process_element(self, value: Any, ctx: Any) -> None:
                self.runtime.get_state(ValueStateDescriptor("total", "decimal(20,0)"))

        tested = KeyedOperatorHarness(Late(), restore_from=first.snapshot(), allow_non_restored_state=True)
        with pytest.raises(StateMigrationError, match=r"get it in open\(\)"):
            tested.process(Row("a", 1))


class Clock:
    """Stands still."""

    def now_ms(self) -> int:
        return 1_234


class Emitted(list[Any]):
    """Keeps every output with its tag."""

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        self.append((tag.name, value))

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        self.extend(("", value) for value in values)


def operator(function: Any, emitted: Any) -> ProcessOperator:
    keyed = HeapKeyedStateBackend(128, KeyGroupRange(0, 127), Clock())
    return ProcessOperator(
        function, keyed, OperatorStateBackend(), emitted,
        clock=Clock(), subtask=2, parallelism=5,
    )  # fmt: skip


class TestErrors:
    @pytest.mark.parametrize("error", [StateError("found x; expected y; do z"), ZeroDivisionError("mine")], ids=repr)
    def test_an_error_passes_as_it_is_and_what_it_came_of_is_told_with_it(self, error: Exception) -> None:
        def fail(value: Any, ctx: Any) -> Any:
            if value.n == 2:
                raise error
            return value.n

        emitted = Emitted()
        process = operator(Keyed(fail), emitted)
        process.open(restored=False)
        with pytest.raises(type(error)) as raised:
            process.process([(("a",), 3, Row("a", n), None) for n in (1, 2, 3)])
        assert raised.value is error
        assert process.failed_on == "key ('a',), record Row(k='a', n=2)"
        assert emitted == [("", 1)]

    def test_closing_after_a_failure_is_the_callers_to_do(self) -> None:
        class Failing(Buffering):
            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                raise ZeroDivisionError
                yield

        function = Failing()
        process = operator(function, Emitted())
        process.open(restored=False)
        with pytest.raises(ZeroDivisionError):
            process.process([(("a",), 3, Row("a", 1), None)])
        assert "close" not in function.calls
        process.close()
        assert function.calls[-1] == "close"

    def test_a_function_may_return_nothing_and_needs_neither_open_nor_operator_state(self) -> None:
        class Silent(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> None:
                return None

        tested = KeyedOperatorHarness(Silent())
        tested.process(Row("a", 1))
        tested.snapshot()
        tested.close()
        assert tested.output == []

    def test_a_broadcast_record_for_a_function_without_broadcast_side_is_refused(self) -> None:
        process = operator(Keyed(lambda value, ctx: None), Emitted())
        process.open(restored=False)
        with pytest.raises(ConfigurationError, match="broadcast record for a Keyed; expected a Broadcast"):
            process.process_broadcast(1, None)

    def test_subtask_and_parallelism_are_told_in_open(self) -> None:
        function = Buffering()
        operator(function, Emitted()).open(restored=False)
        assert function.calls == [("initialize_state", False), ("open", 2, 5)]

    def test_a_value_that_does_not_fit_its_state_names_the_record(self) -> None:
        function = Keyed(lambda value, ctx: function.total.update(value.n))  # type: ignore[attr-defined]
        tested = KeyedOperatorHarness(function)
        with pytest.raises(StateTypeError, match=r"found 'x' for state 'total' under key \('a',\)") as info:
            tested.process(Row("a", "x"))
        assert info.value.__notes__ == ["subtask 0, epoch 0, key ('a',), record Row(k='a', n='x')"]


def test_the_clock_of_the_harness_is_the_epochs() -> None:
    tested = KeyedOperatorHarness(Keyed(times))
    assert isinstance(tested.clock, ManualClock)
    tested.clock.advance(5)
    tested.process(Row("a", 1))
    assert tested.output == [(None, NOT_YET, 5)]
