"""Operator state by its own promises; what Flink recorded of it is in test_operator_golden.py."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    DistributionMode,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    OperatorStateHandle,
    StatePartitions,
    StateTtlConfig,
    redistribute_operator_state,
)
from statecore.errors import ConfigurationError, StateConflictError, StateError, StateMigrationError, StateTypeError
from statecore.state.operator_state import OperatorStateSnapshot

WAITING = ListStateDescriptor("waiting", "bigint")
RULES = MapStateDescriptor("rules", "string", "bigint")
SPLIT, UNION, BROADCAST = DistributionMode.SPLIT, DistributionMode.UNION, DistributionMode.BROADCAST

Ask = Callable[[OperatorStateBackend], Any]


def restored(*sources: OperatorStateBackend) -> OperatorStateBackend:
    made = OperatorStateBackend()
    made.restore([source.snapshot() for source in sources])
    return made


def with_list(descriptor: ListStateDescriptor, *elements: Any) -> OperatorStateBackend:
    made = OperatorStateBackend()
    made.get_list_state(descriptor).add_all(elements)
    return made


def with_broadcast(descriptor: MapStateDescriptor, entries: dict[Any, Any]) -> OperatorStateBackend:
    made = OperatorStateBackend()
    made.get_broadcast_state(descriptor).put_all(entries)
    return made


class TestLists:
    @pytest.mark.parametrize("get", ["get_list_state", "get_union_list_state"])
    @pytest.mark.parametrize("write", ["add", "add_all", "update"])
    def test_none_is_refused_and_nothing_is_added(self, get: str, write: str) -> None:
        state = getattr(OperatorStateBackend(), get)(WAITING)
        state.add(1)
        with pytest.raises(StateError, match=r"found None .* operator state 'waiting'; expected values; leave"):
            getattr(state, write)(None if write == "add" else [2, None])
        assert list(state.get()) == [1]

    @pytest.mark.parametrize("write", ["add", "add_all", "update"])
    def test_a_misfit_is_refused_by_name_and_value_and_nothing_is_added(self, write: str) -> None:
        state = OperatorStateBackend().get_list_state(WAITING)
        state.add(1)
        with pytest.raises(StateTypeError, match=r"found 'x' for operator state 'waiting'; expected .* bigint; conv"):
            getattr(state, write)("x" if write == "add" else [2, "x"])
        assert list(state.get()) == [1]

    @pytest.mark.parametrize("write", ["add_all", "update"])
    @pytest.mark.parametrize("given_in", [None, 5, "12"])
    def test_what_is_no_collection_of_elements_is_refused_and_nothing_is_added(self, write: str, given_in: Any) -> None:
        state = with_list(WAITING, 1).get_list_state(WAITING)
        with pytest.raises(StateError, match=r"found .* operator state 'waiting'; expected a list.*; give"):
            getattr(state, write)(given_in)
        assert list(state.get()) == [1]

    def test_a_misfit_inside_an_element_is_named_with_its_path(self) -> None:
        state = OperatorStateBackend().get_list_state(ListStateDescriptor("at", "struct<x:int,y:int>"))
        with pytest.raises(StateTypeError, match=r"found \(1, 'b'\) for operator state 'at' \(y is 'b', not int\)"):
            state.add((1, "b"))

    def test_elements_cannot_be_changed_from_outside(self) -> None:
        state = OperatorStateBackend().get_list_state(ListStateDescriptor("paths", "array<array<int>>"))
        given_in = [[1], [2]]
        state.add(given_in)
        given_in[0].append(9)
        next(state.get()).append([9])
        next(state.get())[0].append(9)
        assert list(state.get()) == [[[1], [2]]]

    def test_the_list_may_change_while_it_is_read(self) -> None:
        state = OperatorStateBackend().get_list_state(WAITING)
        state.add_all([1, 2])
        elements = state.get()
        next(elements)
        state.add(3)
        assert list(elements) == [2]
        assert list(state.get()) == [1, 2, 3]

    def test_a_time_to_live_has_no_effect(self) -> None:
        expiring = replace(WAITING, ttl=StateTtlConfig(timedelta(milliseconds=1)))
        backend = OperatorStateBackend()
        backend.get_list_state(expiring).add(1)
        assert backend.get_list_state(WAITING) is backend.get_list_state(expiring)
        assert backend.snapshot() == with_list(WAITING, 1).snapshot()

    def test_the_last_registration_decides_on_the_strategy(self) -> None:
        backend = with_list(replace(WAITING, strategy="interleaved"), 1)
        assert backend.snapshot()["waiting"].strategy == "interleaved"
        assert restored(backend).snapshot()["waiting"].strategy == "interleaved"
        backend.get_list_state(WAITING)
        assert backend.snapshot()["waiting"].strategy == "contiguous"


class TestBroadcast:
    def test_a_map_does_what_a_map_does(self) -> None:
        state = OperatorStateBackend().get_broadcast_state(RULES)
        assert state.is_empty()
        state.put("a", 1)
        state.put_all({"b": 2, "a": 3})
        state.put_all({})
        assert (state.get("a"), state.get("z")) == (3, None)
        assert (state.contains("b"), state.contains("z")) == (True, False)
        assert list(state.items()) == [("a", 3), ("b", 2)]
        assert (list(state.keys()), list(state.values())) == (["a", "b"], [3, 2])
        state.remove("a")
        state.remove("z")
        assert list(state.keys()) == ["b"]
        state.clear()
        assert state.is_empty()

    def test_a_value_may_be_none_and_is_there(self) -> None:
        state = OperatorStateBackend().get_broadcast_state(RULES)
        state.put("a", None)
        state.put_all({"b": None})
        assert (state.get("a"), state.contains("a"), state.is_empty()) == (None, True, False)
        assert list(state.items()) == [("a", None), ("b", None)]

    @pytest.mark.parametrize(
        "use",
        [
            lambda state: state.get(None),
            lambda state: state.put(None, 1),
            lambda state: state.put_all({"b": 1, None: 2}),
            lambda state: state.remove(None),
            lambda state: state.contains(None),
        ],
        ids=["get", "put", "put_all", "remove", "contains"],
    )
    def test_a_null_key_is_refused(self, use: Callable[[Any], None]) -> None:
        state = with_broadcast(RULES, {"a": 1}).get_broadcast_state(RULES)
        with pytest.raises(StateTypeError, match=r"found the key None for broadcast state 'rules'; expected .* string"):
            use(state)
        assert list(state.items()) == [("a", 1)]

    def test_nothing_at_all_cannot_be_put(self) -> None:
        state = with_broadcast(RULES, {"a": 1}).get_broadcast_state(RULES)
        with pytest.raises(StateError, match=r"found None for broadcast state 'rules'; expected a mapping"):
            state.put_all(None)  # type: ignore[arg-type]
        assert list(state.items()) == [("a", 1)]

    @pytest.mark.parametrize("write", ["put", "put_all"])
    def test_a_misfit_is_refused_by_name_key_and_value_and_the_old_value_stays(self, write: str) -> None:
        state = with_broadcast(RULES, {"a": 1}).get_broadcast_state(RULES)
        with pytest.raises(StateTypeError, match=r"found 'x' for broadcast state 'rules' under key 'a'; .* bigint"):
            state.put("a", "x") if write == "put" else state.put_all({"b": 2, "a": "x"})
        assert list(state.items()) == [("a", 1)]

    def test_keys_are_canonical_also_through_snapshots(self) -> None:
        doubles = MapStateDescriptor("rules", "double", "string")
        one = with_broadcast(doubles, {float("nan"): "nan", -0.0: "zero"})
        two = with_broadcast(doubles, {float("nan"): "later"})
        state = restored(one, two).get_broadcast_state(doubles)
        assert (state.get(float("nan")), state.get(0)) == ("later", "zero")
        assert len(list(state.keys())) == 2

    def test_values_cannot_be_changed_from_outside(self) -> None:
        lists = MapStateDescriptor("rules", "string", "array<int>")
        backend = OperatorStateBackend()
        state = backend.get_broadcast_state(lists)
        given_in = [1]
        state.put("a", given_in)
        for view in (state, backend.read_only_broadcast_state(lists)):
            for reached in (given_in, view.get("a"), next(view.values()), next(view.items())[1]):
                reached.append(9)
            assert list(view.items()) == [("a", [1])]

    def test_the_map_may_change_while_it_is_walked_through(self) -> None:
        state = OperatorStateBackend().get_broadcast_state(RULES)
        state.put_all({"a": 1, "b": 2})
        for key, value in state.items():
            state.remove(key)
            state.put(key + key, value)
        for key in state.keys():  # noqa: SIM118 - state is no dict
            state.put(key + "!", 0)
        for _ in state.values():
            state.clear()
        assert state.is_empty()


class TestReadOnlyBroadcast:
    @pytest.mark.parametrize(
        "write",
        [
            lambda view: view.put("a", 2),
            lambda view: view.put_all({}),
            lambda view: view.remove("z"),
            lambda view: view.clear(),
        ],
        ids=["put", "put_all", "remove", "clear"],
    )
    def test_a_write_is_refused_because_the_broadcast_side_alone_may(self, write: Callable[[Any], None]) -> None:
        backend = with_broadcast(RULES, {"a": 1})
        with pytest.raises(StateError, match=r"broadcast state 'rules' .* the broadcast side alone may write"):
            write(backend.read_only_broadcast_state(RULES))
        assert list(backend.get_broadcast_state(RULES).items()) == [("a", 1)]

    def test_it_reads_what_the_broadcast_side_has_written_also_later(self) -> None:
        backend = OperatorStateBackend()
        view = backend.read_only_broadcast_state(RULES)
        assert view.is_empty()
        state = backend.get_broadcast_state(RULES)
        state.put("old", 0)
        state.clear()
        state.put("a", 1)
        assert (view.get("a"), view.contains("a"), view.contains("old"), view.is_empty()) == (1, True, False, False)
        assert (list(view.items()), list(view.keys()), list(view.values())) == ([("a", 1)], ["a"], [1])


ASK: dict[str, Ask] = {
    "split list of bigint": lambda backend: backend.get_list_state(WAITING),
    "split list of string": lambda backend: backend.get_list_state(ListStateDescriptor("waiting", "string")),
    "union list of bigint": lambda backend: backend.get_union_list_state(WAITING),
    "broadcast map<string,bigint>": lambda backend: backend.get_broadcast_state(RULES),
    "broadcast map<string,string>": lambda backend: backend.get_broadcast_state(
        MapStateDescriptor("rules", "string", "string")
    ),
}


class TestConflicts:
    @pytest.mark.parametrize("asked", ASK)
    def test_the_same_name_asked_for_twice_is_the_same_object(self, asked: str) -> None:
        backend = OperatorStateBackend()
        assert ASK[asked](backend) is ASK[asked](backend)

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("split list of bigint", "split list of string"),
            ("split list of bigint", "union list of bigint"),
            ("union list of bigint", "split list of bigint"),
            ("broadcast map<string,bigint>", "broadcast map<string,string>"),
        ],
    )
    def test_one_name_with_two_modes_or_types_is_refused_and_both_are_named(self, first: str, second: str) -> None:
        backend = OperatorStateBackend()
        ASK[first](backend)
        with pytest.raises(StateConflictError, match=f"requested as {second}; expected {first}, .* another name"):
            ASK[second](backend)

    @pytest.mark.parametrize(
        ("get", "given_in", "message"),
        [
            ("get_list_state", RULES, "map state 'rules' requested as a split list; expected a ListStateDescriptor; "),
            ("get_union_list_state", RULES, "map state 'rules' requested as a union list; expected a ListState"),
            ("get_broadcast_state", WAITING, "list state 'waiting' requested as a broadcast state; expected a MapS"),
            ("read_only_broadcast_state", WAITING, "list state 'waiting' requested as a broadcast state; expected"),
        ],
    )
    def test_a_descriptor_of_another_kind_is_refused(self, get: str, given_in: Any, message: str) -> None:
        backend = OperatorStateBackend()
        with pytest.raises(StateConflictError, match=message):
            getattr(backend, get)(given_in)
        assert backend.snapshot() == {}

    @pytest.mark.parametrize("get", ["get_list_state", "get_union_list_state", "get_broadcast_state"])
    def test_what_is_no_descriptor_is_refused(self, get: str) -> None:
        with pytest.raises(ConfigurationError, match=r"found 'waiting' requested as a .*; expected a .*; create one"):
            getattr(OperatorStateBackend(), get)("waiting")

    def test_a_restored_list_asked_for_in_another_mode_is_refused_and_stays(self) -> None:
        source = with_list(WAITING, 1)
        backend = restored(source)
        with pytest.raises(StateConflictError, match="as union list of bigint; expected split list of bigint"):
            backend.get_union_list_state(WAITING)
        assert backend.snapshot() == source.snapshot()

    @pytest.mark.parametrize("again", [True, False], ids=["registered", "restored"])
    def test_a_list_and_a_broadcast_state_of_one_name_are_not_saved_over_each_other(self, again: bool) -> None:
        backend = with_list(WAITING, 1) if again else restored(with_list(WAITING, 1))
        backend.get_broadcast_state(replace(RULES, name="waiting"))
        with pytest.raises(StateConflictError, match=r"'waiting', split list of bigint and broadcast map<string,big"):
            backend.snapshot()

    @pytest.mark.parametrize("other", ["split list of string", "union list of bigint"])
    def test_snapshots_that_disagree_are_refused_and_nothing_is_restored(self, other: str) -> None:
        one, two = with_list(WAITING, 1), OperatorStateBackend()
        ASK[other](two)
        backend = with_list(WAITING, 7)
        with pytest.raises(StateConflictError, match=f"'waiting' as split list of bigint and as {other}; .* one job"):
            backend.restore([one.snapshot(), two.snapshot()])
        assert list(backend.get_list_state(WAITING).get()) == [7]


class TestSnapshots:
    def test_a_snapshot_holds_mode_type_strategy_and_elements(self) -> None:
        backend = with_list(ListStateDescriptor("b", "long"), 1, 2)
        backend.get_union_list_state(ListStateDescriptor("a", "string", strategy="interleaved"))
        backend.get_broadcast_state(RULES)
        assert backend.snapshot() == {
            "a": OperatorStateSnapshot(UNION, "string", "interleaved", ()),
            "b": OperatorStateSnapshot(SPLIT, "bigint", "contiguous", (1, 2)),
            "rules": OperatorStateSnapshot(BROADCAST, "map<string,bigint>", "contiguous", ({},)),
        }
        assert list(backend.snapshot()) == ["a", "b", "rules"]

    def test_later_writes_do_not_reach_a_snapshot_nor_what_was_restored_from_it(self) -> None:
        backend = with_list(WAITING, 1)
        backend.get_broadcast_state(RULES).put("a", 1)
        taken = backend.snapshot()
        copies = [OperatorStateBackend() for _ in range(2)]
        for copy in copies:
            copy.restore([taken])
        for made in (backend, copies[0]):
            made.get_list_state(WAITING).add(2)
            made.get_broadcast_state(RULES).put("a", 2)
        assert taken["waiting"].elements == (1,)
        assert taken["rules"].elements == ({"a": 1},)
        assert copies[1].snapshot() == taken

    def test_a_snapshot_from_before_the_states_were_registered_again_is_isolated_too(self) -> None:
        source = with_list(WAITING, 1)
        source.get_broadcast_state(RULES).put("a", 1)
        backend = restored(source)
        taken = backend.snapshot()
        backend.get_list_state(WAITING).add(2)
        backend.get_broadcast_state(RULES).put("a", 2)
        assert taken == source.snapshot()

    def test_a_snapshot_is_equal_to_another_exactly_when_nothing_changed(self) -> None:
        backend = with_list(ListStateDescriptor("waiting", "double"), math.nan, 1)
        state = backend.get_list_state(ListStateDescriptor("waiting", "double"))
        before = backend.snapshot()
        list(state.get())
        assert backend.snapshot() == before
        state.update(state.get())
        assert backend.snapshot() == before
        state.add(1)
        assert backend.snapshot() != before

    def test_restored_states_that_nobody_asks_for_are_kept_as_they_are(self) -> None:
        source = with_list(replace(WAITING, strategy="interleaved"), 1, 2)
        source.get_union_list_state(ListStateDescriptor("seen", "string")).add("x")
        source.get_broadcast_state(RULES).put("a", 1)
        source.get_broadcast_state(replace(RULES, name="empty"))
        middle = restored(source)
        assert middle.registered_state_names() == ["seen", "waiting"]
        assert middle.registered_broadcast_state_names() == ["empty", "rules"]
        middle.get_list_state(ListStateDescriptor("new", "int"))
        assert middle.registered_state_names() == ["new", "seen", "waiting"]
        assert {name: middle.snapshot()[name] for name in source.snapshot()} == source.snapshot()

    def test_one_snapshot_may_be_restored_without_a_list_around_it(self) -> None:
        source = with_list(WAITING, 1, 2)
        source.get_broadcast_state(RULES).put("a", 1)
        backend = OperatorStateBackend()
        backend.restore(source.snapshot())
        assert backend.snapshot() == source.snapshot()

    def test_a_restore_starts_afresh(self) -> None:
        backend = with_list(ListStateDescriptor("gone", "int"), 1)
        backend.get_list_state(WAITING).add(1)
        backend.get_broadcast_state(RULES).put("a", 1)
        backend.restore([with_list(WAITING, 2).snapshot()])
        assert backend.snapshot() == with_list(WAITING, 2).snapshot()
        backend.restore([])
        assert backend.snapshot() == {}
        assert backend.get_broadcast_state(RULES).is_empty()


DOUBLES = ListStateDescriptor("doubles", "double")
SEEN = ListStateDescriptor("seen", "string")


def untouched() -> OperatorStateBackend:
    """Return a backend whose states were restored and registered, and nothing more."""
    source = with_list(DOUBLES, 0.0)
    source.get_list_state(WAITING)
    source.get_union_list_state(SEEN).add("x")
    source.get_broadcast_state(RULES).put_all({"a": 1, "b": 2})
    backend = OperatorStateBackend()
    backend.attach(source.detach())
    backend.get_list_state(DOUBLES)
    backend.get_list_state(WAITING)
    backend.get_union_list_state(SEEN)
    backend.get_broadcast_state(RULES)
    return backend


class TestChanges:
    def test_a_state_that_was_not_restored_is_changed_also_when_it_is_empty(self) -> None:
        backend = OperatorStateBackend()
        assert backend.changed() == []
        backend.get_list_state(WAITING)
        backend.get_union_list_state(SEEN)
        backend.get_broadcast_state(RULES)
        assert backend.changed() == ["rules", "seen", "waiting"]

    @pytest.mark.parametrize("way", ["restored", "attached"])
    def test_a_restored_state_is_unchanged_whether_it_is_registered_read_or_neither(self, way: str) -> None:
        backend = untouched() if way == "attached" else restored(untouched())
        assert backend.changed() == []
        list(backend.get_list_state(DOUBLES).get())
        list(backend.get_broadcast_state(RULES).items())
        list(backend.read_only_broadcast_state(RULES).values())
        assert backend.get_broadcast_state(RULES).get("a") == 1
        backend.snapshot()
        assert backend.changed() == []

    @pytest.mark.parametrize(
        ("write", "name"),
        [
            (lambda backend: backend.get_list_state(DOUBLES).add(1), "doubles"),
            (lambda backend: backend.get_list_state(DOUBLES).add_all([1]), "doubles"),
            (lambda backend: backend.get_list_state(DOUBLES).update([-0.0]), "doubles"),
            (lambda backend: backend.get_list_state(DOUBLES).clear(), "doubles"),
            (lambda backend: backend.get_list_state(WAITING).update([]), "waiting"),
            (lambda backend: backend.get_union_list_state(SEEN).update(["x"]), "seen"),
            (lambda backend: backend.get_broadcast_state(RULES).put("a", 1), "rules"),
            (lambda backend: backend.get_broadcast_state(RULES).put_all({"a": 1}), "rules"),
            (lambda backend: backend.get_broadcast_state(RULES).remove("a"), "rules"),
            (lambda backend: backend.get_broadcast_state(RULES).clear(), "rules"),
        ],
    )
    def test_every_write_is_a_change_also_one_of_equal_values(self, write: Ask, name: str) -> None:
        backend = untouched()
        write(backend)
        assert backend.changed() == [name]

    def test_a_write_that_has_nothing_to_add_or_remove_or_is_refused_is_no_change(self) -> None:
        backend = untouched()
        backend.get_list_state(DOUBLES).add_all([])
        backend.get_list_state(WAITING).clear()
        rules = backend.get_broadcast_state(RULES)
        rules.put_all({})
        rules.remove("z")
        for refused in (lambda: backend.get_list_state(WAITING).update(["x"]), lambda: rules.put("a", "x")):
            with pytest.raises(StateTypeError):
                refused()
        assert backend.changed() == []

    @pytest.mark.parametrize(
        "ask",
        [
            lambda backend: backend.get_list_state(replace(WAITING, strategy="interleaved")),
            lambda backend: backend.get_list_state(ListStateDescriptor("waiting", "decimal(30,2)")),
        ],
        ids=["another strategy", "a migration"],
    )
    def test_what_is_to_be_saved_otherwise_is_changed(self, ask: Ask) -> None:
        backend = restored(untouched())
        ask(backend)
        assert backend.changed() == ["waiting"]

    def test_a_migration_of_a_broadcast_state_is_a_change(self) -> None:
        backend = restored(with_broadcast(MapStateDescriptor("rules", "string", "int"), {}))
        backend.get_broadcast_state(RULES)
        assert backend.changed() == ["rules"]

    def test_another_strategy_is_no_change_of_a_union_which_is_never_cut(self) -> None:
        backend = restored(untouched())
        backend.get_union_list_state(replace(SEEN, strategy="interleaved"))
        assert backend.changed() == []
        assert backend.snapshot()["seen"].strategy == "interleaved"


class TestHandingOver:
    def test_states_are_the_same_in_the_backend_that_they_were_handed_to(self) -> None:
        source = untouched()
        taken = source.snapshot()
        later = OperatorStateBackend()
        later.attach(source.detach())
        assert source.snapshot() == {}
        assert later.unregistered() == ["doubles", "rules", "seen", "waiting"]
        assert later.snapshot() == taken
        assert list(later.get_list_state(DOUBLES).get()) == [0.0]
        assert list(later.read_only_broadcast_state(RULES).items()) == [("a", 1), ("b", 2)]

    def test_no_element_is_copied_on_the_way(self) -> None:
        source = untouched()
        taken = source.detach()
        later = OperatorStateBackend()
        later.attach(taken)
        later.get_list_state(DOUBLES)
        later.get_broadcast_state(RULES)
        again = later.detach()
        assert again["doubles"].elements is taken["doubles"].elements
        assert again["rules"].elements[0] is taken["rules"].elements[0]

    def test_states_that_were_got_before_reach_nothing_any_more(self) -> None:
        source = untouched()
        waiting, rules = source.get_list_state(WAITING), source.get_broadcast_state(RULES)
        view = rules.read_only
        later = OperatorStateBackend()
        later.attach(source.detach())
        taken = later.snapshot()
        assert (list(waiting.get()), view.is_empty()) == ([], True)
        waiting.add(7)
        rules.put("c", 7)
        assert later.snapshot() == taken
        assert view.get("c") == 7

    def test_a_list_and_a_broadcast_state_of_one_name_are_refused_and_stay(self) -> None:
        backend = with_list(WAITING, 1)
        backend.get_broadcast_state(replace(RULES, name="waiting"))
        with pytest.raises(StateConflictError, match=r"two operator states 'waiting'"):
            backend.detach()
        assert list(backend.get_list_state(WAITING).get()) == [1]

    def test_a_snapshot_of_states_that_were_handed_over_is_isolated(self) -> None:
        backend = OperatorStateBackend()
        backend.attach(untouched().detach())
        taken = backend.snapshot()
        backend.get_list_state(DOUBLES).add(1)
        backend.get_broadcast_state(RULES).put("a", 9)
        assert taken == untouched().snapshot()


PERSON = "struct<name:string,zip:int>"
RENAMED = "struct<postcode:bigint,name:string,age:int>"


class TestEvolution:
    @pytest.mark.parametrize("get", ["get_list_state", "get_union_list_state"])
    def test_restored_elements_are_brought_into_the_declared_type_once(self, get: str) -> None:
        source = OperatorStateBackend()
        getattr(source, get)(ListStateDescriptor("people", PERSON)).add_all([("Ann", 1), ("Bob", None)])
        backend = restored(source)
        wanted = ListStateDescriptor("people", RENAMED, renames={"zip": "postcode"})
        state = getattr(backend, get)(wanted)
        assert list(state.get()) == [(1, "Ann", None), (None, "Bob", None)]
        assert next(state.get()).postcode == 1
        assert getattr(backend, get)(wanted) is state
        assert backend.snapshot()["people"].type == wanted.type_ddl()

    def test_restored_broadcast_values_are_brought_into_the_declared_type(self) -> None:
        source = with_broadcast(MapStateDescriptor("people", "string", PERSON), {"a": ("Ann", 1), "b": None})
        backend = restored(source)
        wanted = MapStateDescriptor("people", "string", RENAMED, renames={"zip": "postcode"})
        assert dict(backend.get_broadcast_state(wanted).items()) == {"a": (1, "Ann", None), "b": None}
        backend.get_broadcast_state(wanted).put("c", {"postcode": 2**40})
        assert backend.read_only_broadcast_state(wanted).get("c").postcode == 2**40

    @pytest.mark.parametrize("ask", ["split list of bigint", "broadcast map<string,bigint>"])
    def test_a_type_that_does_not_fit_is_refused_and_what_was_restored_stays(self, ask: str) -> None:
        source = with_list(ListStateDescriptor("waiting", "string"), "x")
        source.get_broadcast_state(MapStateDescriptor("rules", "string", "string")).put("a", "x")
        backend = restored(source)
        with pytest.raises(StateMigrationError, match=r"(?s)string.*bigint"):
            ASK[ask](backend)
        assert backend.snapshot() == source.snapshot()

    def test_another_key_type_is_refused_and_what_was_restored_stays(self) -> None:
        source = with_broadcast(MapStateDescriptor("rules", "int", "bigint"), {1: 1})
        backend = restored(source)
        with pytest.raises(StateMigrationError, match=r"(?s)'rules'"):
            backend.get_broadcast_state(MapStateDescriptor("rules", "bigint", "bigint"))
        assert backend.snapshot() == source.snapshot()


# --- through changes of parallelism ---

CUT = ListStateDescriptor("cut", "int")
DEALT = ListStateDescriptor("dealt", "int", strategy="interleaved")
SHARED = ListStateDescriptor("shared", "int")


def rescaled(subtasks: list[OperatorStateBackend], parallelism: int) -> list[OperatorStateBackend]:
    """Return the subtasks of another parallelism, restored as a job restores them: from handles, element by element."""
    files = {f"file-{i}": subtask.snapshot() for i, subtask in enumerate(subtasks)}
    handles = [
        [
            OperatorStateHandle(
                path,
                {name: StatePartitions(s.mode, tuple(range(len(s.elements)))) for name, s in snapshot.items()},
            )
        ]
        for path, snapshot in files.items()
    ]
    strategies = {name: state.strategy for snapshot in files.values() for name, state in snapshot.items()}
    new = [OperatorStateBackend() for _ in range(parallelism)]
    shares = redistribute_operator_state(handles, parallelism, strategies=strategies)
    for backend, share in zip(new, shares, strict=True):
        backend.restore(
            {
                name: replace(
                    state := files[handle.path][name], elements=tuple(state.elements[o] for o in part.offsets)
                )
                for name, part in handle.states.items()
            }
            for handle in share
        )
    return new


def elements(subtasks: list[OperatorStateBackend], name: str) -> list[list[Any]]:
    """Return what each subtask holds of a state, whether it was registered again or not."""
    snapshots = [subtask.snapshot().get(name) for subtask in subtasks]
    return [[] if snapshot is None else list(snapshot.elements) for snapshot in snapshots]


def flat(lists: list[list[Any]]) -> list[Any]:
    return [element for of_subtask in lists for element in of_subtask]


some_elements = st.lists(st.integers(-5, 5), max_size=6)


@given(
    st.lists(st.tuples(some_elements, some_elements, some_elements), min_size=1, max_size=5),
    st.dictionaries(st.text(max_size=2), st.none() | st.integers(-5, 5), max_size=4),
    st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=2, max_size=2),
)
def test_no_element_is_lost_or_doubled_by_two_changes_of_parallelism(
    written: list[tuple[list[int], list[int], list[int]]],
    entries: dict[str, int | None],
    steps: list[tuple[int, bool]],
) -> None:
    subtasks = []
    for cut, dealt, shared in written:
        backend = with_list(CUT, *cut)
        backend.get_list_state(DEALT).add_all(dealt)
        backend.get_union_list_state(SHARED).add_all(shared)
        backend.get_broadcast_state(RULES).put_all(entries)
        subtasks.append(backend)
    for parallelism, registered_again in steps:
        before = {name: elements(subtasks, name) for name in ("cut", "dealt", "shared")}
        subtasks = rescaled(subtasks, parallelism)
        if registered_again:
            for backend in subtasks:
                backend.get_list_state(CUT)
                backend.get_list_state(DEALT)
                backend.get_union_list_state(SHARED)
                backend.get_broadcast_state(RULES)
        after = {name: elements(subtasks, name) for name in before}
        if len(before["cut"]) != parallelism:
            assert flat(after["cut"]) == flat(before["cut"])
        assert Counter(flat(after["cut"])) == Counter(flat(before["cut"]))
        assert Counter(flat(after["dealt"])) == Counter(flat(before["dealt"]))
        assert after["shared"] == [flat(before["shared"])] * parallelism
        assert elements(subtasks, "rules") == [[entries]] * parallelism


def test_the_copies_of_a_broadcast_state_go_their_own_ways_after_a_rescale() -> None:
    one, two = rescaled([with_broadcast(RULES, {"a": 1})], 2)
    one.get_broadcast_state(RULES).put("a", 2)
    assert two.get_broadcast_state(RULES).get("a") == 1


def test_split_elements_are_cut_into_chunks_or_dealt_one_by_one_as_was_asked_for() -> None:
    def offsets(descriptor: ListStateDescriptor) -> list[list[Any]]:
        return elements(rescaled([with_list(descriptor, 1, 2), with_list(descriptor, 3, 4)], 3), descriptor.name)

    assert offsets(CUT) == [[1, 2], [3], [4]]
    assert offsets(DEALT) == [[1, 4], [2], [3]]
