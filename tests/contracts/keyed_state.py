"""What every keyed backend promises, however its state gets from one subtask to the next.

A test class inherits ``KeyedBackendContract`` and gives it a fixture ``adapter``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

import pytest
from hypothesis import example, given
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
    StateVisibility,
    UpdateType,
    ValueStateDescriptor,
    Window,
    key_group_range,
)
from statecore.errors import NoCurrentKeyError, StateConflictError, StateError, StateTypeError
from statecore.testing import ManualClock, physical
from tests.support.examples import examples

GROUPS = 16
ALL = KeyGroupRange(0, GROUPS - 1)
KEY_FIELDS = (("k", "string"),)


# The machine may be busy; slowness proves nothing here.
class Adapter(Protocol):
    """One way to make backends and to move what they hold; their keys have one string field."""

    def make(self, key_groups: KeyGroupRange, clock: ManualClock) -> HeapKeyedStateBackend:
        """Return an empty backend."""

    def epoch(self, backend: HeapKeyedStateBackend) -> None:
        """Let an epoch end: what was written since the last one may be saved by itself."""

    def move(self, backends: Sequence[HeapKeyedStateBackend], key_groups: KeyGroupRange) -> HeapKeyedStateBackend:
        """Return a new backend, of the same clock, that was restored from all of these."""


class Sum(AggregateFunction):
    """Its accumulator has the sum and the number of values; the result is text, so that nobody takes one for both."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> str:
        return f"{accumulator[0]} of {accumulator[1]}"

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


class Latest(AggregateFunction):
    """The accumulator is the value added last, whatever its type."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of state, used in the same way as every other.

    Attributes:
        describe: Returns a descriptor that holds bigints.
        of_type: Returns a descriptor that holds values of a type.
        write: Makes the state hold one number.
        put: Makes the state hold one value of ``of_type``.
        read: Returns what is there.
        one: What ``read`` returns after ``write`` or ``put``.
        nothing: What it returns when nothing is there.
        operations: Every operation with arguments that are right.

    """

    name: str
    describe: Callable[..., Any]
    of_type: Callable[..., Any]
    write: Callable[[Any, int], None]
    put: Callable[[Any, Any], None]
    read: Callable[[Any], Any]
    one: Callable[[Any], Any]
    operations: Mapping[str, Sequence[Any]]
    nothing: Any = None

    def __str__(self) -> str:
        return self.name


def _rewrite(state: Any, value: Any) -> None:
    state.clear()
    state.add(value)


VALUE = Kind(
    "value",
    describe=lambda name="s", ttl=None: ValueStateDescriptor(name, "bigint", ttl),
    of_type=lambda ddl: ValueStateDescriptor("s", ddl),
    write=lambda state, n: state.update(n),
    put=lambda state, value: state.update(value),
    read=lambda state: state.value(),
    one=lambda value: value,
    operations={"value": [], "update": [1], "clear": []},
)
LIST = Kind(
    "list",
    describe=lambda name="s", ttl=None: ListStateDescriptor(name, "bigint", ttl),
    of_type=lambda ddl: ListStateDescriptor("s", ddl),
    write=lambda state, n: state.update([n]),
    put=lambda state, value: state.update([value]),
    read=lambda state: list(state.get()),
    one=lambda value: [value],
    operations={"get": [], "add": [1], "add_all": [[1]], "update": [[1]], "clear": []},
    nothing=[],
)
MAP = Kind(
    "map",
    describe=lambda name="s", ttl=None: MapStateDescriptor(name, "string", "bigint", ttl),
    of_type=lambda ddl: MapStateDescriptor("s", "string", ddl),
    write=lambda state, n: state.put("x", n),
    put=lambda state, value: state.put("x", value),
    read=lambda state: dict(state.items()),
    one=lambda value: {"x": value},
    operations={
        "get": ["x"], "put": ["x", 1], "put_all": [{"x": 1}], "remove": ["x"], "contains": ["x"], "items": [],
        "keys": [], "values": [], "is_empty": [], "clear": [],
    },
    nothing={},
)  # fmt: skip
REDUCING = Kind(
    "reducing",
    describe=lambda name="s", ttl=None: ReducingStateDescriptor(name, "bigint", reduce=lambda a, b: a + b, ttl=ttl),
    of_type=lambda ddl: ReducingStateDescriptor("s", ddl, reduce=lambda a, b: b),
    write=_rewrite,
    put=lambda state, value: state.add(value),
    read=lambda state: state.get(),
    one=lambda value: value,
    operations={"get": [], "add": [1], "clear": []},
)
AGGREGATING = Kind(
    "aggregating",
    describe=lambda name="s", ttl=None: AggregatingStateDescriptor(
        name, "struct<total:bigint,count:bigint>", aggregate=Sum(), ttl=ttl
    ),
    of_type=lambda ddl: AggregatingStateDescriptor("s", ddl, aggregate=Latest()),
    write=_rewrite,
    put=lambda state, value: state.add(value),
    read=lambda state: state.get(),
    one=lambda value: f"{value} of 1" if isinstance(value, int) else value,
    operations={"get": [], "add": [1], "clear": []},
)
KINDS = [VALUE, LIST, MAP, REDUCING, AGGREGATING]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)

OPERATIONS = [(kind, name, arguments) for kind in KINDS for name, arguments in kind.operations.items()]
each_operation = pytest.mark.parametrize(
    ("kind", "name", "arguments"), OPERATIONS, ids=[f"{kind}-{name}" for kind, name, _ in OPERATIONS]
)

