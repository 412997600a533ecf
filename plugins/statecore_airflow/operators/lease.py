"""The first step that changes something: it takes the lease on the job, so that nobody else does."""

from __future__ import annotations

from contextlib import suppress

from airflow.sdk import Context
from airflow.sdk.bases.skipmixin import SkipMixin
from airflow.sdk.exceptions import AirflowFailException

from statecore.catalog import Catalog
from statecore.errors import ConfigurationError, StatecoreError
from statecore_airflow.hooks.settings import lease_ttl_ms
from statecore_airflow.operators.step import JobStep, change_id, find_run, require_free
from statecore_airflow.params.rescale import RescaleRequest


class LeaseOperator(JobStep):
    """Takes the lease; of several runs on one job, all but the first are refused, with the first one's run id.

    With it the catalog notes what the job is now: that is what a rollback goes back to. Wire it as the setup of a
    ``RollbackOperator``.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "lease"

    def execute(self, context: Context) -> str | None:
        """Take the lease, and begin the run; a failure leaves no lease behind, because no rollback follows it."""
        try:
            return super().execute(context)
        except AirflowFailException as error:
            # Of no effect if somebody else has it.
            with suppress(StatecoreError), self.catalog() as catalog:
                if find_run(catalog, change_id(context)) is not None:
                    catalog.finish_rescale_run(change_id(context), error=str(error))
                catalog.release_lease(self.job, change_id(context))
            raise

    def hold_lease(self, catalog: Catalog, context: Context) -> None:
        """Check what was asked for, then take the lease; a run that is over must not begin again."""
        run = change_id(context)
        record = find_run(catalog, run)
        if record is not None and record.state == "failed":
            raise ConfigurationError(
                f"found run {run!r} failed: {record.error}; expected one that has not ended; trigger a new run"
            )
        if record is None:
            require_free(catalog, self.job, run)
            # Refused before the lease is taken: a lease left behind would later bring back what did not change.
            self.check(catalog, context)
        catalog.acquire_lease(self.job, run, lease_ttl_ms())

    def check(self, catalog: Catalog, context: Context) -> None:
        """Refuse what cannot be done, before anything is stopped.

        Raises:
            StatecoreError: It cannot.

        """
        catalog.job(self.job)

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Record nothing: a job that is stopped is no rescale."""

    def finish(self, catalog: Catalog, context: Context) -> None:
        """Never waits."""


class BeginRescaleOperator(LeaseOperator, SkipMixin):
    """Takes the lease for a rescale, and records the rescale run that the parameters ask for.

    Steps that this run does not need are skipped from here: each would skip itself, but not before it has a process,
    and the job stands still meanwhile.

    Args:
        **kwargs: See ``JobStep``.

    """

    inherits_from_skipmixin = True

    def execute(self, context: Context) -> None:
        """Take the lease, begin the run, and skip what it does not need."""
        super().execute(context)
        if self.has_dag():
            with self.catalog() as catalog:
                record = catalog.rescale_run(change_id(context))
            later = [task for task in self.get_flat_relatives(upstream=False) if isinstance(task, JobStep)]
            self.skip(context["ti"], [task for task in later if not task.is_needed(record)])

    def check(self, catalog: Catalog, context: Context) -> None:
        """Refuse sizes and methods that do not fit the job; it may have changed since the plan was made."""
        RescaleRequest.of(context["params"]).checked(catalog)

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Start the run in the catalog."""
        run, request = change_id(context), RescaleRequest.of(context["params"])
        job = catalog.job(self.job)
        workers = None if job.cluster is None else catalog.cluster(job.cluster).desired_workers
        catalog.start_rescale_run(
            run,
            job.name,
            from_parallelism=job.parallelism,
            to_parallelism=request.parallelism,
            from_workers=workers,
            to_workers=None if workers is None else request.workers or workers,
            method=request.method,
            reason=request.reason,
        )
        catalog.mark_step(run, self.step, started=True)
