"""Strikes at clocks: supervisor and drivers go by others, and the next ones by the true one again."""

from __future__ import annotations

import time
from random import Random

from tests.chaos.processes import ChaosError, kill, until
from tests.chaos.strikes.base import Need, Strike, after_a_while
from tests.chaos.world import World


def _differs(who: str, ahead_s: int) -> Strike:
    """Let supervisor or drivers begin with another clock in the middle of an epoch, and end in another one."""

    def blow(world: World, random: Random) -> bool:
        supervisor_s, driver_s = (ahead_s, 0) if who == "supervisor" else (0, ahead_s)
        begun_s = time.time()
        found = _begin_anew(world, random, supervisor_s, driver_s)
        world.settle()
        _require_clock(world, driver_s, begun_s)
        found = _begin_anew(world, random, 0, 0) or found
        return found

    return Strike("clock", f"of the {who}, {ahead_s:+} s", blow, need=Need.CLOCKS)


def _require_clock(world: World, ahead_s: int, begun_s: float) -> None:
    """The newest epoch was committed since the strike has begun, by a clock so much ahead."""
    newest = world.lineages.newest
    assert newest is not None
    if not begun_s <= newest.committed_ms / 1000 - ahead_s <= time.time():
        raise ChaosError(
            f"a driver committed epoch {newest.epoch} at {newest.committed_ms} ms by its clock, and it is "
            f"{time.time() * 1000:.0f} ms now; expected a clock {ahead_s:+} s ahead"
        )


def _begin_anew(world: World, random: Random, ahead_s: int, drivers_ahead_s: int) -> bool:
    until(lambda: world.generation().state == "running", "a driver", world)
    old = world.generation().generation
    after_a_while(world, random)
    world.kill_supervisor()
    kill(*world.driver_session(old))
    found = world.in_flight()
    world.start_supervisor(ahead_s=ahead_s, drivers_ahead_s=drivers_ahead_s)
    until(lambda: world.generation().generation > old, "a driver with another clock", world)
    world.feed()
    return found


STRIKES = (
    *(_differs("driver", ahead_s) for ahead_s in (30, -30, 90, -3600)),
    *(_differs("supervisor", ahead_s) for ahead_s in (45, -45)),
)
