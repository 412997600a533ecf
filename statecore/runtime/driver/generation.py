"""One generation of a job: claim, resume, wire, run, end."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from statecore.catalog import Catalog, GenerationRecord, RequestRecord
from statecore.errors import CommitError
from statecore.runtime.driver.control import Control
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.driver.query_settings import query_settings
from statecore.runtime.driver.resume import Resumed, resume
from statecore.runtime.driver.wiring import Wired, wire
from statecore.runtime.epoch.publishing import publish
from statecore.runtime.generation.claim import claim
from statecore.runtime.generation.failures import record_failure, told
from statecore.runtime.generation.heartbeats import heartbeats
from statecore.runtime.generation.watchdog import Watchdog
from statecore.runtime.kafka_source import kafka_refusal
from statecore.snapshot.settings import DriverSettings
from statecore.storage.workspaces import workspace

log = logging.getLogger(__name__)


def run_generation(catalog: Catalog, job_name: str, generation: int, *, settings: DriverSettings | None = None) -> None:
    """Run one generation until it is asked to stop.

    Args:
        catalog: The catalog.
        job_name: Name of the job.
        generation: The generation, claimed in the catalog for this driver.
        settings: When to run epochs, and how much to keep; None for what the job's configuration says.

    Raises:
        CommitError: Another driver runs this generation, or a later one; this driver changes nothing.
        StatecoreError: The job cannot run; the catalog records the reason.

    """
    claimed = claim(catalog, job_name, generation)
    lifecycle = Lifecycle()
    try:
        with (
            heartbeats(catalog, job_name, generation, lifecycle),
            workspace(f"{job_name}-{generation}") as directory,
            ExitStack() as stack,
        ):
            lifecycle.watchdog = watchdog = stack.enter_context(Watchdog(lambda: SparkContext._jvm))
            # Before the session, so that a JVM that hangs in its start is noticed.
            SparkContext._ensure_initialized()
            job = catalog.jobs.get(job_name)
            chosen = settings or DriverSettings.from_conf(job.conf)
            lifecycle.trigger_ms = chosen.trigger_ms
            resumed = resume(catalog, job, generation, directory, stack)
            spark = job_session(job_name)
            watchdog.session_started()
            publish_newest(resumed, spark)
            wired = wire(catalog, resumed, claimed, lifecycle, spark, stack, chosen)
            request = _run(catalog, resumed, wired, lifecycle, claimed, chosen.trigger_ms)
            end(resumed, wired, lifecycle, request, claimed, spark)
    except BaseException as error:
        record_failure(catalog.generations, job_name, generation, error)
        raise
    catalog.generations.end(job_name, generation, state="stopped")


def job_session(name: str) -> SparkSession:
    """Return the session with the settings that jobs rely on; the rest comes from spark-submit."""
    return (
        SparkSession.builder.appName(name)
        # Reduce locality would move subtasks away from the workers that hold their state.
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def publish_newest(resumed: Resumed, spark: SparkSession) -> None:
    """Publish the newest epoch, in case its driver died between commit and publication.

    An epoch that a roll-back leaves behind stays unpublished; its sink may refuse it.
    """
    newest, start = resumed.store.newest(), resumed.point.manifest
    if newest is not None and start is not None and (newest.lineage, newest.epoch) == (start.lineage, start.epoch):
        publish(resumed.plan.sinks, newest, resumed.store, spark)


def _run(
    catalog: Catalog,
    resumed: Resumed,
    wired: Wired,
    lifecycle: Lifecycle,
    generation: GenerationRecord,
    trigger_ms: int,
) -> RequestRecord:
    """Run the query until a request stops it; return the request.

    Raises:
        CommitError: A newer generation runs the job, or the query ended without a stop request.
        Exception: An epoch failed.

    """
    with query_settings(wired.records.sparkSession, resumed.plan):
        query = (
            wired.records.writeStream.queryName(generation.job)
            .option("checkpointLocation", resumed.checkpoint_directory.as_uri())
            .trigger(processingTime=f"{trigger_ms} milliseconds")
            .foreachBatch(wired.runner)
            .start()
        )
        lifecycle.started(resumed.point.manifest if resumed.point.foreign is None else None)
        if lifecycle.watchdog is not None:
            lifecycle.watchdog.watch(query, wired.runner.boundary)
        wired.backlog.start()
        log.info("generation %d runs at parallelism %d", generation.generation, generation.parallelism)
        with Control(catalog.requests, generation.job, query, lifecycle, wired) as control:
            failure = _ended(query)
    if lifecycle.superseded:
        raise CommitError(
            f"generation {generation.generation} of job {generation.job!r} stopped without committing: a newer "
            "generation runs the job"
        )
    if control.request is None:
        # A stop forbids commits first, so the epoch that it cancels fails as well; this was not a stop.
        failure = wired.runner.failure or failure
        raise kafka_refusal(failure) or failure or _ended_unasked(generation.job)
    return control.request


def end(
    resumed: Resumed,
    wired: Wired,
    lifecycle: Lifecycle,
    request: RequestRecord,
    generation: GenerationRecord,
    spark: SparkSession,
) -> None:
    """Publish this generation's last committed epoch, and write the requested savepoint."""
    if wired.runner.failure is not None:
        log.warning("an epoch was not committed; the next driver runs it: %s", told(wired.runner.failure))
    newest = resumed.store.newest()
    if newest is not None and newest.generation == generation.generation:
        # The stop may have happened between commit and publication.
        publish(resumed.plan.sinks, newest, resumed.store, spark)
        wired.savepoints.write(request, newest)
    else:
        wired.savepoints.write(request, lifecycle.newest)


def _ended(query: StreamingQuery) -> BaseException | None:
    """Wait until a query has ended; return the error that Spark reports, if any."""
    try:
        query.awaitTermination()
    except Exception as error:
        return error
    return None


def _ended_unasked(job: str) -> CommitError:
    return CommitError(
        f"the query of job {job!r} ended without a stop request; the next driver resumes from the newest epoch"
    )