# Values with what is read back, down to the type of every part.
ROUND_TRIPS: list[tuple[str, Any, Any]] = [
    ("boolean", False, False),
    ("tinyint", -128, -128),
    ("bigint", 2**63 - 1, 2**63 - 1),
    ("float", 0.1, 0.10000000149011612),
    ("double", -0.0, -0.0),
    ("double", math.inf, math.inf),
    ("string", "", ""),
    ("string", "ü\0x", "ü\0x"),
    ("binary", bytearray(b"\0\xff"), b"\0\xff"),
    ("decimal(10,2)", Decimal("1.5"), Decimal("1.50")),
    ("decimal(38,0)", Decimal(10**37), Decimal(10**37)),
    ("date", date(1582, 10, 15), date(1582, 10, 15)),
    (
        "timestamp",
        datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    ("timestamp_ntz", datetime(1969, 12, 31, 1), datetime(1969, 12, 31, 1)),
    ("array<int>", [], []),
    ("array<int>", [1, None, 3], [1, None, 3]),
    ("map<string,double>", {}, {}),
    ("map<string,double>", {"a": 1.5, "b": None}, {"a": 1.5, "b": None}),
    ("struct<a:int,b:string>", {"a": 1}, (1, None)),
    ("struct<a:int,b:string>", (None, None), (None, None)),
    (
        "struct<l:array<struct<d:decimal(4,1)>>,m:map<int,array<binary>>,t:timestamp>",
        {"l": [{"d": Decimal(1)}, None], "m": {1: [b"x", None], 2: None}, "t": None},
        ([(Decimal("1.0"),), None], {1: [b"x", None], 2: None}, None),
    ),
]

MISFITS: list[tuple[str, Any, Any]] = [
    # Type, what it takes, what it refuses.
    ("bigint", 1, "1"),
    ("bigint", 1, True),
    ("bigint", 1, 1.0),
    ("bigint", 1, 2**63),
    ("tinyint", 1, 128),
    ("double", 1.5, "1.5"),
    ("string", "a", b"a"),
    ("string", "a", "\ud800"),
    ("binary", b"a", "a"),
    ("boolean", True, 1),
    ("date", date(2024, 1, 1), datetime(2024, 1, 1)),
    ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), 0),
    ("decimal(4,2)", Decimal("12.34"), Decimal("123.4")),
    ("decimal(4,2)", Decimal("12.34"), Decimal("1.234")),
    ("array<int>", [1], [1, "2"]),
    ("map<string,int>", {"a": 1}, {"a": "1"}),
    ("map<string,int>", {"a": 1}, {None: 1}),
    ("struct<a:int,b:struct<c:int>>", (1, (2,)), (1, ("2",))),
    ("struct<a:int,b:struct<c:int>>", (1, (2,)), {"a": 1, "z": 2}),
    ("struct<a:int not null>", (1,), (None,)),
]


def types(value: Any) -> Any:
    """Return the types of a value at every depth."""
    if isinstance(value, dict):
        return dict, [(types(key), types(item)) for key, item in value.items()]
    if isinstance(value, tuple):
        return tuple, [types(item) for item in value]
    if isinstance(value, list):
        return list, [types(item) for item in value]
    return type(value), str(getattr(value, "tzinfo", None)), str(value) if isinstance(value, Decimal) else None


def at(backend: HeapKeyedStateBackend, key: str | None, key_group: int = 0) -> None:
    backend.set_current_key((key,), key_group)


class _Base:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(1_000)

    @pytest.fixture
    def backend(self, adapter: Adapter, clock: ManualClock) -> HeapKeyedStateBackend:
        made = adapter.make(ALL, clock)
        at(made, "a")
        return made


