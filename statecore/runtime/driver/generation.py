"""One generation of a job: resume, run, stop."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from statecore.catalog import Catalog, GenerationRecord, JobRecord
from statecore.errors import (
    CommitError,
    MaxParallelismError,
    MissingFileError,
    SavepointInUseError,
    StatecoreError,
    StateMigrationError,
)
from statecore.runtime.backlog.detection import source_meters
from statecore.runtime.backlog.monitor import BacklogMonitor, QueryProgress
from statecore.runtime.driver.control import Control, Takers
from statecore.runtime.driver.failures import record_failure, told
from statecore.runtime.driver.live import LiveRescaler
from statecore.runtime.driver.resume import find_resume_point
from statecore.runtime.driver.savepoints import SavepointTaker
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.driver.upkeep import BackgroundUpkeep
from statecore.runtime.epoch.dataflow import read_sources
from statecore.runtime.epoch.progress import QuerySources, lay_down_progress
from statecore.runtime.epoch.publishing import publish
from statecore.runtime.epoch.runner import EpochRunner, ResumePoint
from statecore.runtime.epoch.ticks import Ticks
from statecore.runtime.job import Job, fetch_artifact, load_job
from statecore.runtime.settings import RuntimeSettings
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from statecore.snapshot.job_definition import JobDefinition, write_definition
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.savepoints import drop_savepoint
from statecore.snapshot.verify import verify_presence

log = logging.getLogger(__name__)

TRIGGER = "500 milliseconds"


def run_generation(catalog: Catalog, job_name: str, generation: int) -> None:
    """Run one generation until it is asked to stop.

    Raises:
        CommitError: Another driver has this generation, or a later one; it is left alone.
        StatecoreError: The job cannot run; the catalog knows why.

    """
    _claim(catalog, job_name, generation)
    control = Control(catalog, job_name, generation)
    control.start()
    directory = Path(tempfile.mkdtemp(prefix=f"statecore-{job_name}-{generation}-"))
    try:
        _run(catalog, catalog.job(job_name), generation, control, directory)
    except BaseException as error:
        control.close()
        record_failure(catalog, job_name, generation, error)
        raise
    finally:
        control.close()
        shutil.rmtree(directory, ignore_errors=True)
    catalog.end_generation(job_name, generation, state="stopped")


def _claim(catalog: Catalog, job: str, generation: int) -> None:
    """Become the one driver of a generation; who does not must not end it, because it is another driver's."""
    try:
        _claimed(catalog, job, generation)
        CheckpointStore.at(catalog.job(job).store).claim_generation(generation)
    except CommitError:
        raise
    except StatecoreError as error:
        record_failure(catalog, job, generation, error)
        raise


