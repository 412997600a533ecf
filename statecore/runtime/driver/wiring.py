"""Builds the objects of one generation."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from statecore.catalog import Catalog, GenerationRecord, Jobs
from statecore.errors import StatecoreError
from statecore.runtime.backlog.detection import source_meters
from statecore.runtime.backlog.monitor import BacklogMonitor, QueryProgress
from statecore.runtime.driver.dataflow import record_dataflow
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.driver.live import LiveRescaler
from statecore.runtime.driver.resume import Resumed
from statecore.runtime.driver.savepoints import SavepointWriter
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.driver.start_savepoint import beside_the_stream
from statecore.runtime.driver.upkeep import BackgroundUpkeep
from statecore.runtime.epoch.committer import Committer
from statecore.runtime.epoch.dataflow import read_sources
from statecore.runtime.epoch.input_files import InputFiles
from statecore.runtime.epoch.input_topics import InputTopics
from statecore.runtime.epoch.lineage import Lineage
from statecore.runtime.epoch.metrics import EpochRecorder
from statecore.runtime.epoch.progress import EpochTimes
from statecore.runtime.epoch.runner import EpochRunner
from statecore.runtime.epoch.subtasks import Subtasks
from statecore.runtime.epoch.ticks import Ticks
from statecore.snapshot.settings import DriverSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wired:
    """A generation that is ready to run.

    Attributes:
        records: The input of the query.
        runner: Runs its epochs.
        backlog: Measures the sources once it is started.
        savepoints: Carries out requests for savepoints.
        rescales: Carries out requests for another parallelism.
        side_jobs: The requests under way.

    """

    records: DataFrame
    runner: EpochRunner
    backlog: BacklogMonitor
    savepoints: SavepointWriter
    rescales: LiveRescaler
    side_jobs: SideJobs


def wire(
    catalog: Catalog,
    resumed: Resumed,
    generation: GenerationRecord,
    lifecycle: Lifecycle,
    spark: SparkSession,
    stack: ExitStack,
    settings: DriverSettings,
) -> Wired:
    """Build a generation; the stack closes its resources."""
    job, store, number = resumed.job, resumed.store, generation.generation
    plan, sources, directory = resumed.plan, resumed.sources, resumed.checkpoint_directory
    ticks = _ticks(resumed, spark, stack)
    upkeep = BackgroundUpkeep(spark, store, settings)
    stack.callback(upkeep.close)
    side_jobs = SideJobs(spark)
    stack.callback(side_jobs.close)
    records = read_sources(spark, plan.sources, None if ticks is None else ticks.rows)
    inputs = InputFiles(spark, job.name, records, directory, sources, store, resumed.point.lineage)
    inputs.check_earlier()
    topics = InputTopics(job.name, records, sources, resumed.point.manifest, accepts_losses=job.accept_lost_records)
    if not topics.check_earlier(directory) and job.accept_lost_records:
        # Nothing is lost; a later loss is for a person to accept anew.
        beside_the_stream(partial(_refuse_losses, catalog.jobs, job.name))
    beside_the_stream(partial(record_dataflow, catalog.epochs, job.name, number, plan, records))
    progress = QueryProgress(spark, job.name)
    meters = source_meters(records, sources.names, directory, progress)
    backlog = BacklogMonitor(catalog.epochs, job.name, number, meters, resumed.point.manifest)
    stack.callback(backlog.close)
    recorder = EpochRecorder(catalog, backlog)
    stack.callback(recorder.close)
    artifact = store.keep_artifact(resumed.artifact.name, resumed.artifact.read_bytes())
    lineage = Lineage(store, resumed.point, number, partial(_begun, catalog, resumed))
    lenient = job.allow_non_restored_state
    subtasks = Subtasks(plan, lineage, generation.parallelism, job.max_parallelism, allow_non_restored_state=lenient)
    committer = Committer(job.name, artifact, lineage, subtasks, directory, sources, topics, upkeep, lifecycle)
    runner = EpochRunner(
        plan=plan,
        lineage=lineage,
        subtasks=subtasks,
        committer=committer,
        times=EpochTimes(directory),
        inputs=inputs,
        first_offsets=resumed.first_offsets,
        ticks=ticks,
        gate=lifecycle,
        recorder=recorder,
        upkeep=upkeep,
    )
    savepoints = SavepointWriter(catalog, job.name, store, spark, side_jobs)
    rescales = LiveRescaler(catalog, job.name, lineage, subtasks, runner.boundary, spark, side_jobs)
    return Wired(records, runner, backlog, savepoints, rescales, side_jobs)


def _begun(catalog: Catalog, resumed: Resumed) -> None:
    """Revoke what was granted for this start only, once an epoch is committed."""
    resumed.on_first_commit()
    if resumed.job.accept_lost_records:
        beside_the_stream(partial(_refuse_losses, catalog.jobs, resumed.job.name))


def _refuse_losses(jobs: Jobs, job: str) -> None:
    try:
        jobs.set_desired(job, accept_lost_records=False)
    except StatecoreError as error:
        log.warning("the next driver of job %s may go on without lost records, as this one: %s", job, error)


def _ticks(resumed: Resumed, spark: SparkSession, stack: ExitStack) -> Ticks | None:
    if not resumed.sources.ticks:
        return None
    ticks = Ticks(spark)
    stack.callback(ticks.close)
    return ticks
