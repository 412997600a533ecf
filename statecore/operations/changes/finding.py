"""The result of one look at a step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from statecore.catalog import Requests
from statecore.errors import CatalogError, GenerationClaimedError, StatecoreError, StepFailedError, StorageError


class Status(StrEnum):
    """Where a step stands."""

    WAITING = "waiting"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    """Failed; retryable."""
    REFUSED = "refused"
    """Failed for good: another attempt fails the same way."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Finding:
    """A step's status, a message for the log and, if an earlier attempt had ended the step, its result."""

    status: Status
    message: str
    result: str | None = None

    def check(self) -> None:
        """Raise unless the step is done or skipped.

        Raises:
            StepFailedError: The step is neither.

        """
        if self.status not in (Status.DONE, Status.SKIPPED):
            raise StepFailedError(self.message, is_retryable=self.status is Status.FAILED)


def look_at_request(requests: Requests, request_id: int) -> Finding:
    """Check whether a driver has answered a request."""
    request = requests.get(request_id)
    if request.state == "done":
        return Finding(Status.DONE, f"request {request.id} to {request.kind} done: {request.result}")
    if request.state == "failed":
        return Finding(
            Status.FAILED,
            f"found request {request.id} to {request.kind} failed: {request.error}; expected the driver of job "
            f"{request.job!r} to carry it out; remove the cause and try again",
        )
    return Finding(Status.WAITING, f"request {request.id} to {request.kind} {request.state}")


def is_retryable(error: StatecoreError) -> bool:
    """Return whether a retry may succeed: catalog or store were unreachable, or a driver claimed a generation first."""
    if isinstance(error, StepFailedError):
        return error.is_retryable
    # Their subclasses name a lasting cause.
    return type(error) in (CatalogError, StorageError) or isinstance(error, GenerationClaimedError)
