"""Incremental clean-up removes what has expired, a few keys at a time, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    HeapKeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
    Window,
)
from statecore.state.cleanup import IncrementalCleanup
from statecore.testing import ManualClock, physical
from tests.support.examples import examples

GROUPS = 4
TTL_MS = 10


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


def ttl(size: int, every_record: bool = False) -> StateTtlConfig:
    return StateTtlConfig(timedelta(milliseconds=TTL_MS), cleanup_incremental=(size, every_record))


DESCRIBE: dict[str, Callable[[StateTtlConfig], Any]] = {
    "value": lambda ttl: ValueStateDescriptor("s", "int", ttl),
    "list": lambda ttl: ListStateDescriptor("s", "int", ttl),
    "map": lambda ttl: MapStateDescriptor("s", "int", "int", ttl),
    "reducing": lambda ttl: ReducingStateDescriptor("s", "int", reduce=lambda a, b: a + b, ttl=ttl),
    "aggregating": lambda ttl: AggregatingStateDescriptor("s", "int", aggregate=Sum(), ttl=ttl),
}
each_kind = pytest.mark.parametrize("kind", list(DESCRIBE))


def write(state: Any, kind: str, n: int) -> None:
    {
        "value": lambda: state.update(n),
        "list": lambda: state.add(n),
        "map": lambda: state.put(n, n),
    }.get(kind, lambda: state.add(n))()


def backend() -> tuple[HeapKeyedStateBackend, ManualClock]:
    clock = ManualClock()
    return HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), clock), clock


def fill(made: HeapKeyedStateBackend, state: Any, kind: str, keys: int) -> None:
    for key in range(keys):
        made.set_current_key((key,), key % GROUPS)
        write(state, kind, 1)


OPERATIONS: dict[str, list[Callable[[Any], Any]]] = {
    "value": [lambda s: s.value(), lambda s: s.update(1)],
    "list": [lambda s: list(s.get()), lambda s: s.add(1), lambda s: s.add_all([1]), lambda s: s.update([1])],
    "map": [
        lambda s: s.get(1), lambda s: s.put(1, 1), lambda s: s.put_all({1: 1}), lambda s: s.remove(2),
        lambda s: s.contains(1), lambda s: list(s.items()), lambda s: list(s.keys()), lambda s: list(s.values()),
        lambda s: s.is_empty(),
    ],
    "reducing": [lambda s: s.get(), lambda s: s.add(1)],
    "aggregating": [lambda s: s.get(), lambda s: s.add(1)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "operation"),
    [(kind, operation) for kind, operations in OPERATIONS.items() for operation in operations],
    ids=[f"{kind}-{n}" for kind, operations in OPERATIONS.items() for n in range(len(operations))],
)
def test_every_access_removes_as_many_expired_keys_as_it_may_look_at(
    kind: str, operation: Callable[[Any], Any]
) -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE[kind](ttl(3)))
    fill(made, state, kind, 20)
    clock.set(TTL_MS)
    # A key of its own, written later than all others, so that its own expiry does not count.
    made.set_current_key(("own",), 3)
    for left in (17, 14, 11):
        operation(state)
        assert len(physical(made, "s").keys() - {("own",)}) == left


def test_the_walk_goes_through_all_keys_and_begins_again() -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE["value"](ttl(1)))
    fill(made, state, "value", 8)
    for _ in range(5):
        state.value()
    clock.set(TTL_MS)
    for _ in range(3 + 8):
        made.set_current_key(("nobody",), 0)
        state.value()
    assert physical(made, "s") == {}


@each_kind
@pytest.mark.parametrize("every_record", [True, False])
def test_for_every_record_keys_are_looked_at_only_when_asked_for(kind: str, every_record: bool) -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE[kind](ttl(2, every_record)))
    fill(made, state, kind, 10)
    clock.set(TTL_MS)
    for _ in range(3):
        made.set_current_key(("nobody",), 0)
    assert len(physical(made, "s")) == (4 if every_record else 10)


def test_a_state_asked_for_twice_is_cleaned_up_once_per_record() -> None:
    made, clock = backend()
    for _ in range(3):
        state: Any = made.get_state(DESCRIBE["value"](ttl(1, True)))
    fill(made, state, "value", 10)
    clock.set(TTL_MS)
    made.set_current_key(("nobody",), 0)
    assert len(physical(made, "s")) == 9


def test_after_a_restore_the_time_to_live_that_holds_now_decides() -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE["value"](ttl(5, True)))
    fill(made, state, "value", 3)
    made.restore([made.snapshot()])
    longer = StateTtlConfig(timedelta(days=1), cleanup_incremental=(5, True))
    made.get_state(DESCRIBE["value"](longer))
    clock.set(TTL_MS)
    made.set_current_key(("nobody",), 0)
    assert len(physical(made, "s")) == 3


def test_a_size_of_zero_removes_nothing() -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE["value"](ttl(0, True)))
    fill(made, state, "value", 4)
    clock.set(TTL_MS)
    made.set_current_key(("nobody",), 0)
    state.value()
    assert len(physical(made, "s")) == 4


def test_of_lists_and_maps_the_expired_elements_and_entries_alone_go() -> None:
    made, clock = backend()
    listed: Any = made.get_list_state(ListStateDescriptor("list", "int", ttl(5)))
    mapped: Any = made.get_map_state(MapStateDescriptor("map", "string", "int", ttl(5)))
    made.set_current_key(("a",), 0)
    for n, now in enumerate((0, 4, 8)):
        clock.set(now)
        listed.add(n)
        mapped.put(str(n), n)
    clock.set(15)
    made.set_current_key(("nobody",), 0)
    listed.get()
    mapped.get("x")
    assert physical(made, "list") == {("a",): [(2, 8)]}
    assert physical(made, "map") == {("a",): {"2": (2, 8)}}


@each_kind
def test_what_was_removed_is_noted_as_a_change(kind: str) -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE[kind](ttl(9, True)))
    fill(made, state, kind, 3)
    made.set_current_key((1,), 1)
    made.clear_changes()
    clock.set(TTL_MS - 1)
    made.set_current_key((1,), 1)
    assert not any(made.tables["s"].changed.values()), "looking at live state is no change"
    clock.set(TTL_MS)
    made.set_current_key((1,), 1)
    changed = {group: set(scopes) for group, scopes in made.tables["s"].changed.items() if scopes}
    assert changed == {0: {(0,)}, 1: {(1,)}, 2: {(2,)}}


def test_a_part_of_a_map_that_was_removed_is_noted_as_a_change() -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE["map"](ttl(9, True)))
    made.set_current_key((0,), 0)
    state.put(1, 1)
    clock.set(5)
    state.put(2, 2)
    made.clear_changes()
    clock.set(TTL_MS)
    made.set_current_key(("nobody",), 0)
    assert {group: scopes for group, scopes in made.tables["s"].changed.items() if scopes} == {0: {(0,): None}}


def test_state_of_windows_is_cleaned_up_too() -> None:
    made, clock = backend()
    state: Any = made.get_state(DESCRIBE["value"](ttl(5, True)))
    made.set_current_key(("a",), 0)
    made.set_current_namespace(Window(0, 10))
    state.update(1)
    clock.set(TTL_MS)
    made.set_current_namespace(None)
    made.set_current_key(("nobody",), 0)
    assert physical(made, "s") == {}


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 7), st.integers(0, 3)),
    st.tuples(st.just("clear"), st.integers(0, 7)),
    st.tuples(st.just("advance"), st.integers(1, 6)),
)


@each_kind
@examples(60)
@given(steps=st.lists(STEPS, max_size=60), size=st.integers(0, 5), every_record=st.booleans())
def test_live_state_is_the_same_with_and_without_clean_up(
    kind: str, steps: list[Any], size: int, every_record: bool
) -> None:
    cleaned, plain = backend(), backend()
    expiring = StateTtlConfig(timedelta(milliseconds=TTL_MS))
    states: list[Any] = [
        cleaned[0].get_state(DESCRIBE[kind](ttl(size, every_record))),
        plain[0].get_state(DESCRIBE[kind](expiring)),
    ]
    for step, *arguments in steps:
        for (made, clock), state in zip((cleaned, plain), states, strict=True):
            if step == "advance":
                clock.advance(arguments[0])
                continue
            made.set_current_key((arguments[0],), arguments[0] % GROUPS)
            if step == "clear":
                state.clear()
            else:
                write(state, kind, arguments[1])
    live = [
        {key: kept for key, stored in physical(made, "s").items() if (kept := alive(kind, stored, clock.now_ms()))}
        for made, clock in (cleaned, plain)
    ]
    assert live[0] == live[1]


def alive(kind: str, stored: Any, now_ms: int) -> Any:
    if kind == "list":
        return [cell for cell in stored if cell[1] + TTL_MS > now_ms]
    if kind == "map":
        return {key: cell for key, cell in stored.items() if cell[1] + TTL_MS > now_ms}
    return stored if stored[1] + TTL_MS > now_ms else None


def test_short_epochs_come_to_every_key_in_time() -> None:
    """An epoch has a backend of its own, and one access each: a walk that began at the first key would never end."""
    clock = ManualClock()
    descriptor = DESCRIBE["value"](ttl(1))
    held: dict[int, Any] = {}
    for epoch in range(200):
        made = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), clock)
        for key_group, states in held.items():
            made.attach_key_group(key_group, states)
        state = made.get_value_state(descriptor)
        if epoch == 0:
            for key in range(20):
                made.set_current_key((key,), key % GROUPS)
                state.update(key)
        made.set_current_key(("busy",), 0)
        state.update(epoch)
        stored = len(physical(made, "s"))
        held = {key_group: made.detach_key_group(key_group) for key_group in range(GROUPS)}
        clock.advance(5 * TTL_MS)
    assert stored == 1


def test_an_access_looks_at_each_key_at_most_once_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    check = IncrementalCleanup._check
    monkeypatch.setattr(IncrementalCleanup, "_check", lambda self, *at: (looked.append(at), check(self, *at)))  # type: ignore[func-returns-value]
    made = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), ManualClock())
    state = made.get_value_state(DESCRIBE["value"](ttl(1000)))
    made.set_current_key(("a",), 0)
    state.update(1)
    looked.clear()
    state.value()
    assert len(looked) <= 2
