"""The lifecycle of one generation of a query, shared by the threads of its driver."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statecore.runtime.generation.watchdog import Watchdog

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch; ``epoch`` is its number."""

    lineage: int
    epoch: int


class QueryLifecycle:
    """The state of one generation.

    Attributes:
        running: Whether the query was started.
        superseded: Whether a newer generation runs the job.
        closed: Whether the query must end at once, also in the middle of a batch.
        newest: The newest committed batch; None before the first.
        batch_s: Seconds that the newest batch took; 0 before the first.
        trigger_ms: Shortest time from the start of a batch to the start of the next; None before the start, and for a
            query that runs once.
        watchdog: Watches the JVM, from the driver's start on.

    """

    def __init__(self) -> None:
        self.running = False
        self.superseded = False
        self.closed = False
        self.newest: Batch | None = None
        self.batch_s = 0.0
        self.trigger_ms: int | None = None
        self.watchdog: Watchdog | None = None

    def close(self, reason: str) -> None:
        """End the query at once."""
        self.closed = True
        log.info("stopping: %s", reason)

    def supersede(self) -> None:
        """End the query at once, because a newer generation runs the job."""
        if not self.superseded:
            self.superseded = True
            self.close("a newer generation runs the job")
