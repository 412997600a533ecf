"""What the heap backend promises beyond the contract: notes of changes, restores, and key groups given away."""

from __future__ import annotations

import copy
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
    Window,
)
from statecore.errors import (
    ConfigurationError,
    MaxParallelismError,
    NoCurrentKeyError,
    StateConflictError,
    StateError,
)
from statecore.state.heap import DetachedKeyGroup
from statecore.state.tables import joined_scope
from statecore.testing import ManualClock, physical

TOTAL = ValueStateDescriptor("total", "bigint")
SEEN = ListStateDescriptor("seen", "bigint")
PARTS = MapStateDescriptor("parts", "string", "bigint")
SUM = ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b)


def backend(start: int = 0, end: int = 127, clock: ManualClock | None = None) -> HeapKeyedStateBackend:
    made = HeapKeyedStateBackend(128, KeyGroupRange(start, end), clock or ManualClock())
    made.set_current_key(("a",), start)
    return made


def changed(made: HeapKeyedStateBackend, name: str) -> dict[int, set[Any]]:
    return {group: set(scopes) for group, scopes in made.tables[name].changed.items() if scopes}


def changed_entries(made: HeapKeyedStateBackend, name: str) -> dict[int, dict[Any, set[Any]]]:
    noted = made.tables[name].changed_entries.items()
    return {group: {scope: set(of) for scope, of in scopes.items()} for group, scopes in noted if scopes}


