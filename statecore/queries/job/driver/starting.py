"""Starts the query that a query file describes, on the checkpoint of its job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import DataStreamWriter

from statecore.errors import QueryDefinitionError
from statecore.queries.job.query_file import described
from statecore.queries.reading.files import spark_url
from statecore.queries.reading.logs import SHUFFLE_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from statecore.catalog import JobRecord
    from statecore.queries.job.query_file import Build

_REPEATED = "ProcessingTimeTrigger"
_REFUSED = {"ContinuousTrigger": "continuous processing", "RealTimeTrigger": "real-time mode"}


def started(
    spark: SparkSession, build: Build, job: JobRecord, partitions: int, about_to_start: Callable[[DataFrame], None]
) -> StreamingQuery:
    """Start a job's query.

    Args:
        spark: The session that ``build`` gets.
        build: Describes the query.
        job: The job; its checkpoint replaces one given in the query file.
        partitions: Number of state partitions of a new checkpoint; the log of one that exists wins.
        about_to_start: Called with the DataFrame that the query computes.

    Raises:
        QueryDefinitionError: ``build`` fails, or returns something that cannot be started.
        Exception: Spark refuses the query.

    """
    assert job.checkpoint is not None
    query = described(spark, build, job.settings)
    writer = query.query
    if not isinstance(writer, DataStreamWriter):
        raise QueryDefinitionError(
            "found a DataFrame returned by build(spark, settings); expected a DataStreamWriter that is not started, "
            "because a job has to know its sink; return df.writeStream with output mode and sink"
        )
    _refuse_trigger(writer)
    # After build(), which may set it for batch queries of its own.
    writer._df.sparkSession.conf.set(SHUFFLE_PARTITIONS, str(partitions))
    if not _field(writer, "extraOptions").contains("queryName"):
        writer = writer.queryName(job.name)
    writer = writer.option("checkpointLocation", spark_url(job.checkpoint))
    about_to_start(writer._df)
    return writer.start() if query.table is None else writer.toTable(query.table)


def trigger_ms(query: StreamingQuery) -> int | None:
    """Return the shortest time from the start of a batch to the start of the next; None for a query that runs once."""
    trigger = query._jsq.streamingQuery().trigger()
    if trigger.getClass().getSimpleName() != _REPEATED:
        return None
    return int(trigger.intervalMs())


def _refuse_trigger(writer: DataStreamWriter) -> None:
    name = _field(writer, "trigger").getClass().getSimpleName()
    if name in _REFUSED:
        raise QueryDefinitionError(
            f"found the trigger of {_REFUSED[name]}; expected one of micro-batches, because state of others cannot be "
            "saved and rescaled; use trigger(processingTime=…), availableNow or once"
        )


def _field(writer: DataStreamWriter, name: str) -> Any:
    """Return an option of a writer, which PySpark does not expose."""
    java = writer._jwrite
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)
