"""Strikes at the catalog in PostgreSQL: its servers, and a client that holds a lock."""

from __future__ import annotations

import signal
import time
from random import Random

import psutil

from tests.chaos.processes import JOB, ChaosError, signalled, until
from tests.chaos.strikes.base import Need, Strike, after_a_while, passes
from tests.chaos.world import World
from tests.support.postgres import Replicated

_LOCK_S = 60
"""Much longer than PostgreSQL waits for an idle transaction of ours."""


def _servers(world: World) -> Replicated:
    assert world.postgres is not None
    return world.postgres


def _restarted(how: str, by: signal.Signals) -> Strike:
    def blow(world: World, random: Random) -> bool:
        after_a_while(world, random)
        server = _servers(world).primary
        server.stop(by)
        # Without the catalog: no question that needs it.
        time.sleep(random.uniform(0, 6))
        server.start()
        return world.in_flight()

    return Strike("PostgreSQL", f"restarted, {how}", blow, need=Need.POSTGRES)


def _failed_over(world: World, random: Random) -> bool:
    after_a_while(world, random)
    _servers(world).fail_over()
    return world.in_flight()


def _stopped_client(world: World, random: Random) -> bool:
    """Freeze a client in a transaction that has locked the job: PostgreSQL must end it, and the job goes on."""
    client = world.lock_job()
    frozen = [psutil.Process(client.pid)]
    signalled(frozen, "suspend")
    if not _is_locked(world):
        raise ChaosError("the client has not locked the job")
    after_a_while(world, random)
    found = passes(world, random.uniform(0, 5))
    until(lambda: not _is_locked(world), "PostgreSQL to end the frozen client", world, _LOCK_S)
    signalled(frozen, "resume")
    _, told = client.communicate(timeout=30)
    if client.returncode == 0:
        raise ChaosError(f"the frozen client has committed; expected an error; it said {told!r}")
    return found


def _is_locked(world: World) -> bool:
    """Ask whether somebody has locked the job; nobody waits for it."""
    with _servers(world).primary.connect(world.database) as connection:
        free = connection.execute("SELECT 1 FROM jobs WHERE name = %s FOR UPDATE SKIP LOCKED", [JOB])
        return free.fetchone() is None


STRIKES = (
    _restarted("fast", signal.SIGINT),
    _restarted("immediate", signal.SIGQUIT),
    Strike("PostgreSQL", "failing over", _failed_over, need=Need.POSTGRES),
    Strike("client of the catalog", "frozen in a transaction", _stopped_client, need=Need.POSTGRES),
)
