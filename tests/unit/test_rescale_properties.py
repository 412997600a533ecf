"""A job that was rescaled twice holds and yields what it would have without any rescale."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    SlidingEventTimeWindows,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
    Window,
    WindowFunction,
    key_group_for,
    subtask_for_key_group,
)
from statecore.testing import BroadcastOperatorHarness, HarnessSnapshot, KeyedOperatorHarness, physical

# The machine may be busy; slowness proves nothing here.
GROUPS = 16
Do = namedtuple("Do", ["k", "what", "n"])


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


TTL = StateTtlConfig(timedelta(milliseconds=10))
ON_READ = StateTtlConfig(timedelta(milliseconds=10), UpdateType.ON_READ_AND_WRITE)
VALUE = ValueStateDescriptor("value", "struct<n:bigint,l:array<bigint>>")
LIST = ListStateDescriptor("list", "bigint")
MAP = MapStateDescriptor("map", "bigint", "string")
REDUCING = ReducingStateDescriptor("reducing", "bigint", reduce=lambda a, b: a + b)
AGGREGATING = AggregatingStateDescriptor("aggregating", "struct<total:bigint,count:bigint>", aggregate=Mean())
WINDOWED = ReducingStateDescriptor("windowed", "bigint", reduce=max)
FIRED = ListStateDescriptor("fired", "struct<domain:string,timestamp:bigint>")
EXPIRING = MapStateDescriptor("expiring", "bigint", "bigint", TTL)
EXPIRING_LIST = ListStateDescriptor("expiring_list", "bigint", ON_READ)
KEYED = ["value", "list", "map", "reducing", "aggregating", "windowed", "fired", "expiring", "expiring_list"]
TIMERS = ["__event_timers", "__processing_timers"]

CONTIGUOUS = ListStateDescriptor("contiguous", "bigint")
INTERLEAVED = ListStateDescriptor("interleaved", "bigint", strategy="interleaved")
UNION = ListStateDescriptor("union", "bigint")
RULES = MapStateDescriptor("rules", "bigint", "bigint")


class Everything(KeyedBroadcastProcessFunction, CheckpointedFunction):
    """Does what records say, with state of every kind.

    Attributes:
        found: What each operator list had when the function began.

    """

    def initialize_state(self, context: Any) -> None:
        store = context.operator_state_store
        self.split = {each.name: store.get_list_state(each) for each in (CONTIGUOUS, INTERLEAVED)}
        self.union = store.get_union_list_state(UNION)
        self.found = {name: list(state.get()) for name, state in [*self.split.items(), ("union", self.union)]}

    def open(self, ctx: Any) -> None:
        self.backend = ctx.keyed_backend
        self.states = {
            each.name: self.backend.get_state(each)
            for each in (VALUE, LIST, MAP, REDUCING, AGGREGATING, WINDOWED, FIRED, EXPIRING, EXPIRING_LIST)
        }
        # As sources do it: everybody sees all of the union, and keeps a share of it.
        self.union.update([n for n in self.union.get() if n % ctx.parallelism == ctx.subtask])

    def process_element(self, value: Do, ctx: Any) -> Iterator[Any]:
        getattr(self, f"on_{value.what}")(value.n, ctx)
        yield value.k, value.what, self.states["reducing"].get(), dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: tuple[int, int], ctx: Any) -> None:
        rules = ctx.get_broadcast_state(RULES)
        if value[1] == 0:
            rules.remove(value[0])
        else:
            rules.put(*value)
        ctx.apply_to_keyed_state(LIST, lambda key, state: state.add(1000 + value[1]))

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        self.states["fired"].add((ctx.time_domain().value, timestamp_ms))
        yield ctx.get_current_key()[0], timestamp_ms, ctx.time_domain(), self.backend.namespace
        if timestamp_ms % 3 == 0:
            ctx.timer_service().register_event_time_timer(timestamp_ms + 7)

    def snapshot_state(self, context: Any) -> None:
        """Everything is in state already."""

    def on_value(self, n: int, ctx: Any) -> None:
        self.states["value"].update(None if n % 5 == 0 else (n, [n, None]))

    def on_list(self, n: int, ctx: Any) -> None:
        self.states["list"].add(n)

    def on_replace_list(self, n: int, ctx: Any) -> None:
        self.states["list"].update(range(n % 3))

    def on_map(self, n: int, ctx: Any) -> None:
        self.states["map"].put(n % 4, str(n) if n % 3 else None)

    def on_remove(self, n: int, ctx: Any) -> None:
        self.states["map"].remove(n % 4)

    def on_fold(self, n: int, ctx: Any) -> None:
        self.states["reducing"].add(n)
        self.states["aggregating"].add(n)

    def on_clear(self, n: int, ctx: Any) -> None:
        self.states[KEYED[n % len(KEYED)]].clear()

    def on_expiring(self, n: int, ctx: Any) -> None:
        self.states["expiring"].put(n % 4, n)
        self.states["expiring_list"].add(n)

    def on_read(self, n: int, ctx: Any) -> None:
        list(self.states["expiring"].items())
        list(self.states["expiring_list"].get())

    def on_window(self, n: int, ctx: Any) -> None:
        self.backend.set_current_namespace(Window(n, n + 10))
        self.states["windowed"].add(n)
        ctx.timer_service().register_event_time_timer(n)
        self.backend.set_current_namespace(None)

    def on_event_timer(self, n: int, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(n)

    def on_processing_timer(self, n: int, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(n)

    def on_delete_timer(self, n: int, ctx: Any) -> None:
        ctx.timer_service().delete_event_time_timer(n)

    def on_operator(self, n: int, ctx: Any) -> None:
        for state in (*self.split.values(), self.union):
            state.add(n)


WHATS = sorted(name.removeprefix("on_") for name in vars(Everything) if name.startswith("on_") and name != "on_timer")
STEPS = st.lists(
    st.one_of(
        st.builds(Do, st.integers(0, 30).map(lambda n: f"k{n}"), st.sampled_from(WHATS), st.integers(0, 40)),
        st.tuples(st.just("rule"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("advance"), st.integers(0, 8)),
    ),
    max_size=40,
)
PARALLELISMS = st.tuples(*[st.integers(1, 7)] * 3)


class Running:
    """All subtasks of the function at one parallelism, and the time that they share."""

    def __init__(self, parallelism: int, restore_from: Iterable[HarnessSnapshot] = (), now: int = 0) -> None:
        self.functions = [Everything() for _ in range(parallelism)]
        taken = list(restore_from)
        self.now = now
        self.subtasks = [
            BroadcastOperatorHarness(
                function, [RULES], key=lambda value: (value.k,), max_parallelism=GROUPS, parallelism=parallelism,
                subtask=subtask, restore_from=taken,
            )
            for subtask, function in enumerate(self.functions)
        ]  # fmt: skip
        for each in self.subtasks:
            each.clock.set(now)

    def run(self, steps: Iterable[Any]) -> None:
        for step in steps:
            if isinstance(step, Do):
                owner(self.subtasks, step.k).process(step)
            elif step[0] == "rule":
                for each in self.subtasks:
                    each.process_broadcast(step[1:])
            else:
                self.now += step[1]
                for each in self.subtasks:
                    each.watermark(self.now)
                    each.set_processing_time(self.now)

    def rescaled(self, parallelism: int) -> Running:
        return Running(parallelism, [each.snapshot() for each in self.subtasks], self.now)

    def keyed(self, name: str) -> dict[Any, Any]:
        return merged(self.subtasks, name)

    def elements(self, name: str) -> Counter[int]:
        return Counter(n for each in self.subtasks for n in each.operator_backend.snapshot()[name].elements)

    def output(self) -> Counter[str]:
        return Counter(repr(output) for each in self.subtasks for output in each.output)


def owner(subtasks: list[Any], k: str) -> Any:
    return subtasks[subtask_for_key_group(GROUPS, len(subtasks), key_group_for((k,), ["string"], GROUPS))]


def merged(subtasks: Iterable[Any], name: str) -> dict[Any, Any]:
    """Return what all subtasks hold of a keyed state; each key is in one of them."""
    found: dict[Any, Any] = {}
    for each in subtasks:
        held = physical(each.keyed_backend, name)
        assert not held.keys() & found.keys(), "a key is in two subtasks"
        found.update(held)
    return found


@given(st.tuples(STEPS, STEPS, STEPS), PARALLELISMS)
def test_state_of_every_kind_survives_two_rescales(
    phases: tuple[list[Any], ...], parallelisms: tuple[int, ...]
) -> None:
    undisturbed = Running(1)
    running = Running(parallelisms[0])
    outputs: Counter[str] = Counter()
    for index, steps in enumerate(phases):
        if index:
            before = {name: running.elements(name) for name in ("contiguous", "interleaved", "union")}
            running = running.rescaled(parallelisms[index])
            check_what_functions_found(running, before)
        undisturbed.run(steps)
        running.run(steps)
        outputs += running.output()
        for name in [*KEYED, *TIMERS]:
            assert running.keyed(name) == undisturbed.keyed(name), name
        for name in ("contiguous", "interleaved", "union"):
            assert running.elements(name) == undisturbed.elements(name), name
        for each in running.subtasks:
            assert rules(each) == rules(undisturbed.subtasks[0])
    assert outputs == undisturbed.output()


def check_what_functions_found(running: Running, before: dict[str, Counter[int]]) -> None:
    for name in ("contiguous", "interleaved"):
        shares = [Counter(function.found[name]) for function in running.functions]
        assert sum(shares, Counter()) == before[name]
    for function in running.functions:
        assert Counter(function.found["union"]) == before["union"]


def rules(harness: BroadcastOperatorHarness) -> Any:
    return harness.operator_backend.snapshot()["rules"].elements


@given(st.lists(st.integers(0, 9), max_size=20), PARALLELISMS)
def test_a_rescale_leaves_at_most_one_element_between_the_fullest_and_the_emptiest_subtask(
    elements: list[int], parallelisms: tuple[int, ...]
) -> None:
    running = Running(parallelisms[0])
    running.run(Do(f"k{n}", "operator", n) for n in elements)
    for parallelism in parallelisms[1:]:
        changed = parallelism != len(running.subtasks)
        running = running.rescaled(parallelism)
        for name in ("contiguous", "interleaved"):
            sizes = [len(function.found[name]) for function in running.functions]
            assert sum(sizes) == len(elements)
            if changed:
                assert max(sizes) - min(sizes) <= 1


LATE = OutputTag("late", "k string, n bigint")
Event = namedtuple("Event", ["k", "n"])
EVENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60), st.integers(1, 9)), max_size=25)


def windows() -> WindowFunction:
    sliding = SlidingEventTimeWindows(timedelta(milliseconds=10), timedelta(milliseconds=4))
    return WindowFunction(
        sliding, REDUCING, value=lambda event: event.n, allowed_lateness=timedelta(milliseconds=6), late_output=LATE
    )


@given(st.tuples(EVENTS, EVENTS, EVENTS), PARALLELISMS)
def test_windows_survive_two_rescales(phases: tuple[list[Any], ...], parallelisms: tuple[int, ...]) -> None:
    undisturbed = [KeyedOperatorHarness(windows(), max_parallelism=GROUPS)]
    running: list[KeyedOperatorHarness] = []
    outputs, late = Counter[Any](), Counter[Any]()
    for index, events in enumerate(phases):
        taken = [each.snapshot() for each in running]
        parallelism = parallelisms[index]
        running = [
            KeyedOperatorHarness(
                windows(), max_parallelism=GROUPS, parallelism=parallelism, subtask=subtask, restore_from=taken
            )
            for subtask in range(parallelism)
        ]
        for subtasks in (undisturbed, running):
            for key, timestamp, n in events:
                owner(subtasks, f"k{key}").process(Event(f"k{key}", n), timestamp)
            for each in subtasks:
                each.watermark(25 * (index + 1))
        for each in running:
            outputs.update(each.output)
            late.update(each.side_output(LATE))
        for name in ("reducing", *TIMERS):
            assert merged(running, name) == merged(undisturbed, name)
    assert outputs == Counter(undisturbed[0].output)
    assert late == Counter(undisturbed[0].side_output(LATE))
