"""Spark's settings for the query that runs a job. The session may be a user's, whose other queries have their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from statecore.runtime.job import Job
from statecore.runtime.transforms import ByFunction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's default is for directories that drivers share, and starts processes to rename a file: with three files an
# epoch, a quarter of a small epoch's time. Only this driver writes the checkpoint, and it is local.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# This rule replaces a stage without rows, and its figures are lost.
_EXCLUDED = "spark.sql.adaptive.optimizer.excludedRules"
_DROPS_STAGES = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
# Adaptive execution runs each stage as a separate job, to plan the next by its size. An epoch's plan leaves no choice,
# unless a user's function joins tables.
_ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def query_settings(spark: SparkSession, job: Job) -> Iterator[None]:
    """Give a session the settings that the query of a job takes from it when it starts, for the block."""
    excluded = ",".join(filter(None, (spark.conf.get(_EXCLUDED, None), _DROPS_STAGES)))
    adaptive = {} if _joins_tables(job) else {_ADAPTIVE: "false"}
    with session_settings(spark, {_FILE_MANAGER: _LOCAL, _EXCLUDED: excluded, **adaptive}):
        yield


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give a session settings for the block; a query keeps those that it started with."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        # A JVM that has died has no settings.
        with suppress(Exception):
            for key, kept in before.items():
                spark.conf.unset(key) if kept is None else spark.conf.set(key, kept)


def _joins_tables(job: Job) -> bool:
    steps = (step for plan in job.operators for origin in plan.origins for step in origin.transformations)
    return any(isinstance(step, ByFunction) for step in steps)
