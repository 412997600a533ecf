"""Sessions with the settings that Spark's reader and writer of state need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

# With adaptive execution, a store without rows would be written by fewer tasks than it has partitions.
_WRITING = {"spark.sql.adaptive.enabled": "false"}


def reading_session(spark: SparkSession, checkpoint_format: int) -> SparkSession:
    """Return a session that reads state of a checkpoint format, with all other settings of ``spark``.

    Spark's reader and writer use the settings logged with the batch; the format is not logged.
    """
    return _cloned(spark, {CHECKPOINT_FORMAT: str(checkpoint_format)})


def writing_session(spark: SparkSession, checkpoint_format: int) -> SparkSession:
    """Return a session that writes state of a checkpoint format, with all other settings of ``spark``."""
    return _cloned(spark, {CHECKPOINT_FORMAT: str(checkpoint_format), **_WRITING})


def _cloned(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    # A new session would lack what was set after the start, such as credentials of S3.
    session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    for key, value in settings.items():
        session.conf.set(key, value)
    return session
