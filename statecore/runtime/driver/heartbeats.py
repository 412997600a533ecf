"""Heartbeats of a driver to the catalog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.catalog import Catalog
from statecore.runtime.driver.lifecycle import Lifecycle

log = logging.getLogger(__name__)

INTERVAL_S = 0.5


@contextmanager
def heartbeats(catalog: Catalog, job: str, generation: int, lifecycle: Lifecycle) -> Iterator[None]:
    """Send heartbeats while the context is open; close the lifecycle when a newer generation runs the job.

    A thread sends them, because Spark does not call foreachBatch while no data arrives, and a request may take long.
    They also say that the JVM answers and the query goes on: if not, they end the generation and the driver.
    """
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(INTERVAL_S):
            try:
                if _hangs(catalog, job, generation, lifecycle):
                    return
                if not _beat(catalog, job, generation, lifecycle):
                    lifecycle.supersede()
            except Exception:
                # The stream continues without the catalog; the supervisor evaluates missing heartbeats.
                log.exception("the heartbeat could not be written to the catalog; retrying with the next one")

    thread = threading.Thread(target=send, name="statecore-heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _hangs(catalog: Catalog, job: str, generation: int, lifecycle: Lifecycle) -> bool:
    """End a generation whose JVM or query hangs; the supervisor starts the next one."""
    hang = None if lifecycle.watchdog is None else lifecycle.watchdog.hang()
    if hang is None or lifecycle.watchdog is None:
        return False
    log.error("%s", hang)
    try:
        catalog.end_generation(job, generation, state="failed", error=hang)
    finally:
        lifecycle.watchdog.kill()
    return True


def _beat(catalog: Catalog, job: str, generation: int, lifecycle: Lifecycle) -> bool:
    newest = lifecycle.newest
    return catalog.heartbeat(
        job,
        generation,
        state="running" if lifecycle.running else "launching",
        lineage=None if newest is None else newest.lineage,
        epoch=None if newest is None else newest.epoch,
    )
