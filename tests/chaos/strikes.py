"""What happens to the job: a victim, a moment, a blow. Each feeds an epoch and reports whether one was in flight."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import psutil

from statecore.errors import CatalogError
from statecore.runtime.faults import FaultPoint
from tests.chaos.network import OUTAGE, Trap, slow, torn
from tests.chaos.world import CLUSTER, JOB, ChaosError, World, kill, signalled, until

Blow = Callable[[World, Random], bool]
"""Carries a strike out; returns whether an epoch was in flight."""

_WORKER_POINTS = (FaultPoint.BEFORE_CHANGELOG, FaultPoint.CHANGELOG_WRITTEN)
_SAVEPOINT_POINTS = (FaultPoint.SAVEPOINT_PINNED, FaultPoint.SAVEPOINT_COPIED)
_RESCALE_POINTS = (FaultPoint.RESCALE_PREPARED, FaultPoint.RESCALE_APPLIED)
# These are passed beside the stream: the epoch after it is in flight then, if there is one.
_UPKEEP_POINTS = (FaultPoint.MERGED, FaultPoint.CLEANING_UP)

LOCAL = "local"
MOST_SUBTASKS = 4


@dataclass(frozen=True, slots=True)
class Strike:
    """One entry of the schedule.

    Attributes:
        victim: Who is hit.
        how: When and how.
        ground: Where that can be done: on the cluster, on this machine alone, or (None) on either.
        point: The fault point that it hits.

    """

    victim: str
    how: str
    blow: Blow
    ground: str | None = None
    point: FaultPoint | None = None


def _after_a_while(world: World, random: Random) -> None:
    """Let an epoch begin, and some of it pass."""
    share = random.random()
    world.begin_epoch()
    time.sleep(share * world.epoch_s())


def _killed_at(point: FaultPoint) -> Strike:
    def blow(world: World, random: Random) -> bool:
        epochs = 2 if point in _UPKEEP_POINTS else 1
        if point in _SAVEPOINT_POINTS:
            name = f"{point}-{len(world.kept)}"
            target = {"target": world.savepoint_folder(name)} if point is FaultPoint.SAVEPOINT_COPIED else {}
            world.begin_epoch()
            world.arm(point)
            asked = world.ask("savepoint", name, **target)
            until(lambda: world.is_hit(point), f"a kill at {point}", world)
            found = world.in_flight()
            _take(world, asked.id)
            return found
        if point in _RESCALE_POINTS:
            world.begin_epoch()
            world.arm(point)
            _ask_live(world, random)
            until(lambda: world.is_hit(point), f"a kill at {point}", world)
            return world.in_flight()
        world.arm(point)
        deadline = time.monotonic() + 120
        while not world.is_hit(point):
            if time.monotonic() > deadline:
                raise ChaosError(f"nobody came past {point}")
            world.feed(epochs)
            until(lambda: world.is_hit(point) or world.is_settled(), f"a kill at {point}", world)
        return point in _WORKER_POINTS or world.in_flight()

    return Strike("worker" if point in _WORKER_POINTS else "driver", f"at {point}", blow, point=point)


def _take(world: World, request: int) -> None:
    """Wait for a savepoint and keep it for the end."""
    until(lambda: world.catalog.get_request(request).state in ("done", "failed"), "the savepoint", world)
    asked = world.catalog.get_request(request)
    if asked.result is None:
        raise ChaosError(f"the savepoint {asked.arguments['name']} failed: {asked.error}")
    world.kept.append(asked.result["url"])


def _at_request(victim: str, method: str, part: str, *, after: bool, ground: str | None = None) -> Strike:
    """Kill when a certain request goes to the storage, or when its answer comes back."""

    def blow(world: World, random: Random) -> bool:
        until(lambda: bool(world.driver_program(world.generation().generation)), "a driver", world)
        trap = Trap(method, part, lambda: kill(*_victims(world, victim, random)), after=after)
        world.network.weather = trap
        world.feed()
        until(trap.sprung.is_set, f"{method} {part}", world)
        world.network.clear()
        return world.in_flight()

    return Strike(victim, f"{'answer to' if after else 'request'} {method} {part}", blow, ground)


def _victims(world: World, victim: str, random: Random) -> list[psutil.Process]:
    generation = world.generation().generation
    if victim == "driver":
        program, jvm = world.driver_program(generation), world.driver_jvm(generation)
        return random.choice([program, jvm, [*program, *jvm]])
    found = world.executors() if victim == "executor" else world.python_workers()
    if found and random.random() < 0.7:
        return [random.choice(sorted(found, key=lambda process: process.pid))]
    return found


def _killed(victim: str, ground: str | None = None) -> Strike:
    def blow(world: World, random: Random) -> bool:
        _after_a_while(world, random)
        kill(*_victims(world, victim, random))
        return world.in_flight()

    return Strike(victim, "after a while", blow, ground)


def _supervisor_killed(*, with_driver: bool) -> Strike:
    def blow(world: World, random: Random) -> bool:
        _after_a_while(world, random)
        world.kill_supervisor()
        if with_driver:
            # Nobody has collected its exit: the next supervisor must go by the heartbeats.
            kill(*world.driver_session(world.generation().generation))
        found = world.in_flight()
        world.start_supervisor()
        return found

    return Strike("supervisor", "with its driver" if with_driver else "alone", blow)


def _full_disk(world: World, random: Random) -> bool:
    _after_a_while(world, random)
    struck = [*world.driver_session(world.generation().generation), *world.executors(), *world.python_workers()]
    limits = []
    for process in struck:
        try:
            limits.append((process, process.rlimit(psutil.RLIMIT_FSIZE)))
            process.rlimit(psutil.RLIMIT_FSIZE, (0, limits[-1][1][1]))
        except psutil.Error:
            continue
    found = _passes(world, random.uniform(2, 6))
    for process, limit in limits:
        try:
            process.rlimit(psutil.RLIMIT_FSIZE, limit)
        except psutil.Error:
            continue
    return found


def _passes(world: World, seconds: float) -> bool:
    """Let time pass; tell whether an epoch was in flight meanwhile."""
    found = False
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = found or world.in_flight()
        time.sleep(0.1)
    return found


def _weather(what: str) -> Strike:
    def blow(world: World, random: Random) -> bool:
        seeded = Random(random.random())
        if what == "outage":
            _after_a_while(world, random)
            world.network.weather = OUTAGE
            found = _passes(world, random.uniform(1, 8))
        else:
            world.network.weather = torn(seeded, 0.15) if what == "torn" else slow(seeded, 0.4)
            world.begin_epoch(random.choice([1, 2]))
            found = _passes(world, random.uniform(4, 10))
        world.network.clear()
        return found

    return Strike("storage", what, blow)


def _paused(when: str) -> Strike:
    """Freeze a driver until its successor has committed, then let it go on."""

    def blow(world: World, random: Random) -> bool:
        # A supervisor kills a lost driver of its host; only one of another host wakes up again.
        world.kill_supervisor()
        found_there = world.generation()
        old = found_there.generation
        world.catalog.record_driver(found_there.job, old, host="another host", pid=1, process_started_ms=0)
        world.start_supervisor()
        frozen = world.driver_session(old)
        if when == "after a while":
            _after_a_while(world, random)
            _freeze(world, frozen)
        else:
            wake = threading.Event()
            trap = Trap(
                "PUT",
                "/manifests/",
                lambda: _freeze(world, frozen),
                after=when == "manifest written",
                hold=wake if when == "manifest on its way" else None,
            )
            world.network.weather = trap
            world.feed()
            until(trap.sprung.is_set, "a manifest", world)
            world.network.clear()
        found = world.in_flight()
        until(lambda: world.generation().generation > old, "a successor", world)
        world.settle()
        if when == "manifest on its way":
            wake.set()
        signalled(frozen, "resume")
        # It finds itself replaced and ends by itself.
        until(lambda: not world.driver_program(old), "the driver of before to end", world, 90)
        return found

    return Strike("paused driver", when, blow, LOCAL)


def _freeze(world: World, processes: list[psutil.Process]) -> None:
    while True:
        signalled(processes, "suspend")
        try:
            # One that has the catalog's lock in its hands would stop everybody: SQLite has one for all.
            world.catalog.set_desired(JOB)
        except CatalogError:
            signalled(processes, "resume")
            time.sleep(0.5)
        else:
            return


def _second_driver(which: str) -> Strike:
    def blow(world: World, random: Random) -> bool:
        until(lambda: world.generation().state == "running", "a driver", world)
        generation = world.generation()
        if which == "of an older generation" and generation.generation > 1:
            generation = replace(generation, generation=generation.generation - 1)
        second = world.launch(generation)
        found = False
        while second.poll() is None:
            # Epoch after epoch, so that it meets one.
            if world.is_settled():
                world.feed()
            found = found or world.in_flight()
            time.sleep(0.1)
        if second.returncode == 0:
            raise ChaosError(f"a second driver as generation {generation.generation} ended well; expected a refusal")
        return found

    return Strike("second driver", which, blow)


def _savepoint(*, copied: bool) -> Strike:
    def blow(world: World, random: Random) -> bool:
        name = f"asked-{len(world.kept)}"
        target = {"target": world.savepoint_folder(name)} if copied else {}
        _after_a_while(world, random)
        asked = world.ask("savepoint", name, **target)
        found = world.in_flight()
        _take(world, asked.id)
        return found

    return Strike("savepoint", "self-contained" if copied else "plain", blow)


def _ask_live(world: World, random: Random) -> int:
    until(lambda: world.generation().state == "running", "a driver", world)
    now = world.generation().parallelism
    parallelism = random.choice([p for p in range(1, MOST_SUBTASKS + 1) if p != now])
    return world.ask("rescale", f"live-{uuid.uuid4().hex}", parallelism=parallelism).id


def _live(world: World, random: Random) -> bool:
    """Give the running job another parallelism in the middle of an epoch."""
    _after_a_while(world, random)
    found = world.in_flight()
    asked = _ask_live(world, random)
    until(lambda: world.catalog.get_request(asked).state in ("done", "failed"), "another parallelism", world)
    answer = world.catalog.get_request(asked)
    if answer.result is None:
        raise ChaosError(f"the live rescale failed: {answer.error}")
    world.feed()
    return found


def rescale(ground: str, parallelism: int) -> Strike:
    """Stop with a savepoint in the middle of an epoch, and go on elsewhere."""

    def blow(world: World, random: Random) -> bool:
        _after_a_while(world, random)
        found = world.in_flight()
        path = world.stop_with_savepoint(f"rescale-{len(world.kept)}")
        world.register(ground, parallelism)
        if path is None:
            world.start(parallelism=parallelism)
        else:
            world.start(parallelism=parallelism, start_from=path)
        return found

    return Strike("rescale", f"to {parallelism} on {ground}", blow)


DECK: tuple[Strike, ...] = (
    *(_killed_at(point) for point in FaultPoint),
    *(_killed_at(point) for point in _WORKER_POINTS),
    _killed_at(FaultPoint.MANIFEST_WRITTEN),
    _killed_at(FaultPoint.SINK_PUBLISHED),
    *(_killed("driver") for _ in range(4)),
    *(_killed("worker") for _ in range(3)),
    *(_killed("executor", CLUSTER) for _ in range(4)),
    _at_request("executor", "PUT", "/store/state/", after=False, ground=CLUSTER),
    _at_request("driver", "PUT", "/manifests/", after=False),
    _at_request("driver", "PUT", "/manifests/", after=True),
    _at_request("driver", "PUT", "/_published/", after=True),
    _at_request("driver", "DELETE", "/_staged/", after=True),
    _at_request("driver", "PUT", "/progress/", after=False),
    _at_request("worker", "PUT", "/_staged/", after=True),
    _supervisor_killed(with_driver=False),
    _supervisor_killed(with_driver=True),
    *(Strike("full disk", "after a while", _full_disk) for _ in range(3)),
    *(_weather(what) for what in ("outage", "torn", "slow", "outage", "torn")),
    *(_paused(when) for when in ("manifest on its way", "manifest written", "after a while")),
    _second_driver("of the same generation"),
    _second_driver("of an older generation"),
    _savepoint(copied=False),
    _savepoint(copied=True),
    Strike("live rescale", "in the middle of an epoch", _live),
    Strike("live rescale", "in the middle of an epoch", _live),
)
