"""Calls in threads: one at a time of a name, some at once, and none that the end of the process waits for."""

from __future__ import annotations

import subprocess
import sys
import threading

from statecore.operations.supervising.background_calls import BackgroundCalls
from tests.support.paths import REPO
from tests.support.waiting import PATIENCE_S, wait

HANGS = """
import time
from statecore.operations.supervising.background_calls import BackgroundCalls
calls = BackgroundCalls(1, "test")
calls.begin("hangs", lambda: time.sleep(3600))
calls.begin("waits", lambda: print("called"))
calls.wait(0.01)
calls.close(0.01)
print("closed")
"""


def test_a_call_that_hangs_keeps_no_process_alive() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=REPO, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


class Call:
    """A call that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.made = 0

    def __call__(self) -> None:
        self.begun.set()
        assert self.let_go.wait(PATIENCE_S)
        self.made += 1


def test_a_name_is_called_once_at_a_time_and_others_when_it_is_their_turn() -> None:
    calls, made = BackgroundCalls(2, "test"), {name: Call() for name in "abc"}

    def begin_all() -> None:
        for name, call in made.items():
            calls.begin(name, call)
        calls.wait(0.01)

    def under_way() -> int:
        return sum(call.begun.is_set() for call in made.values())

    begin_all()
    wait(lambda: under_way() == 2, "two calls")
    for _ in range(2):
        begin_all()
    assert under_way() == 2 and sorted(calls.hung(0)) == ["a", "b", "c"]
    for call in made.values():
        call.let_go.set()
    wait(lambda: not calls.hung(0), "all calls")
    assert [call.made for call in made.values()] == [1, 1, 1]
    begin_all()
    wait(lambda: not calls.hung(0), "all calls once more")
    assert [call.made for call in made.values()] == [2, 2, 2]


def test_the_end_waits_for_a_call_under_way_and_makes_none_that_awaits_its_turn() -> None:
    calls, under_way, waits = BackgroundCalls(1, "test"), Call(), Call()
    calls.begin("a", under_way)
    assert under_way.begun.wait(PATIENCE_S)
    calls.begin("b", waits)
    calls.close(0)
    closing = threading.Thread(target=calls.close, args=(PATIENCE_S,), daemon=True)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    under_way.let_go.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive() and not calls.hung(0)
    assert (under_way.made, waits.begun.is_set()) == (1, False)
