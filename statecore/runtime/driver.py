"""One generation of a job: resume, run, stop."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from statecore.catalog import Catalog, GenerationRecord, JobRecord
from statecore.errors import CommitError, MaxParallelismError, StatecoreError, StateMigrationError
from statecore.runtime.control import Control
from statecore.runtime.epoch import EpochRunner, ResumePoint, publish
from statecore.runtime.job import OperatorPlan, load_job
from statecore.runtime.progress import lay_down_progress
from statecore.runtime.resume import find_resume_point
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.verify import verify_presence

log = logging.getLogger(__name__)

TRIGGER = "500 milliseconds"
_NOTHING_COMMITTED = (
    "found no committed epoch; expected one to make a savepoint of; "
    "stop the job without a savepoint, or wait for its first epoch"
)


def run_generation(catalog: Catalog, job_name: str, generation: int) -> None:
    """Run one generation until it is asked to stop.

    Raises:
        StatecoreError: The job cannot run; the catalog knows why.

    """
    control = Control(catalog, job_name, generation)
    control.start()
    directory = Path(tempfile.mkdtemp(prefix=f"statecore-{job_name}-{generation}-"))
    try:
        _run(catalog, catalog.job(job_name), generation, control, directory)
    except BaseException as error:
        control.close()
        catalog.end_generation(job_name, generation, state="failed", error=f"{type(error).__name__}: {error}")
        raise
    finally:
        control.close()
        shutil.rmtree(directory, ignore_errors=True)
    catalog.end_generation(job_name, generation, state="stopped")


def _run(catalog: Catalog, job: JobRecord, generation: int, control: Control, directory: Path) -> None:
    plan = load_job(job.artifact, job.settings).operators[0]
    store = CheckpointStore.at(job.store)
    resume = find_resume_point(store, job.name, job.start_from, roll_back=job.roll_back)
    parallelism = _claimed(catalog, job.name, generation).parallelism
    _prepare(plan, store, resume, job, directory)
    spark = job_session(job.name)
    runner = EpochRunner(
        job=job.name,
        plan=plan,
        store=store,
        resume=resume,
        parallelism=parallelism,
        max_parallelism=job.max_parallelism,
        generation=generation,
        checkpoint_directory=directory,
        gate=control,
        allow_non_restored_state=job.allow_non_restored_state,
    )
    query = (
        plan.source.read(spark)
        .writeStream.queryName(job.name)
        .option("checkpointLocation", directory.as_uri())
        .trigger(processingTime=TRIGGER)
        .foreachBatch(runner)
        .start()
    )
    newest = (resume.manifest.lineage, resume.manifest.epoch) if resume.manifest is not None else None
    control.running(query, newest)
    log.info("generation %d runs at parallelism %d", generation, parallelism)
    try:
        query.awaitTermination()
    except Exception as error:
        # A stop forbids commits first, so an epoch in flight may fail with that; it was not committed.
        if control.request is None and not control.superseded:
            raise (runner.failure or error) from error
    if control.superseded:
        raise CommitError(
            f"found a newer generation of job {job.name!r}; expected generation {generation} to be the newest; "
            "this driver stopped without committing"
        )
    if control.request is not None:
        _finish_stop(catalog, job, store, plan, control)


def _claimed(catalog: Catalog, job: str, generation: int) -> GenerationRecord:
    newest = catalog.newest_generation(job)
    if newest is None or newest.generation != generation or newest.ended:
        raise CommitError(
            f"found generation {newest.generation if newest else None} to be the newest of job {job!r}; "
            f"expected {generation}, which this driver was launched for; let the supervisor launch drivers"
        )
    return newest


def check_restorable(
    manifest: Manifest, uid: str, max_parallelism: int, *, allow_non_restored_state: bool = False
) -> None:
    """Check that a job with one operator can take up a manifest's state.

    Raises:
        StateMigrationError: There is state of an operator that the job does not have.
        MaxParallelismError: The state has another number of key groups.

    """
    if manifest.max_parallelism != max_parallelism:
        raise MaxParallelismError(
            f"found state of max parallelism {manifest.max_parallelism}; expected {max_parallelism}, "
            "which the job is registered with; rewrite the savepoint for that max parallelism"
        )
    gone = sorted({operator.uid for operator in manifest.operators} - {uid})
    if gone and not allow_non_restored_state:
        raise StateMigrationError(
            f"found state of the operators {gone} in epoch {manifest.epoch}; expected none but that of {uid!r}, the "
            "operator of this job; give the operator its old uid back, or start with --allow-non-restored-state to "
            "leave that state behind"
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


def _prepare(plan: OperatorPlan, store: CheckpointStore, resume: ResumePoint, job: JobRecord, directory: Path) -> None:
    """Check that the state is all there, publish what a former driver may have left, lay down Spark's bookkeeping."""
    manifest = resume.manifest
    if manifest is None:
        log.info("job %s starts without state", job.name)
        return
    verify_presence(store, manifest)
    check_restorable(manifest, plan.uid, job.max_parallelism, allow_non_restored_state=job.allow_non_restored_state)
    newest = store.newest()
    if newest is not None:
        publish(plan, newest)
    lay_down_progress(manifest, store, directory)
    log.info("job %s resumes after epoch %d of lineage %d", job.name, manifest.epoch, manifest.lineage)


def _finish_stop(
    catalog: Catalog, job: JobRecord, store: CheckpointStore, plan: OperatorPlan, control: Control
) -> None:
    request = control.request
    assert request is not None
    try:
        newest = store.newest()
        if newest is None:
            catalog.finish_request(request.id, error=_NOTHING_COMMITTED)
            return
        publish(plan, newest)
        now_ms = int(time.time() * 1000)
        name, reason = request.arguments["name"], request.arguments.get("reason", "")
        path = store.write_savepoint(newest, name, reason=reason, now_ms=now_ms)
        catalog.record_savepoint(
            store.describe(path),
            job=job.name,
            lineage=newest.lineage,
            epoch=newest.epoch,
            parallelism=newest.parallelism,
            reason=reason,
        )
        catalog.finish_request(request.id, result={"savepoint": path, "lineage": newest.lineage, "epoch": newest.epoch})
        log.info("savepoint %s of epoch %d", path, newest.epoch)
    except StatecoreError as error:
        catalog.finish_request(request.id, error=str(error))
        raise
