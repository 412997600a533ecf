"""Restored state becomes what the program declares now, or is refused with both schemas in the message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    HeapKeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
)
from statecore.errors import StateMigrationError
from statecore.testing import ManualClock, physical

TTL = StateTtlConfig(timedelta(milliseconds=10))
OTHER_TTL = StateTtlConfig(timedelta(days=1))
GROUPS = 4


class Latest(AggregateFunction):
    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


def _last(a: Any, b: Any) -> Any:
    return b


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of state, and how its values lie in what ``physical`` returns."""

    name: str
    describe: Callable[..., Any]
    write: Callable[[Any, Any], None]
    read: Callable[[Any], list[Any]]
    laid: Callable[[Any], Any]

    def __str__(self) -> str:
        return self.name


KINDS = [
    Kind(
        "value",
        lambda ddl, **more: ValueStateDescriptor("s", ddl, **more),
        lambda state, value: state.update(value),
        lambda state: [state.value()],
        lambda cell: cell,
    ),
    Kind(
        "list",
        lambda ddl, **more: ListStateDescriptor("s", ddl, **more),
        lambda state, value: state.update([value]),
        lambda state: list(state.get()),
        lambda cell: [cell],
    ),
    Kind(
        "map",
        lambda ddl, **more: MapStateDescriptor("s", "string", ddl, **more),
        lambda state, value: state.put("x", value),
        lambda state: list(state.values()),
        lambda cell: {"x": cell},
    ),
    Kind(
        "reducing",
        lambda ddl, **more: ReducingStateDescriptor("s", ddl, reduce=_last, **more),
        lambda state, value: state.add(value),
        lambda state: [state.get()],
        lambda cell: cell,
    ),
    Kind(
        "aggregating",
        lambda ddl, **more: AggregatingStateDescriptor("s", ddl, aggregate=Latest(), **more),
        lambda state, value: state.add(value),
        lambda state: [state.get()],
        lambda cell: cell,
    ),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
each_ttl = pytest.mark.parametrize("ttl", [None, TTL], ids=["plain", "ttl"])

ALLOWED: dict[str, tuple[str, Any, str, Any, dict[str, str]]] = {
    # Change: type and value before, type and value after, renames.
    "a field more": ("struct<a:int>", (1,), "struct<a:int,b:string>", (1, None), {}),
    "a field less": ("struct<a:int,b:string>", (1, "x"), "struct<b:string>", ("x",), {}),
    "another order": ("struct<a:int,b:string>", (1, "x"), "struct<b:string,a:int>", ("x", 1), {}),
    "a field renamed": ("struct<a:int,b:int>", (1, 2), "struct<z:int,b:int>", (1, 2), {"a": "z"}),
    "an inner field renamed": ("struct<a:struct<b:int>>", ((1,),), "struct<a:struct<c:int>>", ((1,),), {"a.b": "c"}),
    "a wider integer": ("int", 1, "bigint", 1, {}),
    "a wider float": ("float", 1.5, "double", 1.5, {}),
    "an integer to double": ("int", 1, "double", 1.0, {}),
    "NOT NULL left out": ("struct<a:int not null>", (1,), "struct<a:int>", (1,), {}),
    "inside an array": ("array<struct<a:tinyint>>", [(1,), None], "array<struct<b:int,a:int>>", [(None, 1), None], {}),
    "inside a map": ("map<string,int>", {"k": 1}, "map<string,bigint>", {"k": 1}, {}),
    "all at once": (
        "struct<gone:int,old:int,kept:array<float>>", (1, 2, [1.5]),
        "struct<kept:array<double>,new:bigint,more:date>", ([1.5], 2, None), {"old": "new"},
    ),
}  # fmt: skip
each_change = pytest.mark.parametrize("change", ALLOWED.values(), ids=list(ALLOWED))


def backend(clock: ManualClock | None = None) -> HeapKeyedStateBackend:
    made = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), clock or ManualClock())
    made.set_current_key(("a",), 0)
    return made


def restored(source: HeapKeyedStateBackend) -> HeapKeyedStateBackend:
    made = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), source.clock)
    made.restore([source.snapshot()])
    made.set_current_key(("a",), 0)
    return made


def holding(descriptor: Any, kind: Kind, *values: Any) -> HeapKeyedStateBackend:
    """Return a backend that holds a value under each of several keys and key groups."""
    made = backend()
    for n, value in enumerate(values):
        made.set_current_key((n,), n % GROUPS)
        kind.write(made.get_state(descriptor), value)
    made.set_current_key(("a",), 0)
    return made


