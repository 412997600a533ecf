"""The step that stops a job with a savepoint."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.catalog import RequestRecord, RescaleRunRecord
from statecore.errors import ConfigurationError, StatecoreError, StepFailedError
from statecore.operations.changes.finding import Finding, Status
from statecore.operations.changes.step import Step
from statecore.operations.kinds import kind_of
from statecore.operations.status.verification import patience_ms
from statecore.operations.supervision import require_supervisor


@dataclass(kw_only=True)
class StopWithSavepoint(Step):
    """Stops the job's driver with a savepoint; the result is the path of the savepoint's manifest in the store.

    Without a live driver the step itself takes the savepoint, from the newest committed epoch. A job that was stopped
    before, or has not committed an epoch, can be stopped for good without a savepoint; the result is then None.

    Attributes:
        reason: Reason, kept with the savepoint.
        for_good: Whether the job stays stopped; this is then the last step, and releases the lease.
        request_id: The request to the driver.

    """

    name = "stop_with_savepoint"
    parameters = ("reason",)
    expected = "the driver to write the savepoint and end"

    reason: str = ""
    for_good: bool = False
    request_id: int | None = None

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Return whether the run stops the job."""
        return run.stops_job

    def hold_lease(self) -> None:
        """Renew the lease, unless an earlier attempt has stopped the job for good."""
        if not self._is_stopped_for_good():
            super().hold_lease()

    def ask(self) -> None:
        """Ask the driver to stop.

        Raises:
            NoSupervisorError: The supervisor has died since the lease was taken; nothing would start the job again.

        """
        if self._earlier() is None and not self._is_stopped_for_good():
            if not self.for_good and self.change.catalog.jobs.get(self.change.job).desired_state != "stopped":
                require_supervisor(self.change.catalog, self.change.job)
            # First of all: a driver that has stopped already must not be started again.
            self.change.catalog.jobs.set_desired(self.change.job, state="stopped")
            self._require_new_request()

    def look(self) -> Finding:
        """Wait while there is a live driver."""
        if self._earlier() is not None or self._is_stopped_for_good():
            return Finding(Status.DONE, "stopped by an earlier attempt")
        request, newest = self._request(), self.change.catalog.generations.newest(self.change.job)
        is_awaited = request.state != "failed" or (self.for_good and not self._has_epoch())
        if is_awaited and newest is not None and self.change.catalog.generations.is_alive(newest):
            epoch = "no epoch yet" if newest.epoch is None else f"newest epoch {newest.epoch}"
            driver = f"generation {newest.generation} {newest.state}, {epoch}"
            return Finding(Status.WAITING, f"request {request.state}, {driver}")
        return Finding(Status.DONE, f"request {request.state}, no live driver")

    def finish(self) -> str | None:
        """Return the driver's savepoint, or make one."""
        change = self.change
        savepoint = self._earlier() or self._savepoint()
        if savepoint is not None and change.run() is not None:
            change.catalog.runs.update(change.run_id, savepoint=savepoint)
        described = "none" if savepoint is None else change.store().describe(savepoint)
        change.log.info("Job %s is stopped; savepoint: %s", change.job, described)
        if self.for_good:
            change.catalog.leases.release(change.job, change.run_id)
        return savepoint

    def patience_ms(self) -> int:
        """Return the time for the epoch in flight: the driver lets it end."""
        return patience_ms(self.change.catalog, self.change.job)

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the savepoint of a run that is done."""
        return run.savepoint

    def _savepoint(self) -> str | None:
        change, request = self.change, self._request()
        # A driver may have answered and died before it recorded its end. A silent one that wakes up finds it recorded.
        change.catalog.generations.fail_lost(change.job)
        if request.state == "done" and request.result is not None:
            savepoint: str | None = request.result["savepoint"]
            return savepoint
        if self.for_good and (self._was_stopped() or not self._has_epoch()):
            change.catalog.requests.finish(request.id, result={"savepoint": None})
            return None
        if request.state == "failed":
            raise StepFailedError(
                f"found that the driver of job {change.job!r} could not stop with a savepoint: {request.error}; "
                "expected one; remove the cause and begin a new run",
                is_retryable=False,
            )
        return self._pin_resume_point(request)

    def _was_stopped(self) -> bool:
        lease = self.change.catalog.leases.find(self.change.job)
        return lease is not None and lease.before.job.desired_state == "stopped"

    def _has_epoch(self) -> bool:
        return kind_of(self.change.catalog.jobs.get(self.change.job)).newest() is not None

    def _earlier(self) -> str | None:
        run = self.change.run()
        return None if run is None else run.savepoint

    def _is_stopped_for_good(self) -> bool:
        """Return whether an earlier attempt completed the stop: it answered the request and released the lease."""
        catalog = self.change.catalog
        if not self.for_good or catalog.leases.find(self.change.job) is not None:
            return False
        # A run that has lost its lease must not stop a job that runs again.
        if catalog.jobs.get(self.change.job).desired_state != "stopped":
            return False
        error = "the run that asked has lost its lease"
        return catalog.requests.finish(self._request().id, error=error).state == "done"

    def _require_new_request(self) -> None:
        """Refuse a run that has stopped the job before: its request has its answer, and no driver would see it.

        Raises:
            ConfigurationError: A DAG run has the id of one that was deleted.

        """
        request, lease = self._request(), self.change.catalog.leases.find(self.change.job)
        if lease is not None and request.created_ms < lease.acquired_ms:
            raise ConfigurationError(
                f"found that run {self.change.run_id!r} has asked the driver of job {self.change.job!r} to stop before "
                "it took the lease; expected a new run; begin one with another id"
            )

    def _request(self) -> RequestRecord:
        if self.request_id is not None:
            return self.change.catalog.requests.get(self.request_id)
        arguments = {"name": self.change.savepoint_name, "reason": self.reason}
        key = f"{self.change.run_id}/{self.name}"
        request = self.change.catalog.requests.send(self.change.job, "stop_with_savepoint", arguments, key)
        self.request_id = request.id
        return request

    def _pin_resume_point(self, request: RequestRecord) -> str:
        """Make a savepoint of the next driver's resume point: the newest epoch, or a requested savepoint.

        A claimed generation blocks the supervisor and late drivers.

        Raises:
            GenerationClaimedError: A driver came first; look again.
            MissingFileError: There is no committed epoch.

        """
        change = self.change
        claimed = change.catalog.generations.claim(change.job, log_path=f"(no driver: run {change.run_id})")
        try:
            job = change.catalog.jobs.get(change.job)
            savepoints = kind_of(job).savepoints
            result = savepoints.pin(change.catalog, change.savepoint_name, self.reason, claimed.generation)
            change.log.info("No live driver; savepoint of epoch %s of lineage %s", result["epoch"], result["lineage"])
            # Answer the request here: otherwise the next driver would stop on it.
            change.catalog.requests.finish(request.id, result=result)
        except BaseException as error:
            # Also at Ctrl-C: an open generation blocks every driver.
            told = str(error) if isinstance(error, StatecoreError) else f"ended by {type(error).__name__}"
            change.catalog.generations.end(change.job, claimed.generation, state="failed", error=told)
            raise
        change.catalog.generations.end(change.job, claimed.generation, state="stopped")
        path: str = result["savepoint"]
        return path
