"""The lifecycle of one generation, shared by the threads of its driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.errors import CommitForbiddenError
from statecore.runtime.epoch.report import EpochReport
from statecore.runtime.generation.watchdog import Watchdog
from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)


class Lifecycle:
    """The state of one generation, which also guards its commits.

    ::

        launching ─► running ─► draining ────────► closed
                                no epoch begins    no epoch is committed

    The query ends only after the generation is closed, so an epoch that a stop cancels was never committed.

    Attributes:
        running: Whether the query was started.
        superseded: Whether a newer generation runs the job.
        newest: The newest published epoch in the job's store; None before the first.
        epoch_s: Seconds that this epoch took; 0 when an earlier generation ran it.
        trigger_ms: Shortest time from the start of an epoch to the start of the next; None before settings are read.
        watchdog: Watches the JVM, from the driver's start on.

    """

    def __init__(self) -> None:
        self._commit = threading.Lock()
        self._draining = False
        self._closed_because: str | None = None
        self.running = False
        self.superseded = False
        self.newest: Manifest | None = None
        self.epoch_s = 0.0
        self.trigger_ms: int | None = None
        self.watchdog: Watchdog | None = None

    @property
    def closed(self) -> bool:
        """Whether commits are forbidden."""
        return self._closed_because is not None

    def started(self, resumed: Manifest | None) -> None:
        """Note that the query has started, after an epoch of the job's own store."""
        self.newest = resumed
        self.running = True

    def drain(self) -> None:
        """Let no further epoch begin; the one in flight may commit."""
        self._draining = True

    def close(self, reason: str) -> None:
        """Forbid commits; wait for a manifest that is being written."""
        with self._commit:
            self._closed_because = reason
        log.info("stopping: %s", reason)

    def supersede(self) -> None:
        """Forbid commits, because a newer generation runs the job."""
        if not self.superseded:
            self.superseded = True
            self.close("a newer generation runs the job")

    def check_open(self) -> None:
        """Check that an epoch may begin.

        Raises:
            CommitForbiddenError: The job is stopping.

        """
        if self._draining or self.closed:
            raise CommitForbiddenError("the job is stopping: the next driver runs this epoch first")

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Hold off a stop while a manifest is written.

        Raises:
            CommitForbiddenError: The job is stopping.

        """
        with self._commit:
            if self.closed:
                raise CommitForbiddenError(f"epoch not committed: {self._closed_because}; the next driver replays it")
            yield

    def committed(self, report: EpochReport) -> None:
        """Note a committed and published epoch."""
        manifest = report.manifest
        self.newest, self.epoch_s = manifest, report.duration_ms / 1000
        log.info(
            "epoch %d of lineage %d: %d rows in %d ms at parallelism %d, %d subtasks had their state in memory",
            manifest.epoch, manifest.lineage, manifest.rows, report.duration_ms, manifest.parallelism,
            report.cached_subtasks,
        )  # fmt: skip
