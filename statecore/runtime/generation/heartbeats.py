"""Heartbeats of a driver to the catalog."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from statecore.catalog import Catalog, Generations
from statecore.release import RELEASE
from statecore.repeating import Repeating
from statecore.runtime.generation.watchdog import Watchdog

log = logging.getLogger(__name__)

INTERVAL_S = 0.5


class Epoch(Protocol):
    """The epoch, or the batch of a query job, that a heartbeat reports."""

    @property
    def lineage(self) -> int:
        """Its lineage."""

    @property
    def epoch(self) -> int:
        """Its number."""


class Alive(Protocol):
    """A generation that sends heartbeats."""

    @property
    def running(self) -> bool:
        """Whether the query was started."""

    @property
    def newest(self) -> Epoch | None:
        """The newest epoch; None before the first."""

    @property
    def trigger_ms(self) -> int | None:
        """Shortest time from the start of an epoch to the start of the next; None when it is not known."""

    @property
    def watchdog(self) -> Watchdog | None:
        """Watches the JVM; None before it does."""

    def supersede(self) -> None:
        """Forbid commits, because a newer generation runs the job."""

    def close(self, reason: str) -> None:
        """Forbid commits."""


@contextmanager
def heartbeats(catalog: Catalog, job: str, generation: int, lifecycle: Alive) -> Iterator[None]:
    """Send heartbeats while the context is open; close the lifecycle when a newer generation runs the job.

    A thread sends them, because Spark does not call foreachBatch while no data arrives, and a request may take long.
    It also watches the JVM and the query: when one hangs, it ends the generation and the driver.
    """

    def send() -> None:
        if _hangs(catalog.generations, job, generation, lifecycle):
            sending.stop()
        elif not _beat(catalog.generations, job, generation, lifecycle):
            lifecycle.supersede()

    # An error does not end the stream: the supervisor judges missing heartbeats.
    sending = Repeating("heartbeat", send, INTERVAL_S)
    with sending:
        yield


def _hangs(generations: Generations, job: str, generation: int, lifecycle: Alive) -> bool:
    """End a generation whose JVM or query hangs; the supervisor starts the next one."""
    hang = None if lifecycle.watchdog is None else lifecycle.watchdog.hang()
    if hang is None or lifecycle.watchdog is None:
        return False
    log.error("%s", hang)
    try:
        generations.end(job, generation, state="failed", error=hang)
    finally:
        lifecycle.watchdog.kill()
    # A JVM that never answered cannot be killed, and may wake up.
    lifecycle.close("its generation has ended")
    return True


def _beat(generations: Generations, job: str, generation: int, lifecycle: Alive) -> bool:
    newest = lifecycle.newest
    return generations.heartbeat(
        job,
        generation,
        state="running" if lifecycle.running else "launching",
        lineage=None if newest is None else newest.lineage,
        epoch=None if newest is None else newest.epoch,
        version=RELEASE,
        trigger_ms=lifecycle.trigger_ms,
    )
