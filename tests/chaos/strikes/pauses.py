"""Strikes by SIGSTOP: who is frozen for longer than it may be silent, is replaced, and wakes up again."""

from __future__ import annotations

import threading
from random import Random

import psutil

from tests.chaos.network import Trap
from tests.chaos.processes import ChaosError, kill, signalled, until
from tests.chaos.strikes.base import LOCAL, Strike, after_a_while
from tests.chaos.world import World


def _paused(when: str) -> Strike:
    """Freeze a driver until its successor has committed, then let it go on."""

    def blow(world: World, random: Random) -> bool:
        # A supervisor kills a lost driver of its host; only one of another host wakes up again.
        world.kill_supervisor()
        found_there = world.generation()
        old = found_there.generation
        world.catalog.generations.record_driver(found_there.job, old, host="another host", pid=1, process_started_ms=0)
        world.start_supervisor()
        frozen = world.driver_session(old)
        if when == "after a while":
            after_a_while(world, random)
            world.freeze(frozen)
        else:
            wake = threading.Event()
            trap = Trap(
                "PUT",
                "/manifests/",
                lambda: world.freeze(frozen),
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


def _left_to_supervisor(world: World, random: Random) -> bool:
    """Freeze a driver for good: its supervisor ends it and starts the next."""
    until(lambda: world.generation().state == "running", "a driver", world)
    old = world.generation().generation
    after_a_while(world, random)
    frozen = world.driver_session(old)
    world.freeze(frozen)
    found = world.in_flight()
    until(lambda: world.generation().generation > old, "a successor", world)
    until(lambda: all(map(_has_ended, frozen)), "the supervisor to end the frozen driver", world)
    return found


def _has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def _paused_supervisor(world: World, random: Random) -> bool:
    """Freeze the supervisor until another one has taken over and replaced the driver, then let it go on."""
    until(lambda: world.generation().state == "running", "a driver", world)
    old = world.generation().generation
    assert world.supervisor is not None
    first = world.supervisor
    frozen = [psutil.Process(first.pid)]
    second = world.start_supervisor()
    after_a_while(world, random)
    world.freeze(frozen)
    kill(*world.driver_session(old))
    found = world.in_flight()
    until(lambda: world.generation().generation > old, "the second supervisor to start a driver", world)
    world.settle()
    new = world.generation().generation
    signalled(frozen, "resume")
    world.feed()
    world.settle()
    acting = world.catalog.supervisors.last()
    if acting is None or acting.pid != second.pid or first.poll() is not None:
        raise ChaosError(f"the supervisor that was frozen acts again, or has ended: {acting}, {first.poll()}")
    if world.generation().generation != new:
        raise ChaosError(f"the supervisor that was frozen replaced generation {new}: {world.generation()}")
    kill(*frozen)
    first.wait()
    return found


STRIKES = (
    *(_paused(when) for when in ("manifest on its way", "manifest written", "after a while")),
    Strike("paused driver", "left to its supervisor", _left_to_supervisor, LOCAL),
    Strike("paused supervisor", "until another one acts", _paused_supervisor),
)
