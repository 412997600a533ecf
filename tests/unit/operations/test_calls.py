"""Calls in threads: one at a time of a name, some at once, and none that the end of the process waits for."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial

from statecore.operations.calls import Calls
from tests.support.paths import REPO
from tests.support.waiting import wait

HANGS = """
import time
from statecore.operations.calls import Calls
calls = Calls(1, "test")
calls.begin("hangs", lambda: time.sleep(3600))
calls.begin("waits", lambda: print("called"))
calls.wait(0.01)
calls.close(0.01)
print("closed")
"""


def test_a_call_that_hangs_keeps_no_process_alive() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=REPO, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_a_name_is_called_once_at_a_time_and_others_when_it_is_their_turn() -> None:
    calls, let_go, called = Calls(2, "test"), threading.Event(), []

    def hang(name: str) -> None:
        called.append(name)
        assert let_go.wait(60)

    for _ in range(3):
        for name in ("a", "b", "c"):
            calls.begin(name, partial(hang, name))
        calls.wait(0.01)
    assert sorted(called) == ["a", "b"]
    assert sorted(calls.hung(0)) == ["a", "b", "c"]
    let_go.set()
    wait(lambda: not calls.hung(0), "all calls")
    assert sorted(called) == ["a", "b", "c"]
    calls.begin("a", lambda: hang("a"))
    calls.close(60)
    assert sorted(called) == ["a", "a", "b", "c"]


def test_a_call_that_awaits_its_turn_is_not_made_after_the_end() -> None:
    calls, let_go, called = Calls(1, "test"), threading.Event(), []
    calls.begin("a", lambda: called.append(let_go.wait(60)))
    calls.begin("b", lambda: called.append(False))
    calls.close(0)
    let_go.set()
    wait(lambda: not calls.hung(0), "the calls")
    assert called == [True]
