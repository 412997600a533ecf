"""What a strike is, and what several kinds of them do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from statecore.runtime.faults import FaultPoint
from tests.chaos.processes import ChaosError, Processes, until
from tests.chaos.world import World

Blow = Callable[[Any, Random], bool]
"""Carries a strike out on the world of its campaign; returns whether an epoch was in flight."""

LOCAL = "local"
MOST_SUBTASKS = 4


class Need(StrEnum):
    """What not every campaign has."""

    POSTGRES = "a catalog in PostgreSQL"
    CLOCKS = "a catalog in PostgreSQL and a C compiler: a catalog in SQLite has one host, and so one clock"


@dataclass(frozen=True, slots=True)
class Strike:
    """One entry of the schedule; each feeds an epoch.

    Attributes:
        victim: Who is hit.
        how: When and how.
        ground: Where that can be done: on the cluster, on this machine alone, or (None) on either.
        point: The fault point that it hits.
        need: What it cannot do without.

    """

    victim: str
    how: str
    blow: Blow
    ground: str | None = None
    point: FaultPoint | None = None
    need: Need | None = None


def after_a_while(world: Processes, random: Random) -> None:
    """Let an epoch begin, and some of it pass."""
    share = random.random()
    world.begin_epoch()
    time.sleep(share * world.epoch_s())


def passes(world: World, seconds: float) -> bool:
    """Let time pass; tell whether an epoch was in flight meanwhile."""
    found = False
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = found or world.in_flight()
        time.sleep(0.1)
    return found


def taken(world: World, request: int) -> str:
    """Wait for a savepoint, keep it for the end, and return its URL."""
    until(lambda: world.catalog.requests.get(request).state in ("done", "failed"), "the savepoint", world)
    asked = world.catalog.requests.get(request)
    if asked.result is None:
        raise ChaosError(f"the savepoint {asked.arguments['name']} failed: {asked.error}")
    world.kept.append(asked.result["url"])
    return str(asked.result["url"])


def other_parallelism(world: Processes, random: Random) -> int:
    """Return another parallelism than the running driver's."""
    until(lambda: world.generation().state == "running", "a driver", world)
    now = world.generation().parallelism
    return random.choice([p for p in range(1, MOST_SUBTASKS + 1) if p != now])
