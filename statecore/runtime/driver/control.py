"""Handles the catalog's requests to a running driver: savepoints, live rescales, stops.

It runs in a separate thread, because Spark does not call foreachBatch while no data arrives.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from statecore.catalog import RequestRecord, Requests
from statecore.errors import CatalogError, StatecoreError
from statecore.repeating import Repeating
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.generation.patience import patience_s

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyspark.sql.streaming.query import StreamingQuery

    from statecore.runtime.driver.wiring import Wired

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5


class Control:
    """Carries out the requests to one generation while its query runs.

    Args:
        requests: Holds the requests.
        job: Name of the job.
        query: The running query; a stop ends it.
        lifecycle: The generation's lifecycle.
        wired: Runs the epochs and carries out the requests.

    Attributes:
        request: The request that stops the job; None until there is one.

    """

    def __init__(self, requests: Requests, job: str, query: StreamingQuery, lifecycle: Lifecycle, wired: Wired) -> None:
        self._requests = requests
        self._job = job
        self._query = query
        self._lifecycle = lifecycle
        self._wired = wired
        self._patience_ends = 0.0
        self._repeating = Repeating("requests to the driver", self._step, POLL_SECONDS)
        self.request: RequestRecord | None = None

    def __enter__(self) -> Self:
        self._repeating.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._repeating.close()

    def _step(self) -> None:
        if self._must_stop():
            self._query.stop()
            self._repeating.stop()

    def _must_stop(self) -> bool:
        if self.request is None and not self._lifecycle.closed:
            self._next_request()
        if self.request is not None and not self._lifecycle.closed and self._may_cut_in():
            self._lifecycle.close(f"request {self.request.id} asks to {self.request.kind}")
        return self._lifecycle.closed

    def _next_request(self) -> None:
        request = self._requests.take_next(self._job, under_way=self._wired.side_jobs.under_way())
        if request is None:
            return
        if request.kind == "savepoint":
            try:
                self._wired.savepoints.write(request, self._lifecycle.newest)
            except CatalogError:
                raise
            except StatecoreError as error:
                # The catalog records the outcome; the stream continues.
                log.warning("request %d for a savepoint failed: %s", request.id, error)
        elif request.kind == "rescale":
            self._wired.rescales.start(request)
        else:
            self._patience_ends = time.monotonic() + patience_s(self._lifecycle.epoch_s)
            self.request = request
            self._lifecycle.drain()
            log.info("request %d asks to %s; no further epoch begins", request.id, request.kind)

    def _may_cut_in(self) -> bool:
        """Return whether no epoch is in flight, or the one in flight took too long."""
        boundary = self._wired.runner.boundary
        if boundary.acquire(timeout=POLL_SECONDS):
            # Released at once: stopping the query waits for foreachBatch, which waits for the boundary.
            boundary.release()
            return True
        if time.monotonic() < self._patience_ends:
            return False
        log.warning("the epoch in flight takes too long; it is cancelled without a commit, and the next driver runs it")
        return True