class TestChanges:
    def test_exactly_the_written_keys_are_noted_by_key_group(self) -> None:
        made = backend()
        total, seen, added = made.get_value_state(TOTAL), made.get_list_state(SEEN), made.get_reducing_state(SUM)
        total.update(1)
        made.set_current_key(("b",), 7)
        total.value()
        list(seen.get())
        seen.add(1)
        added.add(1)
        made.set_current_key(("c",), 7)
        total.update(3)
        made.set_current_namespace(Window(0, 10))
        total.update(4)
        assert changed(made, "total") == {0: {("a",)}, 7: {("c",), joined_scope(("c",), Window(0, 10))}}
        assert changed(made, "seen") == {7: {("b",)}}
        assert changed(made, "sum") == {7: {("b",)}}

    def test_reads_and_writes_without_effect_are_no_change(self) -> None:
        made = backend()
        total, seen, parts = made.get_value_state(TOTAL), made.get_list_state(SEEN), made.get_map_state(PARTS)
        total.value()
        total.clear()
        total.update(None)
        seen.clear()
        seen.add_all([])
        seen.update([])
        parts.remove("x")
        parts.put_all({})
        parts.clear()
        made.get_reducing_state(SUM).add(None)
        for name in ("total", "seen", "parts", "sum"):
            assert (changed(made, name), changed_entries(made, name)) == ({}, {})

    def test_a_refused_write_is_no_change(self) -> None:
        made = backend()
        for write in (
            lambda: made.get_value_state(TOTAL).update("x"),
            lambda: made.get_list_state(SEEN).add_all([1, "x"]),
            lambda: made.get_map_state(PARTS).put_all({"x": 1, "y": "x"}),
            lambda: made.get_reducing_state(SUM).add("x"),
        ):
            with pytest.raises(TypeError):
                write()
        for name in ("total", "seen", "parts", "sum"):
            assert (changed(made, name), changed_entries(made, name)) == ({}, {})

    def test_removing_what_was_there_is_a_change_also_after_the_changes_were_saved(self) -> None:
        made = backend()
        total, seen, parts = made.get_value_state(TOTAL), made.get_list_state(SEEN), made.get_map_state(PARTS)
        total.update(1)
        seen.add(1)
        parts.put("x", 1)
        made.clear_changes()
        assert (changed(made, "total"), changed(made, "seen"), changed_entries(made, "parts")) == ({}, {}, {})
        total.update(None)
        seen.update([])
        parts.clear()
        for name in ("total", "seen", "parts"):
            assert changed(made, name) == {0: {("a",)}}

    def test_an_element_more_is_a_change_also_after_the_changes_were_saved(self) -> None:
        made = backend()
        seen = made.get_list_state(SEEN)
        seen.add(1)
        made.clear_changes()
        seen.add(2)
        assert changed(made, "seen") == {0: {("a",)}}

    def test_of_a_map_the_changed_entries_alone_are_noted(self) -> None:
        made = backend()
        parts = made.get_map_state(PARTS)
        parts.put_all({"x": 1, "y": 2, "z": 3})
        made.clear_changes()
        parts.put("x", 9)
        parts.remove("y")
        parts.get("z")
        assert changed(made, "parts") == {}
        assert changed_entries(made, "parts") == {0: {("a",): {"x", "y"}}}

    def test_a_cleared_map_is_replaced_whole_and_needs_no_note_of_its_entries(self) -> None:
        made = backend()
        parts = made.get_map_state(PARTS)
        parts.put("x", 1)
        parts.clear()
        parts.put("y", 2)
        assert changed(made, "parts") == {0: {("a",)}}
        assert changed_entries(made, "parts") == {}

    def test_a_read_that_refreshes_or_removes_is_a_change(self) -> None:
        clock = ManualClock()
        made = backend(clock=clock)
        ttl = StateTtlConfig(timedelta(milliseconds=10), UpdateType.ON_READ_AND_WRITE)
        descriptors = [
            ValueStateDescriptor("total", "bigint", ttl),
            ListStateDescriptor("seen", "bigint", ttl),
            MapStateDescriptor("parts", "string", "bigint", ttl),
            ReducingStateDescriptor("sum", "bigint", reduce=lambda a, b: a + b, ttl=ttl),
        ]
        total, seen, parts, added = (made.get_state(descriptor) for descriptor in descriptors)
        reads: dict[str, Any] = {
            "total": lambda: total.value(),  # type: ignore[attr-defined]
            "seen": lambda: list(seen.get()),  # type: ignore[attr-defined]
            "parts": lambda: parts.get("x"),  # type: ignore[attr-defined]
            "sum": lambda: added.get(),  # type: ignore[attr-defined]
        }
        total.update(1)  # type: ignore[attr-defined]
        seen.add(1)  # type: ignore[attr-defined]
        parts.put("x", 1)  # type: ignore[attr-defined]
        added.add(1)  # type: ignore[attr-defined]
        for now, noted in ((0, False), (5, True), (5, False), (15, True)):
            made.clear_changes()
            clock.set(now)
            for name, read in reads.items():
                read()
                assert bool(changed(made, name) or changed_entries(made, name)) == noted, (name, now)


