"""A change of a job: the context that its steps share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from statecore.catalog import Catalog, RescaleRunRecord, Runs, SystemClock
from statecore.errors import (
    CatalogError,
    ConfigurationError,
    LeaseHeldError,
    OtherRequestError,
    StatecoreError,
    StepFailedError,
    UnknownRecordError,
)
from statecore.snapshot.checkpoints import CheckpointStore


class Logger(Protocol):
    """What ``logging.Logger`` and Airflow's logger have in common."""

    def info(self, event: str, /, *args: Any) -> Any:
        """Log progress."""

    def warning(self, event: str, /, *args: Any) -> Any:
        """Log trouble that may pass."""

    def error(self, event: str, /, *args: Any) -> Any:
        """Log a failure."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a job, from a shell or from Airflow.

    Attributes:
        catalog: Records the change.
        job: Name of the job.
        run_id: Identifies the change: as rescale run, as owner of the lease, and in the names of its savepoints.
        lease_ttl_ms: Lifetime of a lease without renewal.
        log: Log of the steps.

    """

    catalog: Catalog
    job: str
    run_id: str
    lease_ttl_ms: int
    log: Logger

    @property
    def savepoint_name(self) -> str:
        """The name of the change's savepoint."""
        return savepoint_name(self.run_id)

    def run(self) -> RescaleRunRecord | None:
        """Return the recorded run; None before the lease, and for a change without a run."""
        return find_run(self.catalog.runs, self.run_id)

    def store(self) -> CheckpointStore:
        """Open the job's store."""
        return CheckpointStore.at(self.catalog.jobs.get(self.job).store)

    def renew_lease(self) -> None:
        """Renew the lease: a run that has lost it must not touch the job any more.

        Raises:
            LeaseHeldError, UnknownRecordError: The lease is lost.

        """
        self.catalog.leases.renew(self.job, self.run_id, self.lease_ttl_ms)

    def check_aborted(self) -> None:
        """Raise if a user has aborted the run.

        Raises:
            StepFailedError: A user has aborted it; the rollback follows.

        """
        run = self.run()
        if run is not None and run.aborted_by is not None:
            raise StepFailedError(f"aborted by {run.aborted_by}", is_retryable=False)

    def keep_lease(self) -> None:
        """Renew the lease while a step works; ignore an unreachable catalog until the next renewal.

        Raises:
            LeaseHeldError, UnknownRecordError: The lease is lost.
            StepFailedError: A user has aborted the run.

        """
        try:
            self.renew_lease()
            self.check_aborted()
        except CatalogError as error:
            if type(error) is not CatalogError:
                raise
            self.log.warning("%s", error)

    def mark(self, step: str, *, started: bool = False, ended: bool = False) -> None:
        """Record when a step starts or ends, if the change is recorded as a run."""
        with suppress(UnknownRecordError):
            self.catalog.runs.mark_step(self.run_id, step, started=started, ended=ended)

    @contextmanager
    def noting(self, step: str) -> Iterator[None]:
        """Record in the run why a step fails; the rollback reports it."""
        try:
            yield
        except OtherRequestError:
            # The run is another request's.
            raise
        except Exception as error:
            self.log.error("%s", error)
            # An unreachable catalog must not hide the error itself. An ended run keeps its reason.
            with suppress(StatecoreError):
                run = self.run()
                if run is not None and run.state == "running":
                    why = f"step {step} failed: {error}"
                    if run.aborted_by is not None:
                        why = f"aborted by {run.aborted_by} at step {step}"
                    self.catalog.runs.update(self.run_id, error=why)
            raise


def savepoint_name(run_id: str) -> str:
    """Return a name for a run's savepoint: its id; with a digest if it has characters that do not fit a path."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).strip(".-")
    return name if name == run_id else f"{name or 'run'}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


def find_run(runs: Runs, run_id: str) -> RescaleRunRecord | None:
    """Return a rescale run, or None when there is none of this id."""
    with suppress(UnknownRecordError):
        return runs.get(run_id)
    return None


def require_free(catalog: Catalog, job: str, run_id: str) -> None:
    """Refuse a job that another run is changing.

    Raises:
        LeaseHeldError: Another run is changing it; the message has its id.

    """
    lease = catalog.leases.find(job)
    if lease is not None and lease.owner != run_id and catalog.now_ms() < lease.expires_ms:
        raise LeaseHeldError(
            f"found run {lease.owner!r} changing job {job!r}; expected no other run; wait until that run has ended, or "
            f"end it, which rolls it back: `statecore rescale {job} --abort` for a rescale or an upgrade; otherwise "
            "mark the run failed in Airflow, or press Ctrl-C in its shell"
        )


def out_of_order(run_id: str, what: str, step: str) -> ConfigurationError:
    """Return the error of a step that lacks the result of an earlier one."""
    return ConfigurationError(
        f"found no {what} of run {run_id!r}; expected the one from the step {step}; run that step first"
    )


def now_ms() -> int:
    """Return the time in milliseconds since the epoch, UTC."""
    return SystemClock().now_ms()
