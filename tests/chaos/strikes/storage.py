"""Strikes at the storage: the disk of the job's processes, and S3."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import psutil

from tests.chaos.network import ERROR, LOST, THROTTLED, TORN, slow, sometimes
from tests.chaos.strikes.base import Strike, after_a_while, passes
from tests.chaos.world import World
from tests.support.proxy import Fault


def _full_disk(world: World, random: Random) -> bool:
    after_a_while(world, random)
    struck = [*world.driver_session(world.generation().generation), *world.executors(), *world.python_workers()]
    limits = []
    for process in struck:
        try:
            limits.append((process, process.rlimit(psutil.RLIMIT_FSIZE)))
            process.rlimit(psutil.RLIMIT_FSIZE, (0, limits[-1][1][1]))
        except psutil.Error:
            continue
    found = passes(world, random.uniform(2, 6))
    for process, limit in limits:
        try:
            process.rlimit(psutil.RLIMIT_FSIZE, limit)
        except psutil.Error:
            continue
    return found


def _outage(world: World, random: Random) -> bool:
    after_a_while(world, random)
    world.network.weather = THROTTLED
    found = passes(world, random.uniform(1, 8))
    world.network.clear()
    return found


def _weather(how: str, made: Callable[[Random], Fault]) -> Strike:
    def blow(world: World, random: Random) -> bool:
        world.network.weather = made(Random(random.random()))
        world.begin_epoch(random.choice([1, 2]))
        found = passes(world, random.uniform(4, 10))
        world.network.clear()
        return found

    return Strike("storage", how, blow)


STRIKES = (
    *(Strike("full disk", "after a while", _full_disk) for _ in range(3)),
    *(Strike("storage", "outage", _outage) for _ in range(2)),
    _weather("answers lost", lambda random: sometimes(random, 0.25, *LOST)),
    _weather("answers torn", lambda random: sometimes(random, 0.25, TORN)),
    _weather("slow", lambda random: slow(random, 0.4)),
    _weather("throttled (503 SlowDown)", lambda random: sometimes(random, 0.3, THROTTLED)),
    _weather("errors (500 InternalError)", lambda random: sometimes(random, 0.25, ERROR)),
    _weather("all of these", lambda random: sometimes(random, 0.15, *LOST, TORN, THROTTLED, ERROR)),
)
