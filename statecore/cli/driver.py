"""Requests to a job's driver, and the wait for its answer."""

from __future__ import annotations

import time
from typing import Any

from statecore.catalog import Catalog, GenerationRecord, Generations, RequestRecord
from statecore.errors import RequestFailedError

POLL_S = 0.5


def log_of(generations: Generations, job: str) -> str:
    """Return the path of the newest driver's log; empty before the first driver."""
    newest = generations.newest(job)
    return "" if newest is None else newest.log_path


def live_driver(generations: Generations, job: str, wanted_for: str, remedy: str) -> GenerationRecord:
    """Return the running generation; RequestFailedError without one."""
    newest = generations.newest(job)
    if newest is None or not generations.is_alive(newest):
        raise RequestFailedError(f"found no live driver of {job}; expected one {wanted_for}; {remedy}")
    return newest


def answer(catalog: Catalog, request: RequestRecord, timeout_s: float, failed: str) -> dict[str, Any]:
    """Return the result of a request; without one, raise RequestFailedError, which begins with ``failed``."""
    deadline = time.monotonic() + timeout_s
    while request.state in ("pending", "taken"):
        if time.monotonic() > deadline:
            raise RequestFailedError(
                f"{failed}: found no answer after {timeout_s:g} s; expected one from the driver; look at its log "
                f"{log_of(catalog.generations, request.job)}; the request stays, so the answer may still come"
            )
        time.sleep(POLL_S)
        # Check the driver first: it answers before it ends.
        deserted = _is_deserted(catalog, request.job)
        request = catalog.requests.get(request.id)
        if deserted and request.result is None:
            request = catalog.requests.finish(
                request.id,
                error="the driver ended without an answer; a start resumes from the newest epoch; see its log "
                f"{log_of(catalog.generations, request.job)}",
            )
    if request.result is None:
        raise RequestFailedError(f"{failed}: {request.error}")
    return request.result


def _is_deserted(catalog: Catalog, job: str) -> bool:
    """Return whether a job has no driver and is not to get one."""
    if catalog.jobs.get(job).desired_state == "running" or catalog.generations.is_alive(
        catalog.generations.newest(job)
    ):
        return False
    catalog.generations.fail_lost(job)
    return True