class TestRestore:
    def test_a_restore_starts_afresh(self) -> None:
        source = backend()
        source.get_value_state(TOTAL).update(1)
        made = backend()
        made.get_value_state(TOTAL).update(9)
        made.get_list_state(SEEN).add(9)
        made.set_current_key(("b",), 1)
        made.get_value_state(TOTAL).update(9)
        made.restore([source.snapshot()])
        assert physical(made, "total") == {("a",): 1}
        assert physical(made, "seen") == {}
        assert changed(made, "total") == {}
        assert made.unregistered() == ["total"]

    def test_a_restore_forgets_the_current_key(self) -> None:
        made = backend()
        state = made.get_value_state(TOTAL)
        state.update(1)
        made.restore([made.snapshot()])
        assert made.current_key is None
        for each in (state, made.get_value_state(TOTAL)):
            with pytest.raises(NoCurrentKeyError):
                each.value()

    def test_one_snapshot_may_be_restored_again_and_again(self) -> None:
        source = backend()
        source.get_list_state(SEEN).update([1])
        source.get_map_state(PARTS).put("x", 1)
        snapshot = source.snapshot()
        for _ in range(2):
            restored = backend()
            restored.restore([snapshot])
            restored.set_current_key(("a",), 0)
            restored.get_list_state(SEEN).add(2)
            restored.get_map_state(PARTS).put("y", 2)
            assert physical(restored, "seen") == {("a",): [1, 2]}
            assert physical(restored, "parts") == {("a",): {"x": 1, "y": 2}}

    def test_snapshots_that_disagree_on_a_state_are_refused_and_both_are_named(self) -> None:
        first, second = backend(0, 63), backend(64, 127)
        first.get_value_state(TOTAL).update(1)
        second.get_value_state(ValueStateDescriptor("total", "string")).update("x")
        with pytest.raises(StateConflictError, match=r"'total' as value of string and as value of bigint; expected"):
            backend().restore([first.snapshot(), second.snapshot()])

    def test_a_key_group_given_away_takes_all_its_state_along(self) -> None:
        source = backend()
        for group in (3, 4):
            source.set_current_key((group,), group)
            source.get_value_state(TOTAL).update(group)
            source.get_map_state(PARTS).put("x", group)
            source.timers("__event_timers").register(group, (group,), 10 * group)
        given = source.detach_key_group(3)
        taker = backend()
        taker.attach_key_group(3, given)
        assert physical(source, "total") == {(4,): 4}
        assert physical(taker, "total") == {(3,): 3}
        assert physical(taker, "parts") == {(3,): {"x": 3}}
        assert physical(taker, "__event_timers") == {(3,): {30}}
        taker.set_current_key((3,), 3)
        assert taker.get_value_state(TOTAL).value() == 3

    def test_a_key_group_without_state_gives_nothing_away(self) -> None:
        source = backend()
        source.get_value_state(TOTAL).update(1)
        assert source.detach_key_group(5) == DetachedKeyGroup({}, None)

    def test_snapshots_may_be_taken_of_the_backend_that_they_are_restored_into(self) -> None:
        made = backend()
        made.get_value_state(TOTAL).update(1)
        made.restore(each.snapshot() for each in [made])
        assert physical(made, "total") == {("a",): 1}

    def test_refused_snapshots_leave_the_backend_as_it_was(self) -> None:
        made, other, third = backend(), backend(), backend()
        made.get_value_state(TOTAL).update(1)
        other.get_value_state(TOTAL).update(2)
        third.get_value_state(ValueStateDescriptor("total", "string")).update("3")
        with pytest.raises(StateConflictError):
            made.restore([other.snapshot(), third.snapshot()])
        assert physical(made, "total") == {("a",): 1}
        assert made.get_value_state(TOTAL).value() == 1

    def test_another_max_parallelism_is_refused_and_rewrite_named(self) -> None:
        small = HeapKeyedStateBackend(64, KeyGroupRange(0, 63), ManualClock())
        with pytest.raises(MaxParallelismError, match="rewrite"):
            backend().restore([small.snapshot()])

    def test_a_single_snapshot_may_be_given_as_it_is(self) -> None:
        made = backend()
        made.get_value_state(TOTAL).update(1)
        other = backend()
        other.restore(made.snapshot())
        assert physical(other, "total") == {("a",): 1}

    def test_a_restore_forgets_the_namespace(self) -> None:
        made = backend()
        made.set_current_namespace(Window(0, 10))
        made.restore([])
        made.set_current_key(("a",), 0)
        made.get_value_state(TOTAL).update(1)
        assert physical(made, "total") == {("a",): 1}

    def test_a_name_that_was_not_restored_may_get_another_type(self) -> None:
        made = backend()
        made.get_value_state(TOTAL).update(1)
        made.restore([])
        made.set_current_key(("a",), 0)
        state = made.get_value_state(ValueStateDescriptor("total", "string"))
        state.update("x")
        assert physical(made, "total") == {("a",): "x"}

    def test_a_handle_got_before_a_restore_writes_what_a_handle_got_after_it_reads(self) -> None:
        made = backend()
        before = made.get_value_state(TOTAL)
        made.restore([])
        made.set_current_key(("a",), 0)
        before.update(1)
        assert made.get_value_state(TOTAL).value() == 1

    def test_a_copied_snapshot_of_windows_is_worth_as_much(self) -> None:
        made = backend()
        made.set_current_namespace(Window(0, 10))
        made.get_value_state(TOTAL).update(1)
        made.timers("__event_timers").register(0, made.scope, 5)  # type: ignore[arg-type]
        other = backend()
        other.restore([copy.deepcopy(made.snapshot())])
        other.timers("__event_timers").register(0, made.scope, 5)  # type: ignore[arg-type]
        assert physical(other, "total") == {(("a",), Window(0, 10)): 1}
        assert physical(other, "__event_timers") == {(("a",), Window(0, 10)): {5}}
        assert len(list(other.timers("__event_timers").due(5))) == 1


