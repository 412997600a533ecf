"""The step that ends a change: wait until the job is healthy."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.errors import StepFailedError, UnhealthyJobError
from statecore.operations.changes.finding import Finding, Status
from statecore.operations.changes.step import Step
from statecore.operations.status.verification import Verification, patience_ms


@dataclass(kw_only=True)
class Verify(Step):
    """Waits until the job is healthy at the new parallelism, then ends the run and releases the lease.

    ``operations.status.health`` defines healthy. A job with long epochs gets more time than the caller's limit.
    """

    name = "verify"
    expected = "a live driver at the new parallelism that keeps up"

    def __post_init__(self) -> None:
        """Begin a verification; each process has its own."""
        self._verification: Verification | None = None

    def look(self) -> Finding:
        """Look at heartbeats, epochs and the backlog."""
        change = self.change
        if self._verification is None:
            parallelism = self.required_run().to_parallelism
            self._verification = Verification(change.job, change.run_id, parallelism)
        try:
            health = self._verification.look(change.catalog)
        except UnhealthyJobError as error:
            return Finding(Status.REFUSED, str(error))
        return Finding(Status.DONE if health.is_healthy else Status.WAITING, health.found)

    def end(self) -> None:
        """End the run, which releases surplus workers, and release the lease.

        Raises:
            LeaseHeldError, UnknownRecordError: The lease is lost: the job was restored, and keeps its workers.
            StepFailedError: The run has ended otherwise, or is rolled back.

        """
        change, run = self.change, self.required_run()
        if run.state != "done":
            change.renew_lease()
            change.mark(self.name, ended=True)
            run = change.catalog.runs.finish(change.run_id)
            if run.state != "done":
                change.check_aborted()
                state = "being rolled back" if run.is_given_up else run.state
                raise StepFailedError(
                    f"found run {run.run_id!r} {state}, error {run.error!r}, when its job was verified; expected "
                    "it to be running; begin a new run"
                )
        change.catalog.leases.release(change.job, change.run_id)

    def patience_ms(self) -> int:
        """Return the time that epochs and the backlog need, by recent epochs."""
        return patience_ms(self.change.catalog, self.change.job)
