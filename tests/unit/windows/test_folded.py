"""Sessions in columns: what becomes of them is what becomes of sessions in tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from statecore import (
    HeapKeyedStateBackend,
    KeyGroupRange,
    OutputTag,
    ProcessWindowFunction,
    WindowFunction,
)
from statecore.errors import StateTypeError
from statecore.snapshot.live_rows import changelog_table
from statecore.state.contexts import WINDOW_TIMERS
from statecore.state.dead_letters import DeadLetters
from statecore.testing import ManualClock, physical
from tests.support.combined import GROUPS, KEY_SCHEMA, Event, Subtask, left_in, sessions

BAD = OutputTag("bad", "key string")
KEYS = [f"k{n}" for n in range(20)]


def files() -> HeapKeyedStateBackend:
    """Return what restores from the files that a subtask writes."""
    return HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), ManualClock())


def in_columns(subtask: Subtask) -> int:
    return sum(map(len, subtask.backend.columns.values()))


def changed(subtask: Subtask) -> list[str]:
    """Return the states of which the next changelog has rows."""
    return [name for name in subtask.backend.tables if changelog_table(subtask.backend, name, KEY_SCHEMA) is not None]


def test_a_part_that_touches_a_session_or_bridges_two_makes_one_of_them() -> None:
    subtask = Subtask(sessions())
    for at in (0, 30, 10, 20):
        subtask.take([Event("a", 1, at)])
    assert subtask.left() == [("a", 0, 40, 4)]
    subtask.take([Event("a", 1, 60)])
    subtask.take([Event("a", 1, 45), Event("a", 1, 53)])
    assert subtask.left() == [("a", 0, 40, 4), ("a", 45, 70, 3)]


def test_sessions_that_overflow_over_several_batches_are_refused() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 2**63 - 2, 0)])
    subtask.take([Event("a", 1, 1)])
    with pytest.raises(StateTypeError, match="for state 'contents' under key"):
        subtask.take([Event("a", 1, 2)])
    assert list(physical(subtask.backend, "contents").values()) == [2**63 - 1]


def test_the_end_of_a_session_is_a_change_of_all_that_is_kept_of_it() -> None:
    subtask, files = Subtask(sessions()), HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), ManualClock())
    subtask.take([Event("a", 1, 0)])
    subtask.write(files)
    assert left_in(files) == [("a", 0, 10, 1)]
    subtask.operator.advance_watermark(9)
    subtask.write(files)
    assert left_in(files) == []


def test_a_part_over_two_sessions_of_one_batch_makes_one_of_them() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0), Event("a", 1, 20)])
    assert in_columns(subtask) == 2
    subtask.take([Event("a", 1, 9), Event("a", 1, 15)])
    assert subtask.left() == [("a", 0, 30, 4)]


def test_a_part_over_two_sessions_of_two_batches_makes_one_of_them() -> None:
    subtask = Subtask(sessions())
    for events in ([Event("a", 1, 0)], [Event("a", 1, 20)], [Event("a", 1, 9), Event("a", 1, 15)]):
        subtask.take(events)
    assert subtask.left() == [("a", 0, 30, 4)]


def test_sessions_whose_sum_grows_too_large_are_refused() -> None:
    subtask = Subtask(sessions())
    for at in range(3):
        subtask.take([Event("a", 2**61, at)])
    assert in_columns(subtask) == 1
    with pytest.raises(StateTypeError, match="for state 'contents' under key"):
        subtask.take([Event("a", 2**61, 3)])


def test_a_session_that_has_become_longer_has_its_timer_at_its_new_end() -> None:
    subtask, kept = Subtask(sessions()), files()
    subtask.take([Event("a", 1, 0)])
    subtask.take([Event("a", 1, 5)])
    subtask.write(kept)
    assert subtask.operator.next_event_timer_ms == 9
    subtask.operator.advance_watermark(10)
    assert (subtask.output, subtask.operator.next_event_timer_ms) == ([], 14)
    subtask.write(kept)
    assert list(physical(kept, WINDOW_TIMERS).values()) == [{14}]
    subtask.operator.advance_watermark(14)
    assert subtask.output == [("a", 0, 15, 2)]


def test_a_record_after_the_end_of_a_session_opens_a_new_one() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0)])
    subtask.operator.advance_watermark(9)
    subtask.take([Event("a", 5, 5)])
    assert subtask.left() == [("a", 5, 15, 5)]


def test_a_session_that_began_and_ended_in_an_epoch_is_no_change() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0)])
    subtask.operator.advance_watermark(9)
    assert subtask.output == [("a", 0, 10, 1)]
    assert changed(subtask) == []


def test_nothing_is_written_twice() -> None:
    subtask, kept = Subtask(sessions()), files()
    subtask.take([Event("a", 1, 0)])
    assert len(changed(subtask)) == 3
    subtask.write(kept)
    assert changed(subtask) == []
    subtask.take([Event("a", 1, 0)])
    assert changed(subtask) == ["contents"]
    subtask.write(kept)
    assert changed(subtask) == []
    subtask.operator.advance_watermark(9)
    assert len(changed(subtask)) == 3
    subtask.write(kept)
    assert changed(subtask) == []


def test_a_session_that_ended_before_somebody_read_its_state_is_removed_from_files() -> None:
    subtask, kept = Subtask(sessions()), files()
    subtask.take([Event("a", 1, 0), Event("b", 1, 0)])
    subtask.write(kept)
    later = subtask.restarted(sessions(), 0)
    later.operator.advance_watermark(9)
    assert later.left() == []
    later.write(kept)
    assert left_in(kept) == []


def test_state_that_is_read_before_the_function_opens_is_whole() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event(key, 1, 0) for key in KEYS])
    backend = files()
    for group in range(GROUPS):
        backend.attach_key_group(group, subtask.backend.detach_key_group(group))
    assert left_in(backend) == sorted((key, 0, 10, 1) for key in KEYS)
    assert backend.tables["contents"].windowed and backend.tables[WINDOW_TIMERS].windowed


def test_a_snapshot_holds_the_sessions_in_columns() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event(key, 1, 0) for key in KEYS])
    restored = Subtask(sessions(), subtask.backend.snapshot())
    assert in_columns(restored) == len(KEYS)
    assert restored.left() == sorted((key, 0, 10, 1) for key in KEYS)


def test_a_backend_that_is_restored_forgets_the_sessions_in_columns() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0)])
    assert in_columns(subtask) == 1
    subtask.backend.restore(Subtask(sessions()).backend.snapshot())
    assert in_columns(subtask) == 0


def test_sessions_with_the_same_end_fire_in_the_same_order_wherever_they_lie() -> None:
    together, one_by_one = Subtask(sessions()), Subtask(sessions())
    events = [Event(key, 1, 0) for key in KEYS]
    together.take(events)
    together.take_one_by_one(events[::2])
    assert in_columns(together) == len(KEYS) / 2
    for each in (events, events[::2]):
        one_by_one.take_one_by_one(each)
    for subtask in (together, one_by_one):
        subtask.operator.advance_watermark(9)
    assert together.output == one_by_one.output


def test_keys_in_tables_stay_there_while_others_of_their_key_group_go_on_in_columns() -> None:
    subtask = Subtask(sessions())
    events = [Event(key, 1, 0) for key in KEYS]
    subtask.take(events)
    subtask.take_one_by_one(events[::2])
    later = subtask.restarted(sessions(), 0)
    later.take(events)
    assert in_columns(later) == len(KEYS) / 2
    assert later.left() == sorted((key, 0, 10, 2 + (n % 2 == 0)) for n, key in enumerate(KEYS))


def counts(subtask: Subtask) -> dict[str, int]:
    return {
        name: sum(group.count(name) for group in subtask.backend.columns.values()) for name in subtask.backend.tables
    }


def test_rows_in_columns_are_counted_as_rows_of_tables() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0), Event("a", 1, 20), Event("b", 1, 0), Event("c", 1, 0)])
    assert counts(subtask) == {"contents": 4, "__sessions": 3, WINDOW_TIMERS: 4}
    subtask.take_one_by_one([Event("c", 1, 0)])
    assert counts(subtask) == {"contents": 3, "__sessions": 2, WINDOW_TIMERS: 3}
    subtask.operator.advance_watermark(9)
    assert counts(subtask) == {"contents": 1, "__sessions": 1, WINDOW_TIMERS: 1}


def test_sessions_that_another_version_left_without_contents_stay_in_tables() -> None:
    left = Subtask(sessions())
    left.take_one_by_one([Event("a", 1, 0)])
    snapshot = left.backend.snapshot()
    _, rows = snapshot.states["contents"]
    rows.clear()
    subtask = Subtask(sessions(), snapshot)
    subtask.take([Event("a", 5, 3)])
    assert in_columns(subtask) == 0
    subtask.operator.advance_watermark(20)
    assert subtask.output == [("a", 0, 13, 5)]


def test_a_version_with_allowed_lateness_finds_the_sessions_in_tables() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0)])
    later = subtask.restarted(sessions(lateness_ms=30), 0)
    assert in_columns(later) == 0
    later.take([Event("a", 1, 5)])
    later.operator.advance_watermark(14)
    assert later.output == [("a", 0, 15, 2)]


def test_sessions_that_were_kept_for_late_records_go_to_columns_without_that() -> None:
    waiting = Subtask(sessions(lateness_ms=30))
    waiting.take([Event("a", 1, 0)])
    assert waiting.operator.next_event_timer_ms == 9
    later = waiting.restarted(sessions(), 0)
    assert in_columns(later) == 1
    later.take([Event("a", 1, 5)])
    later.operator.advance_watermark(9)
    assert later.operator.next_event_timer_ms == 14
    later.operator.advance_watermark(14)
    assert later.output == [("a", 0, 15, 2)]
    assert later.operator.next_event_timer_ms is None


def test_a_subclass_sees_the_timers_of_its_sessions() -> None:
    seen = []

    class Watching(WindowFunction):
        def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterable[Any]:
            seen.append(timestamp_ms)
            return super().on_timer(timestamp_ms, ctx)

    watching = sessions(of=Watching)
    subtask = Subtask(watching)
    subtask.take([Event("a", 1, 0)])
    subtask.operator.advance_watermark(9)
    assert (seen, subtask.output) == ([9], [("a", 0, 10, 1)])


def test_a_record_that_fails_leaves_the_session_that_was_in_columns_as_it_was() -> None:
    subtask = Subtask(sessions())
    subtask.take([Event("a", 1, 0)])
    later = subtask.restarted(sessions(), 0, DeadLetters(BAD, "sessions", epoch=1))
    assert in_columns(later) == 0
    later.take_one_by_one([Event("a", 2**63 - 1, 5)])
    assert (later.late, later.left()) == ([('["a"]',)], [("a", 0, 10, 1)])


class Refusing(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: Any, elements: Iterable[Any]) -> Any:
        raise ZeroDivisionError("poison")


def test_a_failure_at_the_end_of_a_session_names_its_key_and_its_timer() -> None:
    subtask = Subtask(sessions(process=Refusing()))
    subtask.take([Event("a", 1, 0)])
    with pytest.raises(ZeroDivisionError):
        subtask.operator.advance_watermark(9)
    assert subtask.operator.failed_on == "key ('a',), event_time timer 9"


class Telling(ProcessWindowFunction):
    def process(self, key: tuple[Any, ...], context: Any, elements: Iterable[Any]) -> Any:
        context.output(TOLD, key[0])
        yield key[0]


TOLD = OutputTag("told", "string")


def test_outputs_at_the_end_of_a_session_have_its_last_millisecond() -> None:
    subtask = Subtask(sessions(process=Telling()))
    subtask.take([Event("a", 1, 0), Event("b", 1, 5)])
    subtask.operator.advance_watermark(30)
    assert subtask.times == [("a", 9), ("a", 9), ("b", 14), ("b", 14)]
