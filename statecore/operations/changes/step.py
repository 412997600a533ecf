"""The base class of all steps of a change.

A step sends a request (``ask``), polls for its result (``look``), and finishes. All three are idempotent: a retried
step reads from the catalog, under the id of its run, what an earlier attempt did. The caller waits between two looks: a
shell sleeps, an Airflow task defers to a trigger.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

from statecore.catalog import RescaleRunRecord
from statecore.errors import CatalogError, StepFailedError
from statecore.operations.changes.change import Change
from statecore.operations.changes.finding import Finding, Status


@dataclass(kw_only=True)
class Step:
    """One step; subclasses add their arguments as fields that JSON can hold.

    Attributes:
        name: Name in the recorded run, and id of Airflow's task.
        parameters: The fields that are parameters of a DAG, or options of a command.
        timeout: How long a DAG waits for the step, or a supervisor that takes it over; see ``patience_ms``.
        holds_lease: Whether the change keeps its lease while it waits.
        is_abortable: Whether a user may end the wait.
        expected: What the step waits for, for an error message.
        change: The change that the step belongs to.

    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()
    timeout: ClassVar[timedelta] = timedelta(minutes=5)
    holds_lease: ClassVar[bool] = True
    is_abortable: ClassVar[bool] = True
    expected: ClassVar[str] = "the step to be done"

    change: Change

    @classmethod
    def of(cls, change: Change, parameters: Mapping[str, Any], **arguments: Any) -> Self:
        """Return the step with those of the change's parameters that it declares, and with further arguments."""
        given = {name: parameters[name] for name in cls.parameters if name in parameters}
        return cls(change=change, **(given | arguments))

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Return whether a run needs the step; it skips the others."""
        return True

    def begin(self) -> Finding | None:
        """Begin, or return why there is nothing to do.

        Returns:
            Why there is nothing to do; None to continue with ``ask``.

        """
        run = self.change.run()
        if run is not None and not self.is_needed(run):
            return Finding(Status.SKIPPED, f"not needed: {_described(run)}")
        return self.enter(run)

    def enter(self, run: RescaleRunRecord | None) -> Finding | None:
        """Hold the lease, or return that the run is done already."""
        if run is not None and run.state == "done":
            self.change.catalog.leases.release(self.change.job, self.change.run_id)
            return Finding(Status.DONE, f"rescale run {run.run_id} is done", self.recorded(run))
        self.hold_lease()
        self.change.check_aborted()
        self.change.mark(self.name, started=True)
        return None

    def ask(self) -> None:
        """Record the desired state, or send a request; nothing by default."""

    def look(self) -> Finding:
        """Look once whether the step is done."""
        return Finding(Status.DONE, "nothing to wait for")

    def observe(self) -> Finding:
        """Look once; also check for an abort by a user. An unreachable catalog counts as waiting."""
        try:
            if self.is_abortable:
                self.change.check_aborted()
            return self.look()
        except StepFailedError as error:
            return Finding(Status.FAILED if error.is_retryable else Status.REFUSED, str(error))
        except CatalogError as error:
            if type(error) is not CatalogError:
                raise
            return Finding(Status.WAITING, str(error))

    def timed_out(self, last: Finding) -> Finding:
        """Return the finding for a step that still waits at the caller's limit, after this last look."""
        newest = self.change.catalog.generations.newest(self.change.job)
        log = "" if newest is None else f" ({newest.log_path})"
        return Finding(
            Status.TIMEOUT,
            f"found {last.message} when the time was up; expected {self.expected}; look at the logs of the supervisor "
            f"and of the driver of job {self.change.job!r}{log}, then begin a new run",
        )

    def finish(self) -> str | None:
        """Do the remaining work after ``look`` has returned done, and return the step's result."""
        return None

    def end(self) -> str | None:
        """Finish, and record that the step has ended."""
        result = self.finish()
        self.change.mark(self.name, ended=True)
        run = self.change.run()
        if run is not None and run.state == "running" and run.error:
            # The error of an earlier attempt; this one has succeeded.
            self.change.catalog.runs.update(run.run_id, error="")
        return result

    def give_up(self, error: BaseException) -> None:
        """Clean up after a failure that is not retried."""

    def cancel(self) -> None:
        """End the process that ``finish`` has started."""

    def hold_lease(self) -> None:
        """Renew the lease.

        Raises:
            LeaseHeldError, UnknownRecordError: The lease is lost.

        """
        self.change.renew_lease()

    def patience_ms(self) -> int:
        """Return the minimum time to wait, even if the caller's limit is shorter."""
        return 0

    def noting(self) -> AbstractContextManager[None]:
        """Record in the run why the step fails."""
        return self.change.noting(self.name)

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the result of this step in a run that is done."""
        return None

    def fields(self) -> dict[str, Any]:
        """Return the arguments, besides the change, that recreate this step in another process."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "change"}

    def required_run(self) -> RescaleRunRecord:
        """Return the recorded run.

        Raises:
            UnknownRecordError: The step ``lease`` has not recorded the run.

        """
        return self.change.catalog.runs.get(self.change.run_id)


def _described(run: RescaleRunRecord) -> str:
    return (
        f"method {run.method}, parallelism {run.from_parallelism} to {run.to_parallelism}, workers {run.from_workers} "
        f"to {run.to_workers}"
    )
