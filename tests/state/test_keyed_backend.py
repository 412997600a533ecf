"""What the heap backend promises beyond the contract: notes of changes, restores, and key groups given away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statecore import (
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
from statecore.errors import NoCurrentKeyError, StateConflictError
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
        assert source.detach_key_group(5) == {}