@each_kind
@each_ttl
@each_change
def test_an_allowed_change_keeps_what_is_stored(
    kind: Kind, ttl: StateTtlConfig | None, change: tuple[str, Any, str, Any, dict[str, str]]
) -> None:
    old, before, new, after, renames = change
    source = holding(kind.describe(old, ttl=ttl), kind, *[before] * 6)
    made = restored(source)
    descriptor = kind.describe(new, ttl=ttl, renames=renames)
    state = made.get_state(descriptor)
    assert made.rewrite_needed
    for n in range(6):
        made.set_current_key((n,), n % GROUPS)
        assert kind.read(state) == [after]
    cell = after if ttl is None else (after, 0)
    assert physical(made, "s") == {(n,): kind.laid(cell) for n in range(6)}
    # What it became is what the next snapshot holds; then there is nothing left to do.
    again = restored(made)
    again.get_state(kind.describe(new, ttl=ttl))
    assert not again.rewrite_needed
    assert physical(again, "s") == physical(made, "s")


@each_kind
@each_change
def test_a_migrated_value_has_the_new_types_form(kind: Kind, change: tuple[str, Any, str, Any, dict[str, str]]) -> None:
    old, before, new, after, renames = change
    made = restored(holding(kind.describe(old), kind, before))
    made.set_current_key((0,), 0)
    (found,) = kind.read(made.get_state(kind.describe(new, renames=renames)))
    fresh = backend()
    kind.write(fresh.get_state(kind.describe(new)), after)
    (written,) = kind.read(fresh.get_state(kind.describe(new)))
    assert found == written
    assert repr(found) == repr(written), "names and types of fields are those of a value written now"


@each_kind
def test_an_equal_type_needs_nothing(kind: Kind) -> None:
    made = restored(holding(kind.describe("struct<a:int>", ttl=TTL), kind, (1,)))
    made.get_state(kind.describe("STRUCT<a INT>", ttl=OTHER_TTL))
    assert not made.rewrite_needed


@each_kind
def test_a_rename_may_stay_in_the_program_when_it_is_done(kind: Kind) -> None:
    renames = {"a": "b"}
    made = restored(holding(kind.describe("struct<a:int>"), kind, (1,)))
    made.get_state(kind.describe("struct<b:int>", renames=renames))
    again = restored(made)
    again.set_current_key((0,), 0)
    assert kind.read(again.get_state(kind.describe("struct<b:int>", renames=renames))) == [(1,)]
    assert not again.rewrite_needed


@each_kind
@each_change
def test_a_time_to_live_may_be_switched_on_together_with_a_change_of_type(
    kind: Kind, change: tuple[str, Any, str, Any, dict[str, str]]
) -> None:
    old, before, new, after, renames = change
    source = holding(kind.describe(old), kind, before)
    source.clock.set(700)  # type: ignore[attr-defined]
    made = restored(source)
    made.get_state(kind.describe(new, ttl=TTL, renames=renames))
    assert made.rewrite_needed
    assert physical(made, "s") == {(0,): kind.laid((after, 700))}


@each_kind
@each_change
def test_a_time_to_live_may_be_switched_off_together_with_a_change_of_type(
    kind: Kind, change: tuple[str, Any, str, Any, dict[str, str]]
) -> None:
    old, before, new, after, renames = change
    source = holding(kind.describe(old, ttl=TTL), kind, before)
    source.clock.set(700)  # type: ignore[attr-defined]
    made = restored(source)
    disabled = StateTtlConfig(timedelta(days=1), UpdateType.DISABLED)
    made.get_state(kind.describe(new, ttl=disabled, renames=renames))
    assert made.rewrite_needed
    assert physical(made, "s") == {(0,): kind.laid(after)}


def test_none_among_the_values_of_a_map_stays_none() -> None:
    source = backend()
    source.get_map_state(MapStateDescriptor("s", "string", "int")).put("x", None)
    made = restored(source)
    state = made.get_map_state(MapStateDescriptor("s", "string", "double", TTL))
    assert (state.contains("x"), state.get("x")) == (True, None)


def test_a_reducing_state_without_a_value_but_with_a_timestamp_migrates() -> None:
    source = backend()
    source.get_reducing_state(ReducingStateDescriptor("s", "int", reduce=_last, ttl=TTL)).add(None)
    made = restored(source)
    made.get_reducing_state(ReducingStateDescriptor("s", "double", reduce=_last, ttl=TTL))
    assert physical(made, "s") == {("a",): (None, 0)}


