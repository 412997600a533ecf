"""Checks of job files on the supervisor's machine, which has the environment that drivers run in.

::

    ask_check ──request──► catalog ◄──JobFileChecks.answer── supervisor
    is_checked ◄──────────────┘
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping

from statecore.catalog import Catalog, RequestRecord
from statecore.errors import JobDefinitionError, StatecoreError
from statecore.operations.job_check import check_job_file

log = logging.getLogger(__name__)


def ask_check(catalog: Catalog, job: str, artifact: str) -> int:
    """Ask the supervisor to check a new job file with the settings of a job; return the request's id."""
    # Asked again, it is another request: the file may have been corrected since.
    return catalog.request(job, "check_job_file", {"artifact": artifact}, f"{job}/{uuid.uuid4().hex}").id


def is_checked(catalog: Catalog, request_id: int) -> bool:
    """Tell whether the supervisor has found the job file sound; False while there is no answer.

    Raises:
        JobDefinitionError: The job file is wrong; the message has the line and the reason.

    """
    request = catalog.get_request(request_id)
    if request.state == "failed":
        raise JobDefinitionError(str(request.error))
    return request.state == "done"


class JobFileChecks:
    """Answers requests to check job files, each in a thread: a check takes seconds, and drivers must not wait for it.

    Args:
        catalog: Where requests come from and answers go.

    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._under_way: set[int] = set()

    def answer(self) -> None:
        """Begin the checks that were asked for since the last call."""
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
        except Exception:
            # Asked again with the next pass, when the catalog can be reached.
            log.exception("request %d to check a job file could not be answered", request.id)
        finally:
            self._under_way.discard(request.id)


def _wrong(artifact: str, settings: Mapping[str, str]) -> str | None:
    try:
        unchecked = check_job_file(artifact, settings)
    except StatecoreError as error:
        return str(error)
    if unchecked is None:
        return None
    return f"found that {unchecked}; expected it where drivers run; install it on the supervisor's machine"
