"""What counts as a hang, with a query that is told what to do; ``test_hang.py`` stops a real JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.runtime.generation import watchdog as watchdog_module
from statecore.runtime.generation.watchdog import ANSWER_S, PROGRESS_S, START_S, Watchdog
from tests.support.waiting import wait


class Query:
    """Plays the query and the JVM behind it."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"message": "Getting offsets from files", "isTriggerActive": True}
        self.progress = "12:00:00"
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()
        self.is_silent = False
        self._jsq = SimpleNamespace(lastProgress=lambda: SimpleNamespace(timestamp=lambda: self.progress))
        current = SimpleNamespace(pid=lambda: 1)
        java = SimpleNamespace(ProcessHandle=SimpleNamespace(current=lambda: current), System=self)
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=java))

    def nanoTime(self) -> int:
        self.is_silent = not self.answers.is_set()
        assert self.answers.wait(60)
        self.asked += 1
        return 0


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(watchdog_module, "_INTERVAL_S", 0.001)
        monkeypatch.setattr(watchdog_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.query, self.boundary = Query(), threading.Lock()
        self.jvm: Any = self.query._jvm
        self.dog = Watchdog(lambda: self.jvm)

    def later(self, seconds: float) -> str | None:
        """Let time pass and the JVM be asked twice; return what hangs then."""
        self.now_s += seconds
        asked = self.query.asked
        wait(lambda: self.query.asked > asked + 1, "the watchdog")
        return self.dog.hang()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    with world.dog:
        world.dog.session_started()
        world.dog.watch(world.query, world.boundary)  # type: ignore[arg-type]
        yield world
        world.query.answers.set()


def test_a_jvm_that_does_not_answer_for_a_minute_hangs_even_during_an_epoch(world: World) -> None:
    with world.boundary:
        assert world.later(1) is None
        world.query.answers.clear()
        wait(lambda: world.query.is_silent, "a question")
        world.now_s += ANSWER_S + 1
        assert world.dog.hang() is None
        world.now_s += 5
        assert "no answer from the driver's JVM for 66 s" in str(world.dog.hang())
        world.query.answers.set()
        assert world.later(1) is None


def test_a_pause_of_the_whole_process_is_no_hang(world: World) -> None:
    world.query.status = {**world.query.status, "isTriggerActive": False}
    for _ in range(20):
        assert world.later(0) is None
        world.now_s += 10 * PROGRESS_S
        assert world.dog.hang() is None
        assert world.later(5) is None


def test_a_query_that_does_one_thing_for_too_long_hangs(world: World) -> None:
    assert world.later(0) is None
    assert world.later(PROGRESS_S) is None
    assert world.later(1) is None
    assert "found the query at ('Getting offsets from files', '12:00:00') for 3606 s" in str(world.later(5))


@pytest.mark.parametrize("what", ["epoch", "idle", "progress", "another thing"])
def test_a_query_may_take_any_time_over_an_epoch_and_between_triggers_and_when_it_goes_on(
    world: World, what: str
) -> None:
    assert world.later(0) is None
    if what == "epoch":
        world.boundary.acquire()
    elif what == "idle":
        world.query.status = {**world.query.status, "isTriggerActive": False}
    for hour in range(3):
        if what == "progress":
            world.query.progress = f"13:00:0{hour}"
        elif what == "another thing":
            world.query.status = {**world.query.status, "message": f"thing {hour}"}
        # The thread must see the change before the time passes.
        assert world.later(0) is None
        assert world.later(PROGRESS_S) is None


def test_without_a_query_only_the_jvm_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    with world.dog:
        world.dog.session_started()
        assert world.later(10 * PROGRESS_S) is None


def test_a_jvm_that_never_answers_hangs_and_has_no_process_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.jvm = None
    with world.dog:
        world.now_s += ANSWER_S + 1
        assert world.dog.hang() is None
        world.now_s += 5
        assert "no answer from the driver's JVM for 66 s" in str(world.dog.hang())
        world.dog.kill()


def test_a_session_may_wait_for_room_on_a_cluster_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    with world.dog:
        assert world.later(START_S) is None
        assert world.later(1) is None
        assert "found no Spark session 3606 s after the driver began" in str(world.later(5))
        world.dog.session_started()
        assert world.later(10) is None
