"""The step that stops a job with a savepoint."""

from __future__ import annotations

import re
from typing import Any

from airflow.sdk import Context

from statecore.catalog import Catalog, RequestRecord, RescaleRunRecord
from statecore.errors import GenerationClaimedError, MissingFileError, RequestFailedError, StatecoreError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore_airflow.operators.base import now_ms
from statecore_airflow.operators.step import JobStep, change_id, find_run
from statecore_airflow.triggers.catalog import StoppedTrigger


class StopWithSavepointOperator(JobStep):
    """Stops the job's driver and leaves a savepoint.

    Without a live driver the savepoint is made here, from the newest committed epoch. The result is the
    path of the savepoint's manifest in the job's store.

    Args:
        reason: Why, for whoever finds the savepoint.
        for_good: Whether the job is to stay stopped: this is the last step then, which gives the lease back.
        **kwargs: See ``JobStep``.

    """

    step = "stop_with_savepoint"
    methods = frozenset({"by_reference", "rewrite"})
    template_fields = ("job", "reason")

    def __init__(self, *, reason: str = "", for_good: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason
        self.for_good = for_good

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the savepoint of a run that is done."""
        return run.savepoint

    def hold_lease(self, catalog: Catalog, context: Context) -> None:
        """Renew the lease; a job that was to stay stopped and is has none any more."""
        if not self._has_stopped_for_good(catalog, change_id(context)):
            super().hold_lease(catalog, context)

    def begin(self, catalog: Catalog, context: Context) -> str | None:
        """Ask the driver to stop."""
        run = change_id(context)
        record = find_run(catalog, run)
        if record is not None and record.savepoint is not None:
            self.log.info("The job was stopped before, with savepoint %s", record.savepoint)
            return record.savepoint
        if not self._has_stopped_for_good(catalog, run):
            catalog.set_desired(self.job, state="stopped")
        return self.finish(catalog, context)

    def finish(self, catalog: Catalog, context: Context) -> str | None:
        """Wait while there is a live driver, then take its savepoint or make one."""
        run = change_id(context)
        request = self._request(catalog, run)
        if request.state == "failed":
            raise RequestFailedError(
                f"the driver of job {self.job!r} could not stop with a savepoint: {request.error}; expected "
                "one; remove the cause and trigger a new run"
            )
        if catalog.is_alive(catalog.newest_generation(self.job)) and not self._has_stopped_for_good(catalog, run):
            self.wait(catalog, StoppedTrigger, owner=run, request_id=request.id)
            return self.finish(catalog, context)
        if request.state == "done" and request.result is not None:
            catalog.fail_lost_generation(self.job)  # it answered and died before it could say goodbye
            savepoint = str(request.result["savepoint"])
        else:
            savepoint = self._make_savepoint(catalog, run, request)
        store = CheckpointStore.at(catalog.job(self.job).store)
        record_savepoint(catalog, store, store.manifest(savepoint), savepoint, self.reason)
        if find_run(catalog, run) is not None:
            catalog.update_rescale_run(run, savepoint=savepoint)
        self.log.info("Job %s is stopped; savepoint %s", self.job, store.describe(savepoint))
        if self.for_good:
            catalog.release_lease(self.job, run)
        return savepoint

    def _has_stopped_for_good(self, catalog: Catalog, run: str) -> bool:
        """Tell whether an earlier try has done all of it: the request is answered, and the lease was given back."""
        if not self.for_good or catalog.lease(self.job) is not None:
            return False
        # Whoever has lost the lease must not ask the driver of a job that goes on to stop.
        return catalog.job(self.job).desired_state == "stopped" and self._request(catalog, run).state == "done"

    def _request(self, catalog: Catalog, run: str) -> RequestRecord:
        arguments = {"name": savepoint_name(run), "reason": self.reason}
        return catalog.request(self.job, "stop_with_savepoint", arguments, f"{run}/{self.step}")

    def _make_savepoint(self, catalog: Catalog, run: str, request: RequestRecord) -> str:
        """Pin the newest epoch; a generation of our own keeps the supervisor and late drivers away."""
        try:
            claimed = catalog.claim_generation(self.job, log_path=f"(no driver: Airflow run {run})")
        except GenerationClaimedError:
            self.wait(catalog, StoppedTrigger, owner=run, request_id=request.id)
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


def savepoint_name(run: str) -> str:
    """Return the name of a run's savepoint: its id with what does not belong in a path replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip(".-") or "run"


def record_savepoint(catalog: Catalog, store: CheckpointStore, manifest: Manifest, path: str, reason: str) -> None:
    """Record a savepoint as its driver does: by its whole address."""
    catalog.record_savepoint(
        store.describe(path),
        job=manifest.job,
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        parallelism=manifest.parallelism,
        reason=reason,
    )
