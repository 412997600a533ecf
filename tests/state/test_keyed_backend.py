"""Keyed state of one subtask, as a Flink user expects it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statecore import (
    HeapKeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from statecore.errors import NoCurrentKeyError, StateConflictError, StateError

TOTAL = ValueStateDescriptor("total", "bigint")
SEEN = ListStateDescriptor("seen", "bigint")


class _Clock:
    def now_ms(self) -> int:
        return 0


def backend(start: int = 0, end: int = 127) -> HeapKeyedStateBackend:
    made = HeapKeyedStateBackend(128, KeyGroupRange(start, end), _Clock())
    made.set_current_key(("a",), start)
    return made


def stored(made: HeapKeyedStateBackend, name: str) -> dict[int, dict[Any, Any]]:
    return {group: values for group, values in made.tables[name].groups.items() if values}


def changed(made: HeapKeyedStateBackend, name: str) -> dict[int, set[Any]]:
    return {group: set(keys) for group, keys in made.tables[name].changed.items()}


class TestValueState:
    def test_a_missing_value_is_none(self) -> None:
        assert backend().get_value_state(TOTAL).value() is None

    @pytest.mark.parametrize("value", [0, False, "", (), 7])
    def test_what_was_written_is_read_back_also_when_it_is_falsy(self, value: Any) -> None:
        state = backend().get_value_state(TOTAL)
        state.update(value)
        assert state.value() == value
        assert state.value() is not None

    def test_updating_with_none_clears(self) -> None:
        made = backend()
        state = made.get_value_state(TOTAL)
        state.update(1)
        state.update(None)
        assert state.value() is None
        assert stored(made, "total") == {}

    def test_clearing_removes_the_value_of_the_current_key_alone(self) -> None:
        made = backend()
        state = made.get_value_state(TOTAL)
        state.update(1)
        made.set_current_key(("b",), 1)
        state.update(2)
        state.clear()
        state.clear()
        assert state.value() is None
        made.set_current_key(("a",), 0)
        assert state.value() == 1

    def test_each_key_has_its_own_value_also_within_one_key_group(self) -> None:
        made = backend()
        state = made.get_value_state(TOTAL)
        for key in [("a",), ("b",), ("a", 1), (None,)]:
            made.set_current_key(key, 5)
            assert state.value() is None
            state.update(hash(key))
        for key in [("a",), ("b",), ("a", 1), (None,)]:
            made.set_current_key(key, 5)
            assert state.value() == hash(key)


class TestListState:
    def test_a_missing_list_is_empty(self) -> None:
        assert list(backend().get_list_state(SEEN).get()) == []

    def test_elements_are_kept_in_the_order_they_were_added(self) -> None:
        state = backend().get_list_state(SEEN)
        state.add(3)
        state.add_all([1, 2])
        state.add_all(n for n in (2, 1))
        state.add_all([])
        assert list(state.get()) == [3, 1, 2, 2, 1]

    def test_update_replaces_and_an_empty_update_clears(self) -> None:
        made = backend()
        state = made.get_list_state(SEEN)
        state.add(1)
        state.update([2, 3])
        assert list(state.get()) == [2, 3]
        state.update([])
        assert list(state.get()) == []
        assert stored(made, "seen") == {}

    @pytest.mark.parametrize("write", ["add", "add_all", "update"])
    def test_none_is_refused_and_nothing_is_added(self, write: str) -> None:
        made = backend()
        state = made.get_list_state(SEEN)
        state.add(1)
        made.clear_changes()
        with pytest.raises(StateError, match=r"found None .* list state 'seen'; expected values"):
            getattr(state, write)(None if write == "add" else [2, None, 3])
        assert list(state.get()) == [1]
        assert changed(made, "seen") == {}

    def test_the_list_given_to_update_stays_the_callers(self) -> None:
        state = backend().get_list_state(SEEN)
        mine = [1]
        state.update(mine)
        mine.append(2)
        assert list(state.get()) == [1]

    def test_elements_may_be_added_while_they_are_iterated(self) -> None:
        state = backend().get_list_state(SEEN)
        state.update([1, 2])
        for element in state.get():
            state.add(element * 10)
        assert list(state.get()) == [1, 2, 10, 20]


class TestScope:
    @pytest.mark.parametrize("use", ["value", "update", "clear"])
    def test_without_a_current_key_every_use_of_a_value_is_an_error(self, use: str) -> None:
        made = backend()
        state = made.get_value_state(TOTAL)
        made.forget_current_key()
        with pytest.raises(NoCurrentKeyError, match=r"keyed state 'total' without a current key; expected.*use "):
            getattr(state, use)(*[1] * (use == "update"))

    @pytest.mark.parametrize("use", ["get", "add", "add_all", "update", "clear"])
    def test_without_a_current_key_every_use_of_a_list_is_an_error(self, use: str) -> None:
        made = backend()
        state = made.get_list_state(SEEN)
        made.forget_current_key()
        arguments = {"add": [1], "add_all": [[1]], "update": [[1]]}.get(use, [])
        with pytest.raises(NoCurrentKeyError):
            getattr(state, use)(*arguments)

    @pytest.mark.parametrize("key_group", [9, 21, -1, 128])
    def test_a_key_group_of_another_subtask_is_refused_with_key_and_range(self, key_group: int) -> None:
        made = backend(10, 20)
        with pytest.raises(StateError, match=rf"key \('x',\) in key group {key_group}; expected .* 10 to 20"):
            made.set_current_key(("x",), key_group)
        assert made.current_key == ("a",)


class TestRegistration:
    def test_one_descriptor_gives_one_state(self) -> None:
        made = backend()
        made.get_value_state(TOTAL).update(1)
        assert made.get_value_state(ValueStateDescriptor("total", "BIGINT")).value() == 1

    def test_one_name_with_two_kinds_is_refused(self) -> None:
        made = backend()
        made.get_value_state(TOTAL)
        with pytest.raises(StateConflictError, match=r"'total' asked for as list of bigint; expected value of bigint"):
            made.get_list_state(ListStateDescriptor("total", "bigint"))

    def test_one_name_with_two_types_is_refused(self) -> None:
        made = backend()
        made.get_list_state(SEEN)
        with pytest.raises(StateConflictError, match=r"list of string; expected list of bigint.*another name"):
            made.get_list_state(ListStateDescriptor("seen", "string"))

    def test_a_restored_state_is_refused_under_another_type(self) -> None:
        source = backend()
        source.get_value_state(TOTAL).update(1)
        made = backend()
        made.restore([source.snapshot()])
        with pytest.raises(StateConflictError, match="value of string; expected value of bigint"):
            made.get_value_state(ValueStateDescriptor("total", "string"))

    def test_a_time_to_live_is_refused_and_not_ignored(self) -> None:
        with pytest.raises(StateError, match="TTL on state 'x'"):
            backend().get_value_state(ValueStateDescriptor("x", "int", ttl=StateTtlConfig(timedelta(seconds=1))))


class TestSnapshots:
    def test_a_snapshot_is_isolated_from_later_writes(self) -> None:
        made = backend()
        total, seen = made.get_value_state(TOTAL), made.get_list_state(SEEN)
        total.update(1)
        seen.update([1, 2])
        snapshot = made.snapshot()
        total.update(9)
        seen.add(3)
        made.set_current_key(("b",), 1)
        total.update(5)

        restored = backend()
        restored.restore([snapshot])
        restored.set_current_key(("a",), 0)
        assert restored.get_value_state(TOTAL).value() == 1
        assert list(restored.get_list_state(SEEN).get()) == [1, 2]
        restored.set_current_key(("b",), 1)
        assert restored.get_value_state(TOTAL).value() is None

    def test_a_value_changed_in_place_changes_no_snapshot(self) -> None:
        made = backend()
        state = made.get_value_state(ValueStateDescriptor("nested", "struct<m:map<string,array<int>>,l:array<int>>"))
        state.update(({"a": [1]}, [1]))
        snapshot = made.snapshot()
        mapping, listed = state.value()
        mapping["a"].append(2)
        mapping["b"] = []
        listed.append(2)

        assert snapshot.states["nested"][2] == {0: {("a",): ({"a": [1]}, [1])}}

    def test_what_is_restored_from_a_snapshot_does_not_change_it(self) -> None:
        made = backend()
        made.get_list_state(SEEN).update([1])
        snapshot = made.snapshot()
        for _ in range(2):
            restored = backend()
            restored.restore([snapshot])
            restored.set_current_key(("a",), 0)
            state = restored.get_list_state(SEEN)
            state.add(2)
            assert list(state.get()) == [1, 2]

    def test_of_several_snapshots_the_own_key_groups_are_kept_and_no_others(self) -> None:
        snapshots = []
        for start, end in [(0, 42), (43, 85), (86, 127)]:
            source = backend(start, end)
            state = source.get_value_state(TOTAL)
            for group in range(start, end + 1):
                source.set_current_key((group,), group)
                state.update(group)
            snapshots.append(source.snapshot())

        made = backend(40, 90)
        made.restore(snapshots)

        assert stored(made, "total") == {group: {(group,): group} for group in range(40, 91)}

    def test_restoring_forgets_the_current_key(self) -> None:
        made = backend()
        state = made.get_value_state(TOTAL)
        made.restore([])
        with pytest.raises(NoCurrentKeyError):
            state.value()

    def test_a_restored_state_that_nobody_asks_for_is_kept(self) -> None:
        source = backend()
        source.get_value_state(TOTAL).update(1)
        middle = backend()
        middle.restore([source.snapshot()])
        last = backend()
        last.restore([middle.snapshot()])
        last.set_current_key(("a",), 0)
        assert last.get_value_state(TOTAL).value() == 1

    def test_restoring_is_no_change(self) -> None:
        source = backend()
        source.get_value_state(TOTAL).update(1)
        made = backend()
        made.restore([source.snapshot()])
        assert changed(made, "total") == {}


class TestChanges:
    def test_exactly_the_written_keys_are_noted_by_key_group(self) -> None:
        made = backend()
        total, seen = made.get_value_state(TOTAL), made.get_list_state(SEEN)
        total.update(1)
        made.set_current_key(("b",), 7)
        total.value()
        list(seen.get())
        seen.add(1)
        made.set_current_key(("c",), 7)
        total.update(3)

        assert changed(made, "total") == {0: {("a",)}, 7: {("c",)}}
        assert changed(made, "seen") == {7: {("b",)}}

    def test_reads_and_writes_without_effect_are_no_change(self) -> None:
        made = backend()
        total, seen = made.get_value_state(TOTAL), made.get_list_state(SEEN)
        total.value()
        total.clear()
        total.update(None)
        seen.clear()
        seen.add_all([])
        seen.update([])
        assert (changed(made, "total"), changed(made, "seen")) == ({}, {})

    def test_removing_what_was_there_is_a_change_also_after_the_changes_were_written(self) -> None:
        made = backend()
        total, seen = made.get_value_state(TOTAL), made.get_list_state(SEEN)
        total.update(1)
        seen.add(1)
        made.clear_changes()
        assert (changed(made, "total"), changed(made, "seen")) == ({}, {})
        total.update(None)
        seen.update([])
        assert (changed(made, "total"), changed(made, "seen")) == ({0: {("a",)}}, {0: {("a",)}})