def _run(catalog: Catalog, job: JobRecord, generation: int, control: Control, directory: Path) -> None:
    settings = RuntimeSettings.from_conf(job.conf)
    artifact = fetch_artifact(job.artifact, directory)
    plan = load_job(artifact, job.settings)
    store = CheckpointStore.at(job.store)
    parallelism = _claimed(catalog, job.name, generation).parallelism
    write_definition(store.files, _definition(job))
    resume = find_resume_point(
        store,
        job.name,
        job.start_from,
        after_generation=job.start_after_generation,
        roll_back=job.roll_back,
    )
    job = _with_what_was_taken_up(catalog, job, store, resume)
    checkpoint_directory = directory / "spark"
    with ExitStack() as stack:
        spark = job_session(job.name)
        taken_up = _keep_until_taken_up(stack, store, resume, job)
        ticks = Ticks(spark) if plan.fires_timers else None
        sources = QuerySources(tuple(source.name for source in plan.sources), ticks is not None)
        _prepare(plan, store, resume, job, checkpoint_directory, spark, sources)
        if ticks is not None:
            stack.callback(ticks.close)
            if resume.manifest is not None:
                ticks.committed(resume.manifest)
        upkeep = BackgroundUpkeep(spark, store, settings)
        stack.callback(upkeep.close)
        side_jobs = SideJobs(spark)
        stack.callback(side_jobs.close)
        savepoints = SavepointTaker(catalog, job.name, store, spark, side_jobs)
        runner = EpochRunner(
            job=job.name,
            plan=plan,
            artifact=store.keep_artifact(artifact.name, artifact.read_bytes()),
            store=store,
            resume=resume,
            parallelism=parallelism,
            max_parallelism=job.max_parallelism,
            generation=generation,
            checkpoint_directory=checkpoint_directory,
            gate=control,
            upkeep=upkeep,
            sources=sources,
            ticks=ticks,
            taken_up=taken_up,
            allow_non_restored_state=job.allow_non_restored_state,
        )
        records = read_sources(spark, plan.sources, None if ticks is None else ticks.rows)
        progress = QueryProgress()
        meters = source_meters(records, [source.name for source in plan.sources], checkpoint_directory, progress)
        backlog = BacklogMonitor(catalog, job.name, generation, meters, resume.manifest)
        stack.callback(backlog.close)
        control.measure_with(backlog)
        query = (
            records.writeStream.queryName(job.name)
            .option("checkpointLocation", checkpoint_directory.as_uri())
            .trigger(processingTime=TRIGGER)
            .foreachBatch(runner)
            .start()
        )
        resumed = resume.manifest if resume.foreign is None else None
        rescales = LiveRescaler(catalog, job.name, generation, runner, spark, side_jobs)
        control.running(query, resumed, Takers(savepoints, rescales, side_jobs), runner.boundary)
        progress.query = query
        backlog.start()
        log.info("generation %d runs at parallelism %d", generation, parallelism)
        failure = _ended(query)
        # A stop forbids commits first, so an epoch that it cuts off fails with that; it was not committed.
        if control.request is None and not control.superseded:
            raise runner.failure or failure or _ended_by_nobody(job.name)
        if control.superseded:
            raise CommitError(
                f"found a newer generation of job {job.name!r}; expected generation {generation} to be the newest; "
                "this driver stopped without committing"
            )
        if control.request is not None:
            if runner.failure is not None:
                log.warning("an epoch was not committed, and is the next driver's first: %s", told(runner.failure))
            newest = store.newest()
            if newest is not None and newest.generation == generation:
                # It may have been committed and not published when the query was stopped.
                publish(plan.sinks, newest, store, spark)
                resumed = newest
            savepoints.take(control.request, resumed)


def _ended(query: StreamingQuery) -> BaseException | None:
    """Wait until a query has ended; return what Spark says that it failed with."""
    try:
        query.awaitTermination()
    except Exception as error:
        return error
    return None


def _ended_by_nobody(job: str) -> CommitError:
    return CommitError(
        f"found the query of job {job!r} ended by nobody; expected it to run until it is asked to stop; the next "
        "driver goes on from the newest epoch"
    )


def _definition(job: JobRecord) -> JobDefinition:
    return JobDefinition(
        name=job.name,
        artifact=job.artifact,
        store=job.store,
        master_url=job.master_url,
        cluster=job.cluster,
        conf=job.conf,
        settings=job.settings,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
    )


def _with_what_was_taken_up(catalog: Catalog, job: JobRecord, store: CheckpointStore, resume: ResumePoint) -> JobRecord:
    """Bring to an end what a driver that died had begun: it took up a savepoint, and the newest epoch counts now."""
    manifest = resume.manifest
    if manifest is None or manifest.savepoint is not None:
        return job
    if job.claims_savepoint and job.start_from is not None and manifest.generation > job.start_after_generation:
        with suppress(MissingFileError):
            _drop_claimed(store, job.start_from)
    if manifest.max_parallelism != job.max_parallelism:
        # A wish for another one ends with the wish to start from the savepoint that has it.
        log.warning("going on with max parallelism %d of the newest epoch", manifest.max_parallelism)
        fitting = min(job.parallelism, manifest.max_parallelism)
        return catalog.set_desired(job.name, parallelism=fitting, max_parallelism=manifest.max_parallelism)
    return job


def _drop_claimed(store: CheckpointStore, path: str) -> None:
    try:
        freed = drop_savepoint(store, path)
    except SavepointInUseError as error:
        # The next driver tries again; the stream need not wait for that.
        log.warning("the claimed savepoint stays for now: %s", error)
    else:
        log.info("dropped the claimed savepoint %s, %d bytes", store.describe(path), freed)


