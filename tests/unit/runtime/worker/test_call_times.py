"""The keys with most of the time of a subtask's calls, by looks at the current key."""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Iterator

import pytest

from statecore.model import KeyGroupRange
from statecore.runtime.worker import call_times
from statecore.runtime.worker.call_times import CallTimes
from statecore.state import HeapKeyedStateBackend
from statecore.testing import ManualClock
from tests.support.waiting import wait


@pytest.fixture
def keyed() -> HeapKeyedStateBackend:
    return HeapKeyedStateBackend(8, KeyGroupRange(0, 7), ManualClock(0))


@pytest.fixture
def times(keyed: HeapKeyedStateBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[CallTimes]:
    """Looks only when a test does."""
    made = CallTimes(keyed)
    monkeypatch.setattr(made, "_begin", lambda: None)
    yield made
    made.end()


def look(times: CallTimes, keyed: HeapKeyedStateBackend, key: str | None, count: int = 1) -> None:
    if key is None:
        keyed.forget_current_key()
    else:
        keyed.set_current_key((key,), len(key))
    with times.calling():
        for _ in range(count):
            times.look()


def test_keys_and_key_groups_have_the_share_of_the_looks_that_found_them(
    times: CallTimes, keyed: HeapKeyedStateBackend
) -> None:
    for key, count in (("a", 60), ("bb", 10), ("cc", 6), (None, 24)):
        look(times, keyed, key, count)
    assert times.known()
    assert sorted(times.keys(0.1)) == [(("a",), 1, 0.6), (("bb",), 2, 0.1)]
    assert sorted(times.key_groups(0.1)) == [(1, 0.6), (2, 0.16)]


def test_the_windows_of_a_key_are_one_key(times: CallTimes, keyed: HeapKeyedStateBackend) -> None:
    for window in range(20):
        keyed.set_current_namespace(window)
        look(times, keyed, "a")
    assert list(times.keys(0.05)) == [(("a",), 1, 1.0)]


def test_a_key_that_was_found_once_may_be_chance(times: CallTimes, keyed: HeapKeyedStateBackend) -> None:
    for key in "abbccddde":
        look(times, keyed, key)
    assert not times.known()
    look(times, keyed, "e")
    assert times.known()
    assert {key for (key,), _, _ in times.keys(0.05)} == {"b", "c", "d", "e"}


def test_where_most_of_the_time_has_no_key_nothing_is_known(times: CallTimes, keyed: HeapKeyedStateBackend) -> None:
    look(times, keyed, "a", 30)
    look(times, keyed, None, 31)
    assert not times.known()
    look(times, keyed, "a")
    assert times.known()


def test_between_calls_and_after_the_end_nothing_is_looked_at(times: CallTimes, keyed: HeapKeyedStateBackend) -> None:
    keyed.set_current_key(("a",), 1)
    times.look()
    with times.calling():
        times.look()
        times.end()
        times.look()
    times.look()
    assert times.looks == 1


def test_a_thread_looks_while_the_function_is_called_and_ends(keyed: HeapKeyedStateBackend) -> None:
    before = _thread._count()
    times = CallTimes(keyed)
    keyed.set_current_key(("a",), 1)
    with times.calling():
        wait(lambda: times.looks >= 3, "some looks")
    seen = times.looks
    with times.calling():
        wait(lambda: times.looks > seen, "a look in the next block")
    times.end()
    wait(lambda: _thread._count() <= before, "the end of the thread")


def test_a_key_whose_calls_give_way_to_other_threads_is_not_taken_for_the_heaviest(
    keyed: HeapKeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the interpreter's default a thread would get its turn in such calls alone.
    monkeypatch.setattr(call_times, "_APART_S", 0.002)
    times, nothing = CallTimes(keyed), os.open(os.devnull, os.O_WRONLY)
    until_s = time.monotonic() + 1.5
    with times.calling():
        while time.monotonic() < until_s:
            for number in range(8):
                keyed.set_current_key((str(number),), number)
                sum(range(10_000))
            keyed.set_current_key(("gives way",), 0)
            os.write(nothing, b"x")
    times.end()
    os.close(nothing)
    shares = {key: share for (key,), _, share in times.keys(0.0)}
    assert shares.get("gives way", 0.0) < 0.25


def test_without_a_thread_left_the_epoch_goes_on(keyed: HeapKeyedStateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    times = CallTimes(keyed)
    with times.calling():
        keyed.set_current_key(("a",), 1)
    times.end()
    assert not times.known()
