"""The steps of a rescale: stop with a savepoint, resize the cluster, rescale the state, restart, verify."""

from __future__ import annotations

import re
from typing import Any

from statecore.catalog import Catalog, JobRecord, RequestRecord, RescaleRunRecord
from statecore.errors import (
    ConfigurationError,
    GenerationClaimedError,
    InvalidParallelismError,
    MissingFileError,
    RequestFailedError,
    StatecoreError,
)
from statecore.model import key_group_range
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.verify import verify_presence
from statecore_airflow.step import RescaleStep, now_ms
from statecore_airflow.triggers import (
    LEASE_TTL_MS,
    HealthyTrigger,
    RunningTrigger,
    StoppedTrigger,
    WorkersReadyTrigger,
)


class StopWithSavepointOperator(RescaleStep):
    """Takes the lease on the job, stops its driver and leaves a savepoint.

    Without a live driver the savepoint is made here, from the newest committed epoch. The result is the
    path of the savepoint's manifest in the job's store.

    Args:
        parallelism: Parallelism the run is going to.
        workers: Workers the run is going to.
        reason: Why, for the record.
        **kwargs: See ``RescaleStep``.

    """

    step = "stop_with_savepoint"
    template_fields = ("job", "parallelism", "workers", "reason")

    def __init__(self, *, parallelism: int | str, workers: int | str, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parallelism = parallelism
        self.workers = workers
        self.reason = reason

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the savepoint of a run that is done."""
        return run.savepoint

    def hold_lease(self, catalog: Catalog, run: str, record: RescaleRunRecord | None) -> None:
        """Take the lease; a run that had it and lost it must begin anew, for the job went on without it."""
        if record is None:
            # Refused before the lease is taken: a lease left behind would later bring back a job that was stopped.
            _check_size(catalog.job(self.job), int(self.parallelism), int(self.workers))
            catalog.acquire_lease(self.job, run, LEASE_TTL_MS)
        else:
            super().hold_lease(catalog, run, record)

    def begin(self, catalog: Catalog, run: str) -> str | None:
        """Start the run in the catalog and ask the driver to stop."""
        job = catalog.job(self.job)
        parallelism, workers = int(self.parallelism), int(self.workers)
        started = catalog.start_rescale_run(
            run,
            job.name,
            from_parallelism=job.parallelism,
            to_parallelism=parallelism,
            from_workers=catalog.cluster(job.cluster).desired_workers if job.cluster else None,
            to_workers=workers if job.cluster else None,
            reason=self.reason,
        )
        catalog.mark_step(run, self.step, started=True)
        if started.savepoint is not None:
            self.log.info("The job was stopped before, with savepoint %s", started.savepoint)
            return started.savepoint
        catalog.set_desired(job.name, state="stopped")
        return self.finish(catalog, run)

    def finish(self, catalog: Catalog, run: str) -> str | None:
        """Wait while there is a live driver, then take its savepoint or make one."""
        request = self._request(catalog, run)
        if request.state == "failed":
            raise RequestFailedError(
                f"the driver of job {self.job!r} could not stop with a savepoint: {request.error}; expected "
                "one; remove the cause and trigger a new run"
            )
        if catalog.is_alive(catalog.newest_generation(self.job)):
            self.wait(catalog, StoppedTrigger, run, request_id=request.id)
            return self.finish(catalog, run)
        if request.state == "done" and request.result is not None:
            catalog.fail_lost_generation(self.job)  # it answered and died before it could say goodbye
            savepoint = str(request.result["savepoint"])
        else:
            savepoint = self._make_savepoint(catalog, run, request)
        store = CheckpointStore.at(catalog.job(self.job).store)
        _record(catalog, store.manifest(savepoint), savepoint, self.reason)
        catalog.update_rescale_run(run, savepoint=savepoint)
        self.log.info("Job %s is stopped; savepoint %s", self.job, store.describe(savepoint))
        return savepoint

    def _request(self, catalog: Catalog, run: str) -> RequestRecord:
        arguments = {"name": savepoint_name(run), "reason": self.reason}
        return catalog.request(self.job, "stop_with_savepoint", arguments, f"{run}/{self.step}")

    def _make_savepoint(self, catalog: Catalog, run: str, request: RequestRecord) -> str:
        """Pin the newest epoch; a generation of our own keeps the supervisor and late drivers away."""
        try:
            claimed = catalog.claim_generation(self.job, log_path=f"(no driver: Airflow run {run})")
        except GenerationClaimedError:
            self.wait(catalog, StoppedTrigger, run, request_id=request.id)
            return self._make_savepoint(catalog, run, request)
        try:
            store = CheckpointStore.at(catalog.job(self.job).store)
            manifest = store.newest()
            if manifest is None:
                raise MissingFileError(
                    f"found no committed epoch of job {self.job!r} in {store.files.url} and no live driver; "
                    "expected one or the other to make a savepoint of; start the job and let it commit an "
                    "epoch first"
                )
            self.log.info("No live driver; pinning the newest epoch %s", manifest.epoch)
            path = store.write_savepoint(manifest, savepoint_name(run), reason=self.reason, now_ms=now_ms())
        except StatecoreError as error:
            catalog.end_generation(self.job, claimed.generation, state="failed", error=str(error))
            raise
        # Answered here, or the next driver would find the request and stop.
        result = {"savepoint": path, "lineage": manifest.lineage, "epoch": manifest.epoch}
        catalog.finish_request(request.id, result=result)
        catalog.end_generation(self.job, claimed.generation, state="stopped")
        return path


class ResizeClusterOperator(RescaleStep):
    """Sets the size of the job's cluster and waits until so many workers are ready.

    Args:
        workers: Number of workers wanted.
        **kwargs: See ``RescaleStep``.

    """

    step = "resize_cluster"
    template_fields = ("job", "workers")

    def __init__(self, *, workers: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.workers = workers

    def begin(self, catalog: Catalog, run: str) -> None:
        """Record the size wanted; the supervisor sees to it."""
        catalog.mark_step(run, self.step, started=True)
        name, workers = catalog.job(self.job).cluster, int(self.workers)
        if name is None:
            self.log.info("Job %s names no cluster whose size is ours to change; skipped", self.job)
            return
        cluster = catalog.set_desired_workers(name, workers)
        if cluster.ready_workers != workers:
            self.wait(catalog, WorkersReadyTrigger, run, cluster=name, workers=workers)
        self.finish(catalog, run)

    def finish(self, catalog: Catalog, run: str) -> None:
        """Say that the cluster is ready."""
        self.log.info("%s workers are ready", self.workers)


class RescaleStateOperator(RescaleStep):
    """Gives the savepoint's files to another number of subtasks; no state byte is read or copied.

    The result is the path of the new manifest in the job's store.

    Args:
        parallelism: Parallelism wanted.
        reason: Why, for the record.
        **kwargs: See ``RescaleStep``.

    """

    step = "rescale_state"
    template_fields = ("job", "parallelism", "reason")

    def __init__(self, *, parallelism: int | str, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parallelism = parallelism
        self.reason = reason

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the rescaled manifest of a run that is done."""
        return run.rescaled

    def begin(self, catalog: Catalog, run: str) -> str:
        """Check that every file is there, then write the new manifest."""
        catalog.mark_step(run, self.step, started=True)
        return self.finish(catalog, run)

    def finish(self, catalog: Catalog, run: str) -> str:
        """Write the manifest at the new parallelism; again, it is the same one."""
        savepoint = catalog.rescale_run(run).savepoint
        if savepoint is None:
            raise _out_of_order(run, "savepoint", StopWithSavepointOperator.step)
        store = CheckpointStore.at(catalog.job(self.job).store)
        manifest = store.manifest(savepoint)
        # Until the new manifest names the files, too, nobody may drop the old one.
        with claimed(store.files, savepoint, f"rescale run {run}"):
            verify_presence(store, manifest)
            rescaled = rescale_by_reference(manifest, int(self.parallelism))
            for line in describe_plan(manifest, rescaled):
                self.log.info("%s", line)
            name = f"{savepoint_name(run)}-p{rescaled.parallelism}"
            path = store.write_savepoint(rescaled, name, reason=self.reason, now_ms=now_ms())
        _record(catalog, rescaled, path, self.reason)
        catalog.update_rescale_run(run, rescaled=path)
        return path


class RestartOperator(RescaleStep):
    """Has the supervisor start the job from the rescaled savepoint and waits until its driver runs.

    Args:
        parallelism: Parallelism wanted.
        **kwargs: See ``RescaleStep``.

    """

    step = "restart"
    template_fields = ("job", "parallelism")

    def __init__(self, *, parallelism: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parallelism = parallelism

    def begin(self, catalog: Catalog, run: str) -> None:
        """Record what is wanted."""
        catalog.mark_step(run, self.step, started=True)
        rescaled = catalog.rescale_run(run).rescaled
        if rescaled is None:
            raise _out_of_order(run, "rescaled savepoint", RescaleStateOperator.step)
        newest = catalog.newest_generation(self.job)
        job = catalog.job(self.job)
        if (job.desired_state, job.start_from) != ("running", rescaled):
            catalog.set_desired(self.job, state="running", parallelism=int(self.parallelism), start_from=rescaled)
        # In a first try the newest generation is the one that was stopped; later it may be the new one.
        after = 0 if newest is None else newest.generation - (0 if newest.ended else 1)
        self.wait(catalog, RunningTrigger, run, after=after)
        self.finish(catalog, run)

    def finish(self, catalog: Catalog, run: str) -> None:
        """Say which generation runs."""
        newest = catalog.newest_generation(self.job)
        self.log.info("Generation %s runs", newest.generation if newest else None)


class VerifyOperator(RescaleStep):
    """Checks that the job runs at the new parallelism, then gives the lease back and ends the run.

    Args:
        parallelism: Parallelism wanted.
        **kwargs: See ``RescaleStep``.

    """

    step = "verify"
    template_fields = ("job", "parallelism")

    def __init__(self, *, parallelism: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parallelism = parallelism

    def begin(self, catalog: Catalog, run: str) -> None:
        """Wait for heartbeats, and look at the epochs committed meanwhile, if any: it may be an outage."""
        catalog.mark_step(run, self.step, started=True)
        self.wait(catalog, HealthyTrigger, run, parallelism=int(self.parallelism))
        self.finish(catalog, run)

    def finish(self, catalog: Catalog, run: str) -> None:
        """End the run."""
        catalog.mark_step(run, self.step, ended=True)
        catalog.finish_rescale_run(run)
        catalog.release_lease(self.job, run)


def savepoint_name(run: str) -> str:
    """Return the name of a run's savepoint: its id with what does not belong in a path replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip(".-") or "run"


def describe_plan(old: Manifest, new: Manifest) -> list[str]:
    """Return, in words, what each new subtask of each operator takes over."""
    lines = [f"By reference from parallelism {old.parallelism} to {new.parallelism}, epoch {old.epoch}:"]
    for operator in new.operators:
        for index, subtask in enumerate(operator.subtasks):
            groups = key_group_range(new.max_parallelism, new.parallelism, index)
            refs = [item.file for item in subtask.keyed] + [item.file for item in subtask.operator]
            sizes = {ref.path: ref.size for ref in refs}
            lines.append(
                f"  {operator.uid} subtask {index}: key groups {groups.start}..{groups.end}, "
                f"{len(sizes)} files, {sum(sizes.values())} bytes"
            )
    return lines


def _record(catalog: Catalog, manifest: Manifest, path: str, reason: str) -> None:
    catalog.record_savepoint(
        path,
        job=manifest.job,
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        parallelism=manifest.parallelism,
        reason=reason,
    )


def _check_size(job: JobRecord, parallelism: int, workers: int) -> None:
    """Refuse before anything is stopped."""
    if not 1 <= parallelism <= job.max_parallelism:
        raise InvalidParallelismError(
            f"found parallelism {parallelism} for job {job.name!r}; expected 1 to its max parallelism "
            f"{job.max_parallelism}; choose one in between, or lay the state out anew with the method rewrite"
        )
    if workers < 1:
        raise ConfigurationError(
            f"found {workers} workers for job {job.name!r}; expected at least 1; without any nothing runs"
        )


def _out_of_order(run: str, what: str, step: str) -> ConfigurationError:
    return ConfigurationError(
        f"found no {what} of rescale run {run!r}; expected that of the step {step}; run that step first"
    )
