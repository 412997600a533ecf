"""One generation in its caller's process: it reads what is available, and ends with a savepoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from statecore.catalog import Catalog, GenerationRecord
from statecore.errors import CommitError
from statecore.runtime.driver.generation import end, publish_newest
from statecore.runtime.driver.job_file import Load
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.driver.query_settings import query_settings
from statecore.runtime.driver.resume import Resumed, resume
from statecore.runtime.driver.wiring import Wired, wire
from statecore.runtime.epoch.ticks import seconds_until_due
from statecore.runtime.generation.claim import claim
from statecore.runtime.generation.failures import record_failure
from statecore.runtime.generation.heartbeats import heartbeats
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.settings import DriverSettings
from statecore.storage.workspaces import workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)

_POLL_S = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a generation.

    Attributes:
        before: The epoch that it resumed from; None for a job's first generation.
        newest: The newest epoch; None while the job has none.
        savepoint: URL of its savepoint; None while the job has no epoch.

    """

    before: Manifest | None
    newest: Manifest | None
    savepoint: str | None


def run_until_available(
    catalog: Catalog,
    claimed: GenerationRecord,
    spark: SparkSession,
    load: Load,
    progress: Callable[[Manifest], None],
) -> Ended:
    """Run a generation over what its sources hold now, and over the timers that are due then.

    No supervisor watches it, and no watchdog ends the JVM, which belongs to the caller.

    Args:
        catalog: The catalog; requests in it, such as to rescale, are left to other drivers.
        claimed: The generation, claimed for this call.
        spark: The session.
        load: Loads the job's program.
        progress: Called with the newest epoch about once a second.

    Raises:
        StatecoreError: The job cannot run; the catalog records the reason.
        Exception: An epoch failed.

    """
    name, number = claimed.job, claimed.generation
    claim(catalog, name, number)
    lifecycle = Lifecycle()
    try:
        with (
            heartbeats(catalog, name, number, lifecycle),
            workspace(f"{name}-{number}") as directory,
            ExitStack() as stack,
        ):
            job = catalog.jobs.get(name)
            resumed = resume(catalog, job, number, directory, stack, load)
            publish_newest(resumed, spark)
            wired = wire(catalog, resumed, claimed, lifecycle, spark, stack, DriverSettings.from_conf(job.conf))
            _run(resumed, wired, lifecycle, claimed, progress)
            arguments = {"name": f"run-{number:06d}", "reason": "end of a run over what was available"}
            request = catalog.requests.send(name, "stop_with_savepoint", arguments, f"{name}-run-{number}")
            end(resumed, wired, lifecycle, request, claimed, spark)
    except BaseException as error:
        record_failure(catalog.generations, name, number, error)
        raise
    catalog.generations.end(name, number, state="stopped")
    result = catalog.requests.get(request.id).result
    return Ended(resumed.point.manifest, lifecycle.newest, None if result is None else result["url"])


def _run(
    resumed: Resumed,
    wired: Wired,
    lifecycle: Lifecycle,
    claimed: GenerationRecord,
    progress: Callable[[Manifest], None],
) -> None:
    """Run the query until nothing is available.

    Raises:
        CommitError: Another generation runs the job.
        Exception: An epoch failed.

    """
    lifecycle.started(resumed.point.manifest if resumed.point.foreign is None else None)
    while True:
        try:
            with query_settings(wired.records.sparkSession, resumed.plan):
                _query(resumed, wired, lifecycle, claimed, progress)
        except StreamingQueryException as error:
            if not lifecycle.superseded:
                raise wired.runner.failure or error from None
        if lifecycle.superseded:
            raise CommitError(
                f"generation {claimed.generation} of job {claimed.job!r} stopped without committing: a newer "
                "generation runs the job; let one process at a time run it"
            )
        # The query ends before a tick that its own last epoch has caused.
        if lifecycle.newest is None or seconds_until_due(lifecycle.newest, time.time()) != 0:
            return


def _query(
    resumed: Resumed,
    wired: Wired,
    lifecycle: Lifecycle,
    claimed: GenerationRecord,
    progress: Callable[[Manifest], None],
) -> None:
    query = (
        wired.records.writeStream.queryName(claimed.job)
        .option("checkpointLocation", resumed.checkpoint_directory.as_uri())
        .trigger(availableNow=True)
        .foreachBatch(wired.runner)
        .start()
    )
    try:
        while not query.awaitTermination(_POLL_S) and not lifecycle.superseded:
            if lifecycle.newest is not None:
                progress(lifecycle.newest)
    except KeyboardInterrupt:
        lifecycle.close("the run was interrupted")
        raise
    finally:
        _stop(query)
    if lifecycle.newest is not None:
        progress(lifecycle.newest)


def _stop(query: StreamingQuery) -> None:
    """Stop a query; an interrupt may have broken a call into the JVM, and the next one then finds no connection."""
    for attempt in Retrying(
        retry=retry_if_exception_type(Py4JNetworkError), stop=stop_after_attempt(5), wait=wait_fixed(0.2), reraise=True
    ):
        with attempt:
            query.stop()
