"""Carries out the catalog's requests to the driver of a running query: savepoints and stops."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from statecore.catalog import Catalog, JobRecord, RequestRecord
from statecore.errors import CatalogError, StatecoreError
from statecore.queries.job.driver.figures import Figures
from statecore.queries.job.driver.lifecycle import QueryLifecycle
from statecore.queries.job.driver.stopping import Stopping
from statecore.queries.job.savepoints import take_savepoint
from statecore.repeating import Repeating
from statecore.runtime.generation.patience import patience_s

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
_WAITS = "Waiting for next trigger"
"""Spark's status message between two triggers; not used before the first one."""


class QueryControl:
    """Carries out the requests to one generation while its query runs.

    Args:
        catalog: Holds the requests.
        job: The job.
        query: The running query; a stop ends it.
        lifecycle: The generation's lifecycle.
        figures: Records Spark's progress reports.

    Attributes:
        request: The request that stops the job; None until there is one.

    """

    def __init__(
        self, catalog: Catalog, job: JobRecord, query: StreamingQuery, lifecycle: QueryLifecycle, figures: Figures
    ) -> None:
        self._catalog = catalog
        self._job = job
        self._query = query
        self._lifecycle = lifecycle
        self._figures = figures
        self._stopping: Stopping | None = None
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
        if self._lifecycle.closed:
            self._query.stop()
            self._repeating.stop()
        elif self._stopping is not None:
            if self._stopping.step():
                self._repeating.stop()
        else:
            self._next_request()
            if not self._figures.has_spoken and self._query.status["message"] == _WAITS:
                # The next trigger may be hours away, and Spark reports nothing for one without data.
                self._figures.note_idle()

    def _next_request(self) -> None:
        request = self._catalog.requests.take_next(self._job.name)
        if request is None:
            return
        if request.kind == "savepoint":
            answer_savepoint(self._catalog, self._job, request, running=True)
        elif request.kind == "stop_with_savepoint":
            self.request = request
            self._stopping = Stopping(self._query, patience_s(self._lifecycle.batch_s))
            log.info("request %d asks to stop; no further batch begins", request.id)
        else:
            self._catalog.requests.finish(request.id, error=_refused(self._job.name, request.kind))


def answer_savepoint(catalog: Catalog, job: JobRecord, request: RequestRecord, *, running: bool) -> None:
    """Take a requested savepoint and answer the request; a failure does not end the query.

    Raises:
        CatalogError: The catalog cannot be reached; the request stays.

    """
    arguments = request.arguments
    try:
        if arguments.get("target") is not None:
            raise StatecoreError(_REFUSED_COPY)
        reason, asked_ms = arguments.get("reason", ""), request.created_ms
        made = take_savepoint(catalog, job, arguments["name"], reason, running=running, asked_ms=asked_ms)
    except CatalogError:
        raise
    except StatecoreError as error:
        log.warning("request %d for a savepoint failed: %s", request.id, error)
        catalog.requests.finish(request.id, error=str(error))
    else:
        catalog.requests.finish(request.id, result=made.result())
        log.info("savepoint %s of batch %d", made.url, made.epoch)


_REFUSED_COPY = (
    "found a request for a copy of a savepoint; expected none for a query of Spark's own, whose savepoints are copies "
    "already; leave --copy-to out, and copy one with `statecore checkpoint clone`"
)


def _refused(job: str, kind: str) -> str:
    return (
        f"found a request to {kind} job {job!r} while it runs; expected a request to stop it, or for a savepoint, "
        "because it is a query of Spark's own; stop it first"
    )
