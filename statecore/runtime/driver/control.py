"""The driver's line to the catalog: heartbeats out, requests in.

A thread of its own, because foreachBatch is not called while no data arrives. It also guards the commit: a stop lets
the epoch in flight end, forbids commits and only then ends the query. So an epoch that takes too long, and is cut off,
was never committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from statecore.catalog import Catalog, RequestRecord
from statecore.errors import CommitForbiddenError, StatecoreError
from statecore.runtime.backlog.monitor import BacklogMonitor
from statecore.runtime.epoch.metrics import record_epoch
from statecore.runtime.epoch.report import EpochReport

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from statecore.runtime.driver.live import LiveRescaler
    from statecore.runtime.driver.savepoints import SavepointTaker
    from statecore.runtime.driver.side_jobs import SideJobs
    from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
LEAST_PATIENCE_SECONDS, MOST_PATIENCE_SECONDS = 30.0, 100.0
"""Within these a stop waits for the epoch in flight. Whoever asked waits two minutes and more for the savepoint."""


@dataclass(frozen=True, slots=True)
class Takers:
    """Who carries out requests while the stream runs."""

    savepoints: SavepointTaker
    rescales: LiveRescaler
    side_jobs: SideJobs


def patience_s(epoch_s: float) -> float:
    """Return for how many seconds a stop waits for the epoch in flight, which may be stuck.

    Args:
        epoch_s: Seconds that the one before it took; 0 when there was none.

    """
    return min(max(2 * epoch_s, LEAST_PATIENCE_SECONDS), MOST_PATIENCE_SECONDS)


class Control:
    """Heartbeats and requests of one generation.

    Args:
        catalog: Where both are.
        job: Name of the job.
        generation: The generation this driver claimed.

    """

    def __init__(self, catalog: Catalog, job: str, generation: int) -> None:
        self._catalog = catalog
        self._job = job
        self._generation = generation
        self._gate = threading.Lock()
        self._forbidden: str | None = None
        self._query: StreamingQuery | None = None
        self._takers: Takers | None = None
        self._backlog: BacklogMonitor | None = None
        self._published: Manifest | None = None
        self._ended = threading.Event()
        self._newest: tuple[int, int] | None = None
        self._boundary: threading.Lock | None = None
        self._epoch_seconds = 0.0
        self._patience_ends = 0.0
        self._thread = threading.Thread(target=self._poll, name="statecore-control", daemon=True)
        self.request: RequestRecord | None = None
        self.superseded = False

    def measure_with(self, backlog: BacklogMonitor) -> None:
        """Record with every epoch to come what waits after it."""
        self._backlog = backlog

    def start(self) -> None:
        """Begin to send heartbeats, as a generation that is launching."""
        self._thread.start()

    def running(
        self, query: StreamingQuery, resumed: Manifest | None, takers: Takers, boundary: threading.Lock
    ) -> None:
        """Report the generation running, and take requests from now on.

        Args:
            query: What a stop ends.
            resumed: The committed epoch in its store that it goes on from.
            takers: Who carries requests out.
            boundary: Held while an epoch is in flight.

        """
        self._published = resumed
        self._boundary = boundary
        self._newest = None if resumed is None else (resumed.lineage, resumed.epoch)
        self._takers = takers
        self._query = query
        self._beat()
        if self._forbidden is not None:
            # Superseded while it was launching, when there was no query to stop.
            query.stop()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def check_open(self) -> None:
        """Check that an epoch may begin.

        Raises:
            CommitForbiddenError: The job is stopping.

        """
        if self.request is not None or self._forbidden is not None:
            raise CommitForbiddenError("the job is stopping: this epoch is not begun, and is the next driver's first")

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Hold off a stop while a manifest is written.

        Raises:
            CommitForbiddenError: The job is stopping.

        """
        with self._gate:
            if self._forbidden is not None:
                raise CommitForbiddenError(
                    f"found an epoch ready to commit; expected none, because {self._forbidden}; "
                    "the epoch is not committed and will be replayed"
                )
            yield

    def committed(self, report: EpochReport) -> None:
        """Record an epoch's figures; they are for people, so a failure to record them stops nothing."""
        manifest = report.manifest
        self._published = manifest
        self._newest = (manifest.lineage, manifest.epoch)
        self._epoch_seconds = report.duration_ms / 1000
        log.info(
            "epoch %d of lineage %d: %d rows in %d ms at parallelism %d, state of %d subtasks met in memory",
            manifest.epoch, manifest.lineage, manifest.rows, report.duration_ms, manifest.parallelism,
            report.cached_subtasks,
        )  # fmt: skip
        try:
            record_epoch(self._catalog, report, () if self._backlog is None else self._backlog.committed(manifest))
        except Exception:
            log.exception("the figures of epoch %d could not be recorded", manifest.epoch)

    def _poll(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            try:
                self._beat()
                if self._query is not None and self.request is None and self._forbidden is None:
                    self._take_request()
            except Exception:
                # The catalog may be away for a while; the stream goes on, and the supervisor judges the silence.
                log.exception("the catalog cannot be reached")
            if self.request is not None and self._forbidden is None:
                self._stop_between_epochs(self.request)

    def _take_request(self) -> None:
        assert self._takers is not None
        request = self._catalog.next_request(self._job, under_way=self._takers.side_jobs.under_way())
        if request is None:
            return
        if request.kind == "savepoint":
            # What came of it is in the catalog; the stream goes on.
            with suppress(StatecoreError):
                self._takers.savepoints.take(request, self._published)
        elif request.kind == "rescale":
            self._takers.rescales.take(request)
        else:
            self._patience_ends = time.monotonic() + patience_s(self._epoch_seconds)
            self.request = request
            log.info("request %d asks to %s; no other epoch is begun", request.id, request.kind)

    def _stop_between_epochs(self, request: RequestRecord) -> None:
        """Stop when no epoch is in flight, or patience ends; else come back after the next heartbeat."""
        assert self._boundary is not None
        if self._boundary.acquire(timeout=POLL_SECONDS):
            # Not held any longer: ending the query waits for the call that has one to begin.
            self._boundary.release()
        elif time.monotonic() < self._patience_ends:
            return
        else:
            log.warning("the epoch in flight does not end; it is cut off, not committed, and the next driver's first")
        self._stop(f"request {request.id} asks to {request.kind}")

    def _beat(self) -> None:
        lineage, epoch = self._newest or (None, None)
        state: Literal["launching", "running"] = "launching" if self._query is None else "running"
        alive = self._catalog.heartbeat(self._job, self._generation, state=state, lineage=lineage, epoch=epoch)
        if not alive and not self.superseded:
            self.superseded = True
            self._stop("a newer generation runs the job")

    def _stop(self, why: str) -> None:
        with self._gate:
            self._forbidden = why
        log.info("stopping: %s", why)
        try:
            if self._query is not None:
                self._query.stop()
        except Exception:
            log.exception("the query could not be told to stop")