def _keep_until_taken_up(
    stack: ExitStack, store: CheckpointStore, resume: ResumePoint, job: JobRecord
) -> Callable[[], None]:
    """Claim the savepoint that is resumed from; return what to call when an epoch was committed after it."""
    manifest = resume.manifest
    if manifest is None or resume.path is None or (resume.foreign is None and manifest.savepoint is None):
        # The newest epoch of the job's own needs nobody's protection.
        return lambda: None
    source, path = resume.foreign or store, resume.path
    claim = stack.enter_context(ExitStack())
    claim.enter_context(claimed(source.files, path, f"job {job.name}, which starts from it", name=f"start-{job.name}"))

    def taken_up() -> None:
        claim.close()
        if job.claims_savepoint and manifest.savepoint is not None:
            _drop_claimed(source, path)

    return taken_up


def _claimed(catalog: Catalog, job: str, generation: int) -> GenerationRecord:
    newest = catalog.newest_generation(job)
    if newest is None or newest.generation != generation or newest.ended:
        raise CommitError(
            f"found generation {newest.generation if newest else None} to be the newest of job {job!r}; "
            f"expected {generation}, which this driver was launched for; let the supervisor launch drivers"
        )
    return newest


def check_restorable(
    manifest: Manifest, uids: Collection[str], max_parallelism: int, *, allow_non_restored_state: bool = False
) -> None:
    """Check that a job with operators of these uids can take up a manifest's state.

    Raises:
        StateMigrationError: There is state of an operator that the job does not have.
        MaxParallelismError: The state has another number of key groups.

    """
    if manifest.max_parallelism != max_parallelism:
        raise MaxParallelismError(
            f"found state of max parallelism {manifest.max_parallelism}; expected {max_parallelism}, "
            "which the job is registered with; start from it with `start --from`, which takes over its max "
            "parallelism, or rewrite the savepoint"
        )
    gone = sorted({operator.uid for operator in manifest.operators}.difference(uids))
    if gone and not allow_non_restored_state:
        raise StateMigrationError(
            f"found state of the operators {gone} in epoch {manifest.epoch}; expected none but that of "
            f"{sorted(uids)}, the operators of this job; give an operator its old uid back, or start with "
            "--allow-non-restored-state to leave that state behind"
        )


def check_sources(manifest: Manifest, names: Collection[str], *, allow_non_restored_state: bool = False) -> None:
    """Check that a job with sources of these names leaves none behind that a manifest names.

    Raises:
        StateMigrationError: It does; the records of that source that were not read yet would be left out in silence.

    """
    gone = [source.name for source in manifest.sources if source.name not in names]
    if gone and not allow_non_restored_state:
        raise StateMigrationError(
            f"found the sources {gone} in epoch {manifest.epoch}; expected none but {sorted(names)}, the sources of "
            "this job; give a source its old name back, or start with --allow-non-restored-state to read no further "
            "in what the job has dropped"
        )


def job_session(name: str) -> SparkSession:
    """Return the session with the settings that jobs rely on; the rest comes from spark-submit."""
    return (
        SparkSession.builder.appName(name)
        # Local reducers first would draw subtasks away from the workers that hold their state.
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def _prepare(
    plan: Job,
    store: CheckpointStore,
    resume: ResumePoint,
    job: JobRecord,
    directory: Path,
    spark: SparkSession,
    sources: QuerySources,
) -> None:
    """Check that the state is all there, publish what a former driver may have left, lay down Spark's bookkeeping."""
    manifest = resume.manifest
    if manifest is None:
        log.info("job %s starts without state", job.name)
        return
    source = resume.foreign or store
    verify_presence(source, manifest)
    uids = [operator.uid for operator in plan.operators]
    check_restorable(manifest, uids, job.max_parallelism, allow_non_restored_state=job.allow_non_restored_state)
    check_sources(manifest, sources.names, allow_non_restored_state=job.allow_non_restored_state)
    newest = store.newest()
    if newest is not None:
        publish(plan.sinks, newest, store, spark)
    lay_down_progress(manifest, source, directory, sources)
    log.info("job %s resumes after epoch %d of lineage %d", job.name, manifest.epoch, manifest.lineage)
