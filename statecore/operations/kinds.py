"""What a job of one kind has, and one of the other has not."""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.errors import ConfigurationError


def require_statecore_job(job: JobRecord, what: str, remedy: str) -> None:
    """Refuse what a query of Spark's own cannot have.

    Args:
        job: The job.
        what: What was asked for.
        remedy: What to do instead.

    Raises:
        ConfigurationError: The job is a query of Spark's own.

    """
    if job.is_query:
        raise ConfigurationError(
            f"found {what} for job {job.name!r}, which is a query of Spark's own; expected a job of statecore; {remedy}"
        )


def require_settled(job: JobRecord) -> None:
    """Refuse to change a query that was rolled back and has not started since.

    Raises:
        ConfigurationError: Its next driver has yet to find out which checkpoint it goes on from.

    """
    if job.left_checkpoint is not None:
        raise ConfigurationError(
            f"found that job {job.name!r} was rolled back and no driver has started since; expected one, which "
            f"goes on from {job.checkpoint} or {job.left_checkpoint}; wait for it, or remove what keeps it from "
            "starting: see `statecore status`"
        )


def rescaled_running(job: JobRecord, partitions: int | None) -> str:
    """Return how to give a query another number of state partitions."""
    return f"start it as it is, and rescale it: `statecore rescale {job.name} --parallelism {partitions}`"