@pytest.mark.parametrize("scope", [("a",), joined_scope(("a",), Window(0, 10))])
def test_a_scope_of_another_subtask_is_refused(scope: Any) -> None:
    made = backend(0, 63)
    made.set_current_scope(scope, 63)
    assert made.scope == scope
    with pytest.raises(StateError, match=r"found key \('a',\) in key group 64; expected .* this subtask, 0 to 63"):
        made.set_current_scope(scope, 64)


class TestRegistration:
    def test_the_wrong_getter_registers_nothing(self) -> None:
        made = backend()
        with pytest.raises(StateConflictError, match="getter"):
            made.get_value_state(SEEN)  # type: ignore[arg-type]
        made.get_value_state(ValueStateDescriptor("seen", "bigint")).update(1)

    def test_what_is_no_descriptor_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="expected a descriptor"):
            backend().get_value_state("total")  # type: ignore[arg-type]

    def test_no_time_to_live_and_a_disabled_one_are_the_same(self) -> None:
        made = backend()
        disabled = StateTtlConfig(timedelta(1), UpdateType.DISABLED)
        made.get_value_state(TOTAL).update(1)
        assert made.get_value_state(ValueStateDescriptor("total", "bigint", disabled)).value() == 1

    def test_equal_descriptors_share_a_handle(self) -> None:
        made = backend()
        assert made.get_value_state(TOTAL) is made.get_value_state(ValueStateDescriptor("total", "bigint"))

    def test_a_new_accumulator_looks_like_a_stored_one(self) -> None:
        class Total(AggregateFunction):
            def create_accumulator(self) -> Any:
                return {"n": 0}

            def add(self, value: int, accumulator: Any) -> Any:
                return {"n": accumulator.n + value}

            def get_result(self, accumulator: Any) -> int:
                return accumulator.n

            def merge(self, a: Any, b: Any) -> Any:
                return {"n": a.n + b.n}

        state = backend().get_aggregating_state(AggregatingStateDescriptor("t", "struct<n:bigint>", aggregate=Total()))
        state.add(1)
        state.add(2)
        assert state.get() == 3

    @pytest.mark.parametrize("elements", ["abc", b"abc", 5, None])
    def test_what_is_no_list_of_elements_is_refused(self, elements: Any) -> None:
        state = backend().get_list_state(ListStateDescriptor("words", "string"))
        for write in (state.add_all, state.update):
            with pytest.raises(StateError, match="expected a list"):
                write(elements)

    def test_a_stored_none_is_cleared_and_noted(self) -> None:
        """With a time to live a reducing state may hold None; files have a row for it."""
        made = backend()
        descriptor = ReducingStateDescriptor(
            "sum", "bigint", reduce=lambda a, b: a + b, ttl=StateTtlConfig(timedelta(1))
        )
        state = made.get_reducing_state(descriptor)
        state.add(None)
        made.clear_changes()
        state.clear()
        assert changed(made, "sum") == {0: {("a",)}}
