"""The first step of a change: it takes the lease, so that no other run changes the job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from statecore.catalog import JobRecord, RescaleMethod
from statecore.catalog.runs import require_same
from statecore.errors import ConfigurationError, OtherRequestError, StatecoreError
from statecore.operations.changes.change import require_free
from statecore.operations.changes.finding import Finding
from statecore.operations.changes.request import RescaleRequest
from statecore.operations.changes.step import Step


@dataclass(kw_only=True)
class TakeLease(Step):
    """Takes the lease; another run on the job is refused with this run's id.

    The catalog keeps the job's definition with the lease, and a rollback restores it.
    """

    name = "lease"

    def hold_lease(self) -> None:
        """Check the request, then take the lease; a failed run must not begin again."""
        run = self.change.run()
        if run is not None and run.state == "failed":
            raise ConfigurationError(
                f"found run {run.run_id!r} failed: {run.error}; expected a run that has not ended; begin a new run"
            )
        if run is None:
            require_free(self.change.catalog, self.change.job, self.change.run_id)
            # Refuse before taking the lease: a lease left behind would later restore a job that did not change.
            self.check()
        self.change.catalog.leases.acquire(self.change.job, self.change.run_id, self.change.lease_ttl_ms)

    def begin(self) -> Finding | None:
        """Refuse another request under the id of a known run, also of one that is done."""
        run = self.change.run()
        if run is not None:
            require_same(run, self.change.job, self.asked())
        return super().begin()

    def asked(self) -> dict[str, Any]:
        """Return the parameters of the request, as the run keeps them."""
        return {}

    def check(self) -> None:
        """Refuse an impossible change, before anything is stopped.

        Raises:
            StatecoreError: The change is not possible.

        """
        self.change.catalog.jobs.get(self.change.job)

    def give_up(self, error: BaseException) -> None:
        """Give the lease back: no rollback follows this step."""
        if isinstance(error, OtherRequestError):
            # The run and its lease are another request's.
            return
        catalog, run_id = self.change.catalog, self.change.run_id
        with suppress(StatecoreError):
            if self.change.run() is not None:
                catalog.runs.finish(run_id, error=str(error) or type(error).__name__)
            # This has no effect if another run holds the lease.
            catalog.leases.release(self.change.job, run_id)

    def record_run(
        self, job: JobRecord, parallelism: int, workers: int | None, method: RescaleMethod, reason: str
    ) -> None:
        """Record that the run begins."""
        catalog = self.change.catalog
        present = None if job.cluster is None else catalog.clusters.get(job.cluster).desired_workers
        catalog.runs.start(
            self.change.run_id,
            job.name,
            from_parallelism=job.parallelism,
            to_parallelism=parallelism,
            from_workers=present,
            to_workers=None if present is None else workers or present,
            method=method,
            reason=reason,
            asked=self.asked(),
        )
        self.change.mark(self.name, started=True)


@dataclass(kw_only=True)
class BeginRescale(TakeLease):
    """Takes the lease for a rescale, and records the run.

    Attributes:
        request: The requested rescale; its method may still be ``auto``.

    """

    parameters = ("request",)

    request: RescaleRequest

    def asked(self) -> dict[str, Any]:
        """Return the whole request; its method may be ``auto``."""
        names = (name for name in RescaleRequest.__struct_fields__ if name != "job")
        return {name: getattr(self.request, name) for name in names}

    def check(self) -> None:
        """Refuse sizes and methods that do not fit the job; it may have changed since the plan was made."""
        self.request.checked(self.change.catalog)

    def ask(self) -> None:
        """Record the run; ``auto`` is resolved to a method now."""
        request, catalog = self.request, self.change.catalog
        job = catalog.jobs.get(self.change.job)
        self.record_run(job, request.parallelism, request.workers, request.resolved(catalog), request.reason)