class ValueContract(_Base):
    """Value state."""

    def test_a_missing_value_is_none(self, backend: HeapKeyedStateBackend) -> None:
        assert backend.get_value_state(VALUE.describe()).value() is None

    @pytest.mark.parametrize(("ddl", "value"), [("bigint", 0), ("boolean", False), ("string", ""), ("array<int>", [])])
    def test_a_falsy_value_is_a_value(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, ddl: str, value: Any
    ) -> None:
        state = backend.get_value_state(VALUE.of_type(ddl))
        state.update(value)
        assert state.value() == value
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        assert moved.get_value_state(VALUE.of_type(ddl)).value() == value

    def test_an_update_replaces_and_none_clears(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_value_state(VALUE.describe())
        state.update(1)
        state.update(2)
        assert state.value() == 2
        state.update(None)
        assert state.value() is None
        assert physical(backend, "s") == {}


class ListContract(_Base):
    """List state."""

    def test_elements_keep_the_order_they_were_added_in(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_list_state(LIST.describe())
        assert list(state.get()) == []
        state.add(3)
        state.add_all([1, 2])
        state.add_all(n for n in (2, 1))
        state.add_all([])
        assert list(state.get()) == [3, 1, 2, 2, 1]

    def test_an_update_replaces_and_no_elements_clear(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_list_state(LIST.describe())
        state.add(1)
        state.update([2, 3])
        assert list(state.get()) == [2, 3]
        state.update([])
        assert list(state.get()) == []
        assert physical(backend, "s") == {}

    @pytest.mark.parametrize(
        ("name", "argument"), [("add", None), ("add_all", [2, None]), ("update", [None]), ("add_all", None)]
    )
    def test_none_is_refused_alone_and_among_others_and_adds_nothing(
        self, backend: HeapKeyedStateBackend, name: str, argument: Any
    ) -> None:
        state = backend.get_list_state(LIST.describe())
        state.add(1)
        with pytest.raises(StateError, match=r"found None .* list state 's'; expected .*; "):
            getattr(state, name)(argument)
        assert list(state.get()) == [1]

    def test_elements_may_be_added_while_they_are_walked_through(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_list_state(LIST.describe())
        state.update([1, 2])
        for element in state.get():
            state.add(element * 10)
        assert list(state.get()) == [1, 2, 10, 20]

    def test_an_element_that_does_not_fit_keeps_out_those_before_it(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_list_state(LIST.describe())
        state.add(1)
        for write in (state.add_all, state.update):
            with pytest.raises(StateTypeError, match="found 'x' for state 's'"):
                write([2, "x"])
            assert list(state.get()) == [1]


class MapContract(_Base):
    """Map state."""

    def test_entries_are_put_read_and_removed_one_by_one(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_map_state(MAP.describe())
        assert state.is_empty()
        assert (state.get("x"), state.contains("x"), list(state.items())) == (None, False, [])
        state.put("x", 1)
        state.put_all({"y": 2, "z": 3})
        state.put("x", 4)
        assert (state.get("x"), state.contains("x"), state.contains("w"), state.is_empty()) == (4, True, False, False)
        assert dict(state.items()) == {"x": 4, "y": 2, "z": 3}
        assert sorted(state.keys()) == ["x", "y", "z"]
        assert sorted(state.values()) == [2, 3, 4]
        state.remove("y")
        state.remove("nobody")
        assert dict(state.items()) == {"x": 4, "z": 3}

    def test_a_map_without_its_last_entry_is_gone(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_map_state(MAP.describe())
        state.put("x", 1)
        state.remove("x")
        state.put_all({})
        assert state.is_empty()
        assert physical(backend, "s") == {}

    def test_none_is_a_value_and_no_key(self, adapter: Adapter, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_map_state(MAP.describe())
        state.put("x", None)
        assert (state.contains("x"), state.get("x"), state.is_empty()) == (True, None, False)
        for refused in (
            lambda: state.put(None, 1),
            lambda: state.put_all({"y": 1, None: 1}),
            lambda: state.get(None),
            lambda: state.contains(None),
            lambda: state.remove(None),
        ):
            with pytest.raises(StateTypeError, match="found None for state 's' under key"):
                refused()
        moved = adapter.move([backend], ALL)
        assert physical(moved, "s") == {("a",): {"x": None}}

    def test_putting_none_instead_of_entries_is_refused(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_map_state(MAP.describe())
        for wrong in (None, [("x", 1)]):
            with pytest.raises(StateError, match="expected a mapping of entries"):
                state.put_all(wrong)  # type: ignore[arg-type]
        assert state.is_empty()

    @pytest.mark.parametrize("walk", ["items", "keys", "values"])
    @pytest.mark.parametrize("ttl", [None, StateTtlConfig(timedelta(days=1))], ids=["plain", "ttl"])
    def test_the_map_may_change_while_it_is_walked_through(
        self, backend: HeapKeyedStateBackend, walk: str, ttl: StateTtlConfig | None
    ) -> None:
        state = backend.get_map_state(MAP.describe(ttl=ttl))
        state.put_all({"x": 1, "y": 2})
        seen = []
        for item in getattr(state, walk)():
            seen.append(item)
            state.put(f"new{len(seen)}", 9)
            state.remove("y")
        assert len(seen) == 2, "it shows what was there when the walk began"
        assert dict(state.items()) == {"x": 1, "new1": 9, "new2": 9}

    def test_of_entries_put_together_none_gets_in_when_one_does_not_fit(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_map_state(MAP.describe())
        state.put("x", 1)
        for entries in ({"x": 2, "y": "bad"}, {"x": 2, 7: 3}):
            with pytest.raises(StateTypeError):
                state.put_all(entries)
        assert dict(state.items()) == {"x": 1}

    def test_user_keys_are_canonical(self, adapter: Adapter, backend: HeapKeyedStateBackend) -> None:
        descriptor = MapStateDescriptor("s", "double", "int")
        state = backend.get_map_state(descriptor)
        state.put(float("nan"), 1)
        state.put(-0.0, 2)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        for each in (state, moved.get_map_state(descriptor)):
            assert (each.get(float("nan")), each.get(0.0)) == (1, 2)
            each.put(float("nan"), 3)
            each.put(0.0, 4)
            assert len(list(each.keys())) == 2

    def test_a_user_key_may_be_a_struct_or_an_array(self, adapter: Adapter, backend: HeapKeyedStateBackend) -> None:
        descriptor = MapStateDescriptor("s", "struct<a:int,b:array<string>>", "int")
        backend.get_map_state(descriptor).put((1, ["x"]), 1)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        state = moved.get_map_state(descriptor)
        assert state.get((1, ("x",))) == 1
        state.remove((1, ["x"]))
        assert state.is_empty()


class FoldingContract(_Base):
    """Reducing and aggregating state."""

    def test_what_is_added_is_reduced(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_reducing_state(ReducingStateDescriptor("s", "string", reduce=lambda a, b: a + b))
        assert state.get() is None
        for text in "abc":
            state.add(text)
        assert state.get() == "abc"

    def test_what_is_added_is_aggregated_and_the_result_is_read(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_aggregating_state(AGGREGATING.describe())
        assert state.get() is None
        state.add(3)
        state.add(4)
        assert state.get() == "7 of 2"
        assert physical(backend, "s") == {("a",): (7, 2)}

    @pytest.mark.parametrize("kind", [REDUCING, AGGREGATING], ids=str)
    def test_adding_none_clears(self, backend: HeapKeyedStateBackend, kind: Kind) -> None:
        state = backend.get_state(kind.describe())
        state.add(1)  # type: ignore[attr-defined]
        state.add(None)  # type: ignore[attr-defined]
        assert kind.read(state) is None
        assert physical(backend, "s") == {}

    def test_a_reduced_value_that_does_not_fit_is_refused_and_the_old_one_kept(
        self, backend: HeapKeyedStateBackend
    ) -> None:
        state = backend.get_reducing_state(ReducingStateDescriptor("s", "tinyint", reduce=lambda a, b: a + b))
        state.add(100)
        with pytest.raises(StateTypeError, match=r"found 200 for state 's' under key \('a',\)"):
            state.add(100)
        assert state.get() == 100

    @pytest.mark.parametrize("kind", [REDUCING, AGGREGATING], ids=str)
    def test_a_function_that_changes_the_old_value_and_fails_changes_nothing(
        self, backend: HeapKeyedStateBackend, kind: Kind
    ) -> None:
        def spoil(a: list[int], b: list[int]) -> list[int]:
            a.append(99)
            raise ZeroDivisionError

        class Spoiling(Latest):
            def create_accumulator(self) -> list[int]:
                return [1]

            def add(self, value: Any, accumulator: Any) -> Any:
                return spoil(accumulator, value) if value == [2] else value

        state: Any
        if kind is REDUCING:
            state = backend.get_reducing_state(ReducingStateDescriptor("s", "array<int>", reduce=spoil))
        else:
            state = backend.get_aggregating_state(AggregatingStateDescriptor("s", "array<int>", aggregate=Spoiling()))
        state.add([1])
        with pytest.raises(ZeroDivisionError):
            state.add([2])
        assert state.get() == [1]


class ScopeContract(_Base):
    """Keys, key groups, names and namespaces."""

    @each_operation
    def test_without_a_current_key_every_operation_is_an_error(
        self, adapter: Adapter, clock: ManualClock, kind: Kind, name: str, arguments: Sequence[Any]
    ) -> None:
        for ttl in (None, StateTtlConfig(timedelta(seconds=1))):
            fresh = adapter.make(ALL, clock)
            state = fresh.get_state(kind.describe(ttl=ttl))
            message = r"found a use of keyed state 's' without a current key; expected .*; use operator state"
            with pytest.raises(NoCurrentKeyError, match=message):
                getattr(state, name)(*arguments)
            at(fresh, "a")
            getattr(state, name)(*arguments)
            fresh.forget_current_key()
            with pytest.raises(NoCurrentKeyError):
                getattr(state, name)(*arguments)

    @each_kind
    def test_every_key_has_its_own_state(self, adapter: Adapter, backend: HeapKeyedStateBackend, kind: Kind) -> None:
        state = backend.get_state(kind.describe())
        places = [("a", 0), ("b", 0), (None, 0), ("", 0), ("a", 5), ("c", 15)]
        for n, place in enumerate(places):
            at(backend, *place)
            assert kind.read(state) == kind.nothing
            kind.write(state, n)
        adapter.epoch(backend)
        at(backend, "b", 0)
        state.clear()
        state.clear()
        expected = [kind.nothing if place == ("b", 0) else kind.one(n) for n, place in enumerate(places)]
        moved = adapter.move([backend], ALL)
        for each in (backend, moved):
            found = []
            for place in places:
                at(each, *place)
                found.append(kind.read(each.get_state(kind.describe())))
            assert found == expected

    @each_kind
    def test_states_of_two_names_are_apart(self, backend: HeapKeyedStateBackend, kind: Kind) -> None:
        first, second = backend.get_state(kind.describe("first")), backend.get_state(kind.describe("second"))
        kind.write(first, 1)
        assert kind.read(second) == kind.nothing
        kind.write(second, 2)
        first.clear()
        assert (kind.read(first), kind.read(second)) == (kind.nothing, kind.one(2))

    @each_kind
    def test_namespaces_of_a_key_are_apart(self, adapter: Adapter, backend: HeapKeyedStateBackend, kind: Kind) -> None:
        windows = [None, Window(0, 10), Window(10, 20)]
        state = backend.get_state(kind.describe())
        for n, window in enumerate(windows):
            backend.set_current_namespace(window)
            assert kind.read(state) == kind.nothing
            kind.write(state, n)
            adapter.epoch(backend)
        backend.set_current_namespace(Window(0, 10))
        state.clear()
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        for each in (backend, moved):
            found = []
            for window in windows:
                each.set_current_namespace(window)
                found.append(kind.read(each.get_state(kind.describe())))
            assert found == [kind.one(0), kind.nothing, kind.one(2)]

    def test_a_namespace_stays_when_the_key_changes(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_value_state(VALUE.describe())
        backend.set_current_namespace(Window(0, 10))
        at(backend, "b")
        state.update(1)
        assert backend.current_key == ("b",)
        assert physical(backend, "s") == {(("b",), Window(0, 10)): 1}
        backend.set_current_namespace(None)
        assert backend.current_key == ("b",)
        assert state.value() is None

    @pytest.mark.parametrize("key_group", [9, 14, -1, 128])
    def test_a_key_group_of_another_subtask_is_refused(
        self, adapter: Adapter, clock: ManualClock, key_group: int
    ) -> None:
        backend = adapter.make(KeyGroupRange(10, 13), clock)
        at(backend, "a", 10)
        with pytest.raises(StateError, match=rf"found key \('x',\) in key group {key_group}; expected .* 10 to 13; "):
            at(backend, "x", key_group)
        assert backend.current_key == ("a",)


class RegistrationContract(_Base):
    """Names, and what they stand for."""

    @each_kind
    def test_equal_descriptors_give_one_state(self, backend: HeapKeyedStateBackend, kind: Kind) -> None:
        kind.write(backend.get_state(kind.describe()), 1)
        assert kind.read(backend.get_state(kind.describe())) == kind.one(1)

    @pytest.mark.parametrize(
        ("first", "second"), [(a, b) for a in KINDS for b in KINDS if a is not b], ids=lambda kind: str(kind)
    )
    def test_one_name_with_two_kinds_is_refused_and_both_are_named(
        self, backend: HeapKeyedStateBackend, first: Kind, second: Kind
    ) -> None:
        backend.get_state(first.describe())
        message = rf"found state 's' requested as {second} of .*; expected {first} of .*; give one .* another name"
        with pytest.raises(StateConflictError, match=message):
            backend.get_state(second.describe())

    @each_kind
    def test_one_name_with_two_types_is_refused_and_both_are_named(
        self, backend: HeapKeyedStateBackend, kind: Kind
    ) -> None:
        backend.get_state(kind.of_type("int"))
        with pytest.raises(StateConflictError, match=rf"{kind} of .*string.*; expected {kind} of .*int"):
            backend.get_state(kind.of_type("string"))

    @each_kind
    def test_one_name_with_two_times_to_live_is_refused_and_both_are_named(
        self, backend: HeapKeyedStateBackend, kind: Kind
    ) -> None:
        day, hour = StateTtlConfig(timedelta(days=1)), StateTtlConfig(timedelta(hours=1))
        backend.get_state(kind.describe(ttl=day))
        for other, shown in ((hour, r"seconds=3600"), (None, "None")):
            with pytest.raises(StateConflictError, match=rf"requested as .*{shown}.*; expected .*days=1"):
                backend.get_state(kind.describe(ttl=other))

    @each_kind
    def test_a_getter_refuses_the_descriptor_of_another_kind(self, backend: HeapKeyedStateBackend, kind: Kind) -> None:
        names = {
            "get_value_state": VALUE, "get_list_state": LIST, "get_map_state": MAP, "get_reducing_state": REDUCING,
            "get_aggregating_state": AGGREGATING,
        }  # fmt: skip
        for getter, own in names.items():
            if own is kind:
                getattr(backend, getter)(kind.describe())
            else:
                # As a context calls them.
                named = "get_state" if kind is VALUE else next(name for name, each in names.items() if each is kind)
                with pytest.raises(StateConflictError, match=rf"; call {named}\(\)$"):
                    getattr(backend, getter)(kind.describe())


class TypeContract(_Base):
    """What a type takes, and in what form it comes back."""

    @each_kind
    @pytest.mark.parametrize(("ddl", "value", "expected"), ROUND_TRIPS, ids=[f"{t}-{v!r}" for t, v, _ in ROUND_TRIPS])
    def test_a_value_reads_the_same_before_and_after_it_was_moved(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, kind: Kind, ddl: str, value: Any, expected: Any
    ) -> None:
        kind.put(backend.get_state(kind.of_type(ddl)), value)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        wanted = kind.one(expected) if kind is not AGGREGATING else expected
        for each in (backend, moved):
            found = kind.read(each.get_state(kind.of_type(ddl)))
            assert found == wanted
            assert types(found) == types(wanted)

    def test_fields_of_a_struct_have_names_also_after_a_move(
        self, adapter: Adapter, backend: HeapKeyedStateBackend
    ) -> None:
        descriptor = VALUE.of_type("struct<a:int,b:struct<c:string>>")
        backend.get_value_state(descriptor).update((1, ("x",)))
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        for each in (backend, moved):
            value = each.get_value_state(descriptor).value()
            assert (value.a, value.b.c) == (1, "x")

    def test_nan_is_kept(self, adapter: Adapter, backend: HeapKeyedStateBackend) -> None:
        backend.get_value_state(VALUE.of_type("double")).update(math.nan)
        assert math.isnan(physical(adapter.move([backend], ALL), "s")["a",])

    @each_kind
    @pytest.mark.parametrize(("ddl", "good", "bad"), MISFITS, ids=[f"{t}-{v!r}" for t, _, v in MISFITS])
    def test_a_value_that_does_not_fit_is_refused_at_the_write_and_the_old_one_kept(
        self, backend: HeapKeyedStateBackend, kind: Kind, ddl: str, good: Any, bad: Any
    ) -> None:
        state = backend.get_state(kind.of_type(ddl))
        kind.put(state, good)
        before = kind.read(state)
        with pytest.raises(StateTypeError, match=r"found .* for state 's' under key \('a',\).*; expected .*; ") as info:
            kind.put(state, bad)
        assert repr(bad) in str(info.value)
        assert kind.read(state) == before != kind.nothing

    @pytest.mark.parametrize("name", ["add", "add_all", "update"])
    def test_every_write_of_a_list_checks_types(self, backend: HeapKeyedStateBackend, name: str) -> None:
        state = backend.get_list_state(LIST.describe())
        with pytest.raises(StateTypeError, match="found 'x' for state 's'"):
            getattr(state, name)("x" if name == "add" else ["x"])
        assert physical(backend, "s") == {}

    def test_the_message_names_key_window_and_the_part_that_does_not_fit(self, backend: HeapKeyedStateBackend) -> None:
        state = backend.get_value_state(VALUE.of_type("struct<a:array<struct<b:int>>>"))
        backend.set_current_namespace(Window(0, 10))
        with pytest.raises(StateTypeError) as info:
            state.update(([(1,), ("x",)],))
        for part in ("key ('a',) in Window(start=0, end=10)", "a[1].b is 'x', not int", "old value was kept"):
            assert part in str(info.value)


NESTED = "struct<m:map<string,array<int>>,l:array<int>>"


def nested() -> dict[str, Any]:
    return {"m": {"a": [1]}, "l": [1]}


def spoil(value: Any) -> None:
    """Change a value of NESTED in place, at every depth."""
    mapping, listed = (value["m"], value["l"]) if isinstance(value, dict) else value
    mapping["a"].append(2)
    mapping["b"] = []
    listed.append(2)


class IsolationContract(_Base):
    """Nothing that a caller holds is state."""

    @each_kind
    def test_a_value_changed_after_it_was_written_changes_nothing(
        self, backend: HeapKeyedStateBackend, kind: Kind
    ) -> None:
        state = backend.get_state(kind.of_type(NESTED))
        mine = nested()
        kind.put(state, mine)
        spoil(mine)
        assert kind.read(state) == kind.one(({"a": [1]}, [1]))

    @each_kind
    def test_a_value_changed_after_it_was_read_changes_nothing(
        self, backend: HeapKeyedStateBackend, kind: Kind
    ) -> None:
        state: Any = backend.get_state(kind.of_type(NESTED))
        kind.put(state, nested())
        readers: dict[Kind, list[Callable[[], Any]]] = {
            VALUE: [lambda: state.value()],
            LIST: [lambda: next(state.get())],
            MAP: [lambda: state.get("x"), lambda: next(state.values()), lambda: next(state.items())[1]],
            REDUCING: [lambda: state.get()],
            AGGREGATING: [lambda: state.get()],
        }
        for read in readers[kind]:
            spoil(read())
            assert kind.read(state) == kind.one(({"a": [1]}, [1]))

    @pytest.mark.parametrize("name", ["add_all", "update"])
    def test_a_list_given_stays_the_callers(self, backend: HeapKeyedStateBackend, name: str) -> None:
        state = backend.get_list_state(LIST.describe())
        mine = [1]
        getattr(state, name)(mine)
        mine.append(2)
        assert list(state.get()) == [1]

    @each_kind
    @pytest.mark.parametrize("ttl", [None, StateTtlConfig(timedelta(days=1))], ids=["plain", "ttl"])
    def test_what_was_moved_is_apart_from_what_goes_on(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, kind: Kind, ttl: StateTtlConfig | None
    ) -> None:
        state: Any = backend.get_state(kind.describe(ttl=ttl))
        kind.write(state, 1)
        moved = adapter.move([backend], ALL)
        kind.write(state, 9)
        if kind is LIST:
            state.add(3)
        if kind is MAP:
            state.put("y", 3)
        at(backend, "b")
        kind.write(state, 5)
        at(moved, "a")
        there: Any = moved.get_state(kind.describe(ttl=ttl))
        assert kind.read(there) == kind.one(1)
        at(moved, "b")
        assert kind.read(there) == kind.nothing
        kind.write(there, 7)
        assert kind.read(state) == kind.one(5)

    @each_kind
    def test_what_was_moved_is_apart_also_inside_of_values(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, kind: Kind
    ) -> None:
        state = backend.get_state(kind.of_type(NESTED))
        kind.put(state, nested())
        moved = adapter.move([backend], ALL)
        there = moved.get_state(kind.of_type(NESTED))
        at(moved, "a")
        found = kind.read(there)
        spoil(found[0] if kind is LIST else found["x"] if kind is MAP else found)
        assert kind.read(there) == kind.read(state) == kind.one(({"a": [1]}, [1]))


PLACES = st.tuples(st.sampled_from(["a", "b", "c", "", None]), st.integers(0, GROUPS - 1))


class MoveContract(_Base):
    """State goes to whoever owns its key group."""

    @examples(40)
    @given(
        st.sampled_from(KINDS),
        st.lists(st.tuples(PLACES, st.none() | st.integers(0, 9), st.booleans()), max_size=25),
        st.integers(1, GROUPS),
        st.integers(1, GROUPS),
    )
    def test_state_moves_from_any_number_of_subtasks_to_any_other(
        self, adapter: Adapter, kind: Kind, writes: list[Any], old: int, new: int
    ) -> None:
        clock = ManualClock()
        before = [adapter.make(key_group_range(GROUPS, old, index), clock) for index in range(old)]
        expected: dict[Any, Any] = {}
        for (key, key_group), n, epoch_ends in writes:
            backend = next(each for each in before if key_group in each.key_groups)
            # A key has one key group, so the group is a part of the key here.
            unique = f"{key}{key_group}"
            at(backend, unique, key_group)
            state = backend.get_state(kind.describe())
            if n is None:
                state.clear()
                expected.pop((unique,), None)
            else:
                kind.write(state, n)
                expected[(unique,)] = kind.one(n), key_group
            if epoch_ends:
                adapter.epoch(backend)
        found: dict[Any, Any] = {}
        for index in range(new):
            moved = adapter.move(before, key_group_range(GROUPS, new, index))
            for key in physical(moved, "s"):
                assert key not in found, "a key is in two subtasks"
                key_group = expected[key][1]
                assert key_group in moved.key_groups
                moved.set_current_key(key, key_group)
                found[key] = kind.read(moved.get_state(kind.describe())), key_group
        assert found == expected

    @each_kind
    def test_a_move_of_a_few_key_groups_brings_these_and_no_others(
        self, adapter: Adapter, clock: ManualClock, kind: Kind
    ) -> None:
        sources = []
        for start, end in [(0, 4), (5, 9), (10, 15)]:
            source = adapter.make(KeyGroupRange(start, end), clock)
            state = source.get_state(kind.describe())
            for group in range(start, end + 1):
                at(source, f"k{group}", group)
                kind.write(state, group)
            sources.append(source)
        moved = adapter.move(sources, KeyGroupRange(3, 11))
        assert set(physical(moved, "s")) == {(f"k{group}",) for group in range(3, 12)}

    def test_after_a_move_there_is_no_current_key_and_nothing_counts_as_written(
        self, adapter: Adapter, backend: HeapKeyedStateBackend
    ) -> None:
        backend.get_value_state(VALUE.describe()).update(1)
        moved = adapter.move([backend], ALL)
        assert moved.current_key is None
        with pytest.raises(NoCurrentKeyError):
            moved.get_value_state(VALUE.describe()).value()
        assert not any(moved.tables["s"].changed.values())
        assert not moved.rewrite_needed

    def test_state_that_nobody_registers_moves_on_and_on(
        self, adapter: Adapter, backend: HeapKeyedStateBackend
    ) -> None:
        for kind in KINDS:
            kind.write(backend.get_state(kind.describe(kind.name)), 1)
        middle = adapter.move([backend], ALL)
        assert middle.unregistered() == sorted(kind.name for kind in KINDS)
        last = adapter.move([middle], ALL)
        at(last, "a")
        for kind in KINDS:
            assert kind.read(last.get_state(kind.describe(kind.name))) == kind.one(1)
        assert last.unregistered() == []

    @pytest.mark.parametrize("windowed_first", [True, False])
    @each_kind
    def test_state_with_and_without_windows_comes_together(
        self, adapter: Adapter, clock: ManualClock, kind: Kind, windowed_first: bool
    ) -> None:
        plain, windowed = (adapter.make(key_group_range(GROUPS, 2, index), clock) for index in range(2))
        at(plain, "a", 0)
        kind.write(plain.get_state(kind.describe()), 1)
        at(windowed, "b", 15)
        windowed.set_current_namespace(Window(0, 10))
        kind.write(windowed.get_state(kind.describe()), 2)
        sources = [windowed, plain] if windowed_first else [plain, windowed]
        moved = adapter.move([adapter.move(sources, ALL)], ALL)
        state = moved.get_state(kind.describe())
        at(moved, "a", 0)
        assert kind.read(state) == kind.one(1)
        at(moved, "b", 15)
        assert kind.read(state) == kind.nothing
        moved.set_current_namespace(Window(0, 10))
        assert kind.read(state) == kind.one(2)

    def test_what_was_removed_after_an_epoch_stays_removed(
        self, adapter: Adapter, backend: HeapKeyedStateBackend
    ) -> None:
        for kind in KINDS:
            kind.write(backend.get_state(kind.describe(kind.name)), 1)
        backend.get_map_state(MAP.describe("map")).put("y", 2)
        adapter.epoch(backend)
        for kind in KINDS:
            if kind is not MAP:
                backend.get_state(kind.describe(kind.name)).clear()
        backend.get_map_state(MAP.describe("map")).remove("y")
        moved = adapter.move([backend], ALL)
        assert {name: stored for name in moved.tables if (stored := physical(moved, name))} == {
            "map": {("a",): {"x": 1}}
        }

    def test_a_map_cleared_and_filled_again_has_the_new_entries_alone(
        self, adapter: Adapter, backend: HeapKeyedStateBackend
    ) -> None:
        state = backend.get_map_state(MAP.describe())
        state.put_all({"x": 1, "y": 2})
        adapter.epoch(backend)
        state.put("z", 3)
        state.clear()
        state.put("y", 4)
        moved = adapter.move([backend], ALL)
        assert physical(moved, "s") == {("a",): {"y": 4}}

    @example([("put", 0), ("put", 1), ("epoch", 0), ("remove", 0), ("put", 0)])
    @example([("put", 0), ("epoch", 0), ("put", 2), ("remove", 2), ("put", 3), ("put", 2)])
    @examples(40)
    @given(st.lists(st.tuples(st.sampled_from(["put", "remove", "clear", "epoch"]), st.integers(0, 3)), max_size=30))
    def test_a_map_keeps_the_order_of_its_entries(self, adapter: Adapter, steps: list[tuple[str, int]]) -> None:
        backend = adapter.make(ALL, ManualClock())
        at(backend, "a")
        state = backend.get_map_state(MAP.describe())
        expected: dict[str, int] = {}
        for n, (step, entry) in enumerate(steps):
            if step == "put":
                state.put(str(entry), n)
                expected[str(entry)] = n
            elif step == "remove":
                state.remove(str(entry))
                expected.pop(str(entry), None)
            elif step == "clear":
                state.clear()
                expected.clear()
            else:
                adapter.epoch(backend)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        for each in (state, moved.get_map_state(MAP.describe())):
            assert list(each.items()) == list(expected.items())


TEN_MS = StateTtlConfig(timedelta(milliseconds=10))


def ttl(**settings_: Any) -> StateTtlConfig:
    return StateTtlConfig(timedelta(milliseconds=10), **settings_)


class TtlContract(_Base):
    """A time to live; the golden scripts have the details."""

    @each_kind
    def test_state_lives_until_its_time_is_over_also_when_it_was_moved(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        kind.write(backend.get_state(kind.describe(ttl=TEN_MS)), 1)
        clock.advance(5)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        for each in (backend, moved):
            state = each.get_state(kind.describe(ttl=TEN_MS))
            clock.set(1_009)
            assert kind.read(state) == kind.one(1)
            clock.set(1_010)
            assert kind.read(state) == kind.nothing

    @each_kind
    def test_a_write_starts_the_time_anew(self, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind) -> None:
        state = backend.get_state(kind.describe(ttl=TEN_MS))
        kind.write(state, 1)
        clock.advance(9)
        kind.write(state, 2)
        clock.advance(9)
        assert kind.read(state) == kind.one(2)
        clock.advance(1)
        assert kind.read(state) == kind.nothing

    @each_kind
    def test_a_read_starts_the_time_anew_only_when_asked_to(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        on_read = ttl(update_type=UpdateType.ON_READ_AND_WRITE)
        refreshed = backend.get_state(kind.describe("refreshed", on_read))
        left = backend.get_state(kind.describe("left", TEN_MS))
        for state in (refreshed, left):
            kind.write(state, 1)
        adapter.epoch(backend)
        clock.advance(9)
        for state in (refreshed, left):
            assert kind.read(state) == kind.one(1)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        clock.advance(9)
        assert kind.read(moved.get_state(kind.describe("refreshed", on_read))) == kind.one(1)
        assert kind.read(moved.get_state(kind.describe("left", TEN_MS))) == kind.nothing

    @each_kind
    def test_expired_state_may_be_shown_once_more(
        self, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        shown = ttl(visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
        state = backend.get_state(kind.describe(ttl=shown))
        kind.write(state, 1)
        clock.advance(10)
        assert kind.read(state) == kind.one(1)
        assert kind.read(state) == kind.nothing

    @each_kind
    def test_what_a_read_found_expired_stays_away_after_a_move(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        state = backend.get_state(kind.describe(ttl=TEN_MS))
        kind.write(state, 1)
        adapter.epoch(backend)
        clock.advance(10)
        assert kind.read(state) == kind.nothing
        clock.set(1_000)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        assert kind.read(moved.get_state(kind.describe(ttl=TEN_MS))) == kind.nothing

    def test_elements_and_entries_expire_one_by_one(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock
    ) -> None:
        listed = backend.get_list_state(LIST.describe("list", TEN_MS))
        mapped = backend.get_map_state(MAP.describe("map", TEN_MS))
        for n in range(3):
            listed.add(n)
            mapped.put(str(n), n)
            adapter.epoch(backend)
            clock.advance(4)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        for each in (backend, moved):
            assert list(each.get_list_state(LIST.describe("list", TEN_MS)).get()) == [1, 2]
            assert dict(each.get_map_state(MAP.describe("map", TEN_MS)).items()) == {"1": 1, "2": 2}

    def test_an_element_added_before_the_expired_ones_were_walked_through_is_kept(
        self, backend: HeapKeyedStateBackend, clock: ManualClock
    ) -> None:
        state = backend.get_list_state(LIST.describe(ttl=TEN_MS))
        state.add(1)
        clock.advance(10)
        walk = state.get()
        state.add(2)
        assert list(walk) == []
        assert list(state.get()) == [2]

    def test_expired_elements_may_be_walked_through_twice_at_a_time(
        self, backend: HeapKeyedStateBackend, clock: ManualClock
    ) -> None:
        state = backend.get_list_state(LIST.describe(ttl=TEN_MS))
        state.add(1)
        clock.advance(10)
        first, second = state.get(), state.get()
        assert (list(first), list(second)) == ([], [])
        third = state.get()
        state.update([3])
        assert list(third) == []
        assert list(state.get()) == [3]

    @each_kind
    def test_a_full_snapshot_leaves_expired_state_out_where_asked_for(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        kind.write(backend.get_state(kind.describe("kept", TEN_MS)), 1)
        kind.write(backend.get_state(kind.describe("left", ttl(cleanup_full_snapshot=True))), 1)
        clock.advance(10)
        moved = adapter.move([backend], ALL)
        assert len(physical(moved, "kept")) == 1
        assert physical(moved, "left") == {}

    @each_kind
    def test_another_time_to_live_holds_for_old_timestamps_too(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        kind.write(backend.get_state(kind.describe(ttl=TEN_MS)), 1)
        clock.advance(15)
        for longer, expected in ((16, kind.one(1)), (15, kind.nothing)):
            moved = adapter.move([backend], ALL)
            at(moved, "a")
            state = moved.get_state(kind.describe(ttl=StateTtlConfig(timedelta(milliseconds=longer))))
            assert kind.read(state) == expected
            assert not moved.rewrite_needed

    @each_kind
    def test_a_time_to_live_switched_on_begins_with_the_restore(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        kind.write(backend.get_state(kind.describe()), 1)
        clock.advance(1_000)
        moved = adapter.move([backend], ALL)
        state = moved.get_state(kind.describe(ttl=TEN_MS))
        assert moved.rewrite_needed
        again = adapter.move([moved], ALL)
        at(again, "a")
        at(moved, "a")
        for each in (state, again.get_state(kind.describe(ttl=TEN_MS))):
            clock.set(2_009)
            assert kind.read(each) == kind.one(1)
            clock.set(2_010)
            assert kind.read(each) == kind.nothing

    @each_kind
    def test_a_time_to_live_switched_off_brings_expired_state_back(
        self, adapter: Adapter, backend: HeapKeyedStateBackend, clock: ManualClock, kind: Kind
    ) -> None:
        kind.write(backend.get_state(kind.describe(ttl=TEN_MS)), 1)
        clock.advance(1_000)
        moved = adapter.move([backend], ALL)
        at(moved, "a")
        assert kind.read(moved.get_state(kind.describe())) == kind.one(1)
        assert moved.rewrite_needed
        again = adapter.move([moved], ALL)
        at(again, "a")
        assert kind.read(again.get_state(kind.describe())) == kind.one(1)


class TimerContract(_Base):
    """Timers are state."""

    def test_timers_move_with_their_keys_and_windows(self, adapter: Adapter, clock: ManualClock) -> None:
        sources = [adapter.make(key_group_range(GROUPS, 2, index), clock) for index in range(2)]
        scopes: list[Any] = []
        for index, backend in enumerate(sources):
            for window in (None, Window(0, 10)):
                at(backend, f"k{index}", index * 8)
                backend.set_current_namespace(window)
                scopes.append((backend.key_group, backend.scope))
                for timestamp in (30, -(2**63), 2**63 - 1):
                    backend.timers("__event_timers").register(*scopes[-1], timestamp)  # type: ignore[call-arg]
                adapter.epoch(backend)
            backend.timers("__event_timers").delete(*scopes[-1], 30)  # type: ignore[call-arg]
        found = []
        for index in range(3):
            timers = adapter.move(sources, key_group_range(GROUPS, 3, index)).timers("__event_timers")
            for timer in timers.due(2**63 - 1):
                found.append((timer.key_group, timer.scope, timer.timestamp))
        expected = {(*scope, timestamp) for scope in scopes for timestamp in (30, -(2**63), 2**63 - 1)}
        expected -= {(*scopes[1], 30), (*scopes[3], 30)}
        assert len(found) == len(set(found))
        assert set(found) == expected


class KeyedBackendContract(
    ValueContract,
    ListContract,
    MapContract,
    FoldingContract,
    ScopeContract,
    RegistrationContract,
    TypeContract,
    IsolationContract,
    MoveContract,
    TtlContract,
    TimerContract,
):
    """All of it."""
