"""The two kinds of job behind one interface: a job of statecore, and a query of Spark's own."""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.operations.kinds.kind import JobKind
from statecore.operations.kinds.spark_query import (
    QUERY_PROGRAMS,
    SparkQuery,
    rescaled_running,
)
from statecore.operations.kinds.statecore_job import PROGRAMS, StatecoreJob

__all__ = [
    "PROGRAMS",
    "QUERY_PROGRAMS",
    "JobKind",
    "SparkQuery",
    "StatecoreJob",
    "kind_of",
    "rescaled_running",
]


def kind_of(job: JobRecord) -> JobKind:
    """Return the kind of a job."""
    return SparkQuery(job) if job.is_query else StatecoreJob(job)
