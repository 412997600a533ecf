"""Strikes by SIGKILL: at fault points, at requests to the storage, and at any time; and drivers too many."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from random import Random

import psutil

from statecore.runtime.faults import FaultPoint
from tests.chaos.network import Trap
from tests.chaos.processes import CLUSTER, ChaosError, kill, until
from tests.chaos.strikes.base import Strike, after_a_while, taken
from tests.chaos.strikes.savepoints import ask_live
from tests.chaos.world import World

_WORKER_POINTS = (FaultPoint.BEFORE_CHANGELOG, FaultPoint.CHANGELOG_WRITTEN)
_SAVEPOINT_POINTS = (FaultPoint.SAVEPOINT_PINNED, FaultPoint.SAVEPOINT_COPIED)
_RESCALE_POINTS = (FaultPoint.RESCALE_PREPARED, FaultPoint.RESCALE_APPLIED)
# These are passed beside the stream: the epoch after it is in flight then, if there is one.
_UPKEEP_POINTS = (FaultPoint.MERGED, FaultPoint.CLEANING_UP)


def _killed_at(point: FaultPoint) -> Strike:
    def blow(world: World, random: Random) -> bool:
        epochs = 2 if point in _UPKEEP_POINTS else 1
        if point in _SAVEPOINT_POINTS:
            name = f"{point}-{uuid.uuid4().hex}"
            target = {"target": world.savepoint_folder(name)} if point is FaultPoint.SAVEPOINT_COPIED else {}
            world.begin_epoch()
            world.arm(point)
            asked = world.ask("savepoint", name, **target)
            until(lambda: world.is_hit(point), f"a kill at {point}", world)
            found = world.in_flight()
            taken(world, asked.id)
            return found
        if point in _RESCALE_POINTS:
            world.begin_epoch()
            world.arm(point)
            ask_live(world, random)
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
        after_a_while(world, random)
        kill(*_victims(world, victim, random))
        return world.in_flight()

    return Strike(victim, "after a while", blow, ground)


def _supervisor_killed(*, with_driver: bool) -> Strike:
    def blow(world: World, random: Random) -> bool:
        after_a_while(world, random)
        world.kill_supervisor()
        if with_driver:
            # Nobody has collected its exit: the next supervisor must go by the heartbeats.
            kill(*world.driver_session(world.generation().generation))
        found = world.in_flight()
        world.start_supervisor()
        return found

    return Strike("supervisor", "with its driver" if with_driver else "alone", blow)


def _second_driver(which: str) -> Strike:
    def blow(world: World, random: Random) -> bool:
        until(lambda: world.generation().state == "running", "a driver", world)
        generation = world.generation()
        if which == "of an older generation" and generation.generation > 1:
            generation = replace(generation, generation=generation.generation - 1)
        second = world.launch(generation)
        found = False

        def has_ended() -> bool:
            nonlocal found
            # Epoch after epoch, so that it meets one.
            if world.is_settled():
                world.feed()
            found = found or world.in_flight()
            return second.poll() is not None

        until(has_ended, f"a second driver as generation {generation.generation} to be refused", world)
        if second.returncode == 0:
            raise ChaosError(f"a second driver as generation {generation.generation} ended well; expected a refusal")
        return found

    return Strike("second driver", which, blow)


STRIKES = (
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
    _second_driver("of the same generation"),
    _second_driver("of an older generation"),
)
