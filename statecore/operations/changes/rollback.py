"""The step after a failed change; it restores the job."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from statecore.catalog import JobBefore, RescaleRunRecord
from statecore.catalog.records import ROLLBACK
from statecore.errors import StatecoreError
from statecore.operations.changes.finding import Finding, Status
from statecore.operations.changes.restart import find_driver, last_ended
from statecore.operations.changes.step import Step
from statecore.operations.kinds import kind_of


@dataclass(kw_only=True)
class Rollback(Step):
    """Restores the job as it was when its lease was taken, from its newest epoch.

    The last step of a change releases the lease, so a run that still has it did not complete. The result says what
    failed and what was done about it; it is also recorded in the run.

    Attributes:
        after: The restored driver's generation is higher than this one; None to wait for no driver.
        outcome: What was done about the failure.

    """

    name = ROLLBACK
    is_abortable = False
    expected = "the supervisor to launch a driver that runs"

    after: int | None = None

    def __post_init__(self) -> None:
        """Set no outcome yet."""
        self.outcome = ""

    def begin(self) -> Finding | None:
        """Skip a run that no longer has its lease."""
        run = self.change.run()
        if run is not None and run.state == "done":
            # Its last step was killed before it gave the lease back; the change itself is complete.
            self.change.catalog.leases.release(self.change.job, self.change.run_id)
        if self.has_lease():
            return None
        if run is None or run.state == "done":
            return Finding(Status.SKIPPED, "nothing to roll back: the run has given its lease back")
        return Finding(Status.DONE, f"nothing left to roll back: {run.error}", run.error)

    def noting(self) -> AbstractContextManager[None]:
        """Do not replace the change's error if the rollback fails."""
        return nullcontext()

    def ask(self) -> None:
        """Restore the job's definition; the supervisor starts it from its newest epoch."""
        change = self.change
        reason = _failure(change.run())
        # If this process dies, nothing verifies the restored job.
        change.mark(self.name, started=True)
        change.log.warning("%s; rolling back", reason)
        lease = change.catalog.leases.roll_back(
            change.job, change.run_id, change.lease_ttl_ms, f"{reason}; rolled back"
        )
        if lease.before.job.desired_state == "running":
            self.after = last_ended(change.catalog.generations.newest(change.job))

    def look(self) -> Finding:
        """Look for the restored driver."""
        if self.after is None:
            return super().look()
        return find_driver(self.change.catalog.generations, self.change.job, self.after)

    def finish(self) -> str:
        """End the run, and release the lease."""
        lease = self.change.catalog.leases.find(self.change.job)
        self.outcome = self._described(None if lease is None else lease.before)
        said = f"{_failure(self.change.run())}; {self.outcome}"
        self._end_run(said)
        self.change.log.error("%s", said)
        return said

    def end(self) -> str | None:
        """Finish, if the run still has its lease."""
        if not self.has_lease():
            run = self.change.run()
            return None if run is None else run.error
        return self.finish()

    def give_up(self, error: BaseException) -> None:
        """Leave the job to the supervisor, which keeps trying to start it."""
        self.outcome = f"rolled back, but no driver runs yet: {error}; the supervisor keeps trying"
        if self.has_lease():
            self._end_run(f"{_failure(self.change.run())}; {self.outcome}")

    def has_lease(self) -> bool:
        """Return whether the run still has its lease."""
        lease = self.change.catalog.leases.find(self.change.job)
        return lease is not None and lease.owner == self.change.run_id

    def _end_run(self, said: str) -> None:
        change = self.change
        if change.run() is not None:
            change.mark(self.name, ended=True)
            change.catalog.runs.finish(change.run_id, error=said)
        change.catalog.leases.release(change.job, change.run_id)

    def _described(self, before: JobBefore | None) -> str:
        job = self.change.catalog.jobs.get(self.change.job)
        if before is not None and before.job.desired_state == "stopped":
            return f"job {job.name!r} was rolled back: it is stopped, as before"
        kind = kind_of(job)
        try:
            epoch = kind.newest() or f"no {kind.unit}"
        except StatecoreError as error:
            # The job is restored; an unreachable store must not keep the run from ending.
            epoch = f"its newest epoch, which cannot be read now: {error}"
        workers = "" if before is None or before.workers is None else f" and {before.workers} workers"
        return f"job {job.name!r} was rolled back to parallelism {job.parallelism}{workers}, and resumes from {epoch}"


def _failure(run: RescaleRunRecord | None) -> str:
    """Return the last error of a run."""
    if run is not None and run.error:
        return run.error
    if run is not None and run.aborted_by is not None:
        return f"aborted by {run.aborted_by}"
    return "the run was ended before its last step"