@each_kind
def test_a_state_without_any_value_changes_its_type_too(kind: Kind) -> None:
    source = backend()
    source.get_state(kind.describe("int"))
    made = restored(source)
    state = made.get_state(kind.describe("bigint"))
    kind.write(state, 2**40)
    assert kind.read(state) == [2**40]


@each_kind
def test_what_is_migrated_does_not_change_the_snapshot_it_came_from(kind: Kind) -> None:
    source = holding(kind.describe("struct<l:array<int>>"), kind, ([1],))
    snapshot = source.snapshot()
    for _ in range(2):
        made = backend()
        made.restore([snapshot])
        made.get_state(kind.describe("struct<l:array<int>,m:int>", ttl=TTL))
        assert physical(made, "s") == {(0,): kind.laid((([1], None), 0))}


REFUSED = {
    "a narrower number": ("bigint", 1, "int", "bigint becomes int"),
    "another type": ("int", 1, "string", "int becomes string"),
    "a number of fewer digits": ("decimal(10,2)", 1, "decimal(10,3)", "decimal"),
    "a NOT NULL field more": ("struct<a:int>", (1,), "struct<a:int,b:int not null>", "at 'b'"),
    "NOT NULL put in": ("struct<a:int>", (1,), "struct<a:int not null>", "at 'a'"),
    "a narrower inner field": ("struct<a:array<bigint>>", ([1],), "struct<a:array<int>>", "at 'a'"),
}
each_refusal = pytest.mark.parametrize("change", REFUSED.values(), ids=list(REFUSED))


@each_kind
@each_refusal
def test_a_change_that_loses_something_is_refused_and_both_types_are_shown(
    kind: Kind, change: tuple[str, Any, str, str]
) -> None:
    old, value, new, found = change
    made = restored(holding(kind.describe(old), kind, value))
    stored = physical(made, "s")
    with pytest.raises(StateMigrationError) as info:
        made.get_state(kind.describe(new, ttl=TTL))
    message = str(info.value)
    for part in ("'s'", old, new.replace(" not null", " NOT NULL"), found):
        assert part.lower() in message.lower()
    assert "expected" in message
    assert physical(made, "s") == stored, "a refused change changes nothing"
    assert not made.rewrite_needed


def test_other_map_keys_are_refused_and_both_types_are_shown() -> None:
    source = backend()
    source.get_map_state(MapStateDescriptor("s", "int", "int")).put(1, 1)
    made = restored(source)
    message = r"found restored state 's' as map<int,int>; expected map<bigint,int>.*; the key type .* another name"
    with pytest.raises(StateMigrationError, match=message):
        made.get_map_state(MapStateDescriptor("s", "bigint", "int"))


@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for a in KINDS for b in KINDS if a is not b], ids=lambda kind: str(kind)
)
def test_another_kind_is_refused_and_both_are_shown(first: Kind, second: Kind) -> None:
    made = restored(holding(first.describe("int", ttl=TTL), first, 1))
    message = rf"'s' as {first} of .*int.* with time to live; expected {second} of .*string.*; the kind of a state"
    with pytest.raises(StateMigrationError, match=message):
        made.get_state(second.describe("string"))


@each_kind
def test_a_rename_of_a_field_that_is_nowhere_is_refused(kind: Kind) -> None:
    made = restored(holding(kind.describe("struct<a:int>"), kind, (1,)))
    with pytest.raises(StateMigrationError, match="renamed to 'b'"):
        made.get_state(kind.describe("struct<b:int>", renames={"typo": "b"}))


@each_kind
@pytest.mark.parametrize(
    "later", [{"ddl": "bigint"}, {"ddl": "int", "ttl": TTL}], ids=["another type", "a time to live"]
)
def test_once_records_come_a_change_of_form_is_refused(kind: Kind, later: dict[str, Any]) -> None:
    made = restored(holding(kind.describe("int"), kind, 1))
    stored = physical(made, "s")
    made.seal()
    with pytest.raises(StateMigrationError, match=r"'s' as .*int.*, requested as .*; get it in open\(\)"):
        made.get_state(kind.describe(**later))
    assert physical(made, "s") == stored


@each_kind
def test_once_records_come_state_of_the_same_form_may_still_be_asked_for(kind: Kind) -> None:
    made = restored(holding(kind.describe("int"), kind, 1))
    made.seal()
    made.set_current_key((0,), 0)
    assert kind.read(made.get_state(kind.describe("int"))) == [1]


@each_kind
def test_saving_everything_anew_is_asked_for_once(kind: Kind) -> None:
    made = restored(holding(kind.describe("int"), kind, 1))
    made.get_state(kind.describe("bigint"))
    made.clear_changes()
    assert not made.rewrite_needed
