"""The supervisor checks job files on request, because its machine has the environment that drivers run in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from statecore.catalog import Catalog, RequestRecord
from statecore.errors import CatalogError, StatecoreError
from statecore.operations.job_file_check import check_job_file

log = logging.getLogger(__name__)


class JobFileChecks:
    """Answers requests to check job files, each in a thread: a check takes seconds, and drivers must not wait."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._under_way: set[int] = set()

    def answer(self) -> None:
        """Begin the checks that were requested since the last call."""
        for request in self._catalog.requests_to_supervisor():
            if request.id not in self._under_way:
                self._under_way.add(request.id)
                threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: RequestRecord) -> None:
        try:
            artifact = request.arguments["artifact"]
            error = _wrong(artifact, self._catalog.job(request.job).settings)
            self._catalog.finish_request(request.id, result={} if error is None else None, error=error)
            log.info("job %r: checked %s: %s", request.job, artifact, error or "sound")
        except CatalogError:
            # A later pass answers it, once the catalog can be reached.
            log.exception("request %d to check a job file could not be answered", request.id)
        finally:
            self._under_way.discard(request.id)


def _wrong(artifact: str, settings: Mapping[str, str]) -> str | None:
    try:
        unchecked = check_job_file(artifact, settings)
    except StatecoreError as error:
        return str(error)
    except Exception as error:
        log.exception("the check of %s failed", artifact)
        return f"found that the check of {artifact} failed: {type(error).__name__}: {error}; expected an answer"
    if unchecked is None or "environment variable" in unchecked:
        return None
    return f"found that {unchecked}; expected it where drivers run; install it on the supervisor's machine"
