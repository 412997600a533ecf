"""One generation of a query of Spark's own: claim, build, start, end."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from statecore.catalog import Catalog, GenerationRecord, JobRecord, RequestRecord
from statecore.catalog.records import ENDED_BY_ITSELF
from statecore.errors import CheckpointRefusedError, CommitError
from statecore.queries.job.current_checkpoint import newest_batch
from statecore.queries.job.driver.backlog import QueryBacklog
from statecore.queries.job.driver.control import QueryControl, answer_savepoint
from statecore.queries.job.driver.figures import Figures
from statecore.queries.job.driver.in_flight import BatchInFlight
from statecore.queries.job.driver.lifecycle import Batch, QueryLifecycle
from statecore.queries.job.driver.resuming import resumed
from statecore.queries.job.driver.starting import started, trigger_ms
from statecore.queries.job.query_file import load_query
from statecore.queries.job.savepoints import lineage_of
from statecore.runtime.generation.claim import claim
from statecore.runtime.generation.definition import definition_of
from statecore.runtime.generation.failures import record_failure
from statecore.runtime.generation.heartbeats import heartbeats
from statecore.runtime.generation.watchdog import Watchdog
from statecore.runtime.job import fetch_artifact
from statecore.runtime.kafka_source import kafka_refusal
from statecore.snapshot.job_definition import write_definition
from statecore.storage import open_store
from statecore.storage.workspaces import workspace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_CONCURRENT = "[CONCURRENT_STREAM_LOG_UPDATE]"


def run_query(catalog: Catalog, job_name: str, generation: int) -> None:
    """Run one generation until its query ends or is asked to stop.

    The supervisor stops the job of a query that ends by itself, such as one with ``availableNow``.

    Args:
        catalog: The catalog.
        job_name: Name of the job.
        generation: The generation, claimed in the catalog for this driver.

    Raises:
        CommitError: Another driver runs this generation, or a later one; this driver changes nothing.
        StatecoreError: The job cannot run; the catalog records the reason.
        Exception: The query failed.

    """
    claimed = claim(catalog, job_name, generation)
    lifecycle = QueryLifecycle()
    try:
        with (
            heartbeats(catalog, job_name, generation, lifecycle),
            workspace(f"{job_name}-{generation}") as directory,
            ExitStack() as stack,
        ):
            lifecycle.watchdog = stack.enter_context(Watchdog(lambda: SparkContext._jvm))
            # Before the session, so that a JVM that hangs in its start is noticed.
            SparkContext._ensure_initialized()
            job = resumed(catalog, catalog.jobs.get(job_name), generation)
            request = _run(catalog, job, claimed, lifecycle, directory, stack)
            if request is not None:
                answer_savepoint(catalog, job, request, running=False)
    except BaseException as error:
        record_failure(catalog.generations, job_name, generation, error)
        raise
    if request is None:
        # The supervisor stops the job: a driver must not change what others want of it.
        catalog.generations.end(job_name, generation, state="stopped", error=ENDED_BY_ITSELF)
        log.info("%s", ENDED_BY_ITSELF)
    else:
        catalog.generations.end(job_name, generation, state="stopped")


def _run(
    catalog: Catalog,
    job: JobRecord,
    claimed: GenerationRecord,
    lifecycle: QueryLifecycle,
    directory: Path,
    stack: ExitStack,
) -> RequestRecord | None:
    """Run the query until it ends; return the request that stopped it, None if it ended by itself.

    Raises:
        CommitError: A newer generation runs the job.
        Exception: The query failed.

    """
    catalog.job_files.require_permitted(job)
    files = open_store(job.store)
    build = load_query(fetch_artifact(job.artifact, job.artifact_sha256, files, directory))
    write_definition(files, definition_of(job))
    lineage = _lineage(catalog, job, lifecycle)
    spark = SparkSession.builder.appName(job.name).getOrCreate()
    backlog = QueryBacklog(catalog, claimed)
    figures = Figures(catalog.epochs, claimed, lineage, lifecycle, backlog, spark.sparkContext.uiWebUrl)
    spark.streams.addListener(figures)
    stack.callback(spark.streams.removeListener, figures)
    if lifecycle.watchdog is not None:
        lifecycle.watchdog.session_started()
    query = started(spark, build, job, claimed.parallelism, lambda df: backlog.watch(df, job))
    lifecycle.trigger_ms = trigger_ms(query)
    lifecycle.running = True
    if lifecycle.watchdog is not None:
        lifecycle.watchdog.watch(query, BatchInFlight(query))
    log.info("generation %d runs with %d state partitions", claimed.generation, claimed.parallelism)
    backlog.measuring.start()
    stack.callback(backlog.measuring.stop)
    with QueryControl(catalog, job, query, lifecycle, figures) as control:
        failure = _ended(query)
    figures.wait()
    if lifecycle.superseded:
        raise CommitError(
            f"generation {claimed.generation} of job {job.name!r} stopped: a newer generation runs the job"
        )
    if control.request is None and failure is not None:
        _refuse_another_user(job, failure)
        raise kafka_refusal(failure) or failure
    last = lifecycle.newest
    if last is not None:
        # Heartbeats report a batch half a second late.
        catalog.generations.heartbeat(job.name, claimed.generation, lineage=last.lineage, epoch=last.epoch)
    return control.request


def _lineage(catalog: Catalog, job: JobRecord, lifecycle: QueryLifecycle) -> int:
    """Return the lineage of the next batches, and note the newest committed batch."""
    batch = newest_batch(job)
    if batch is None:
        return lineage_of(catalog.epochs, job.name, -1)
    lineage = lineage_of(catalog.epochs, job.name, batch)
    lifecycle.newest = Batch(lineage, batch)
    return lineage


def _refuse_another_user(job: JobRecord, failure: BaseException) -> None:
    """Explain Spark's error about a batch that another query has logged.

    Raises:
        CheckpointRefusedError: The failure is that error.

    """
    if _CONCURRENT in str(failure):
        raise CheckpointRefusedError(
            f"found another query that writes to {job.checkpoint}; expected job {job.name!r} alone, because each takes "
            "the other's batches for its own, and sinks lose or double rows; stop the other one, wherever it runs, or "
            "give it a clone (`statecore checkpoint clone`)"
        ) from failure


def _ended(query: StreamingQuery) -> BaseException | None:
    """Wait until a query has ended; return the error that Spark reports, if any."""
    try:
        query.awaitTermination()
    except Exception as error:
        return error
    return None
