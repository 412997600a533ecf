"""The last step of a change: is the job healthy?"""

from __future__ import annotations

from airflow.sdk import Context

from statecore.catalog import Catalog
from statecore.operations.verification import patience_ms
from statecore_airflow.operators.step import JobStep, change_id
from statecore_airflow.triggers.catalog import HealthyTrigger


class VerifyOperator(JobStep):
    """Waits until the job is healthy at the new parallelism, then ends the run and gives the lease back.

    ``statecore.operations.health`` says what healthy is. A job with long epochs is waited for longer than ``timeout``.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "verify"

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Look at heartbeats, epochs and what waits."""
        run = catalog.rescale_run(change_id(context))
        self.wait(
            catalog,
            HealthyTrigger,
            owner=run.run_id,
            at_least_ms=patience_ms(catalog, self.job),
            parallelism=run.to_parallelism,
        )
        self.finish(catalog, context)

    def finish(self, catalog: Catalog, context: Context) -> None:
        """End the run."""
        run = change_id(context)
        catalog.mark_step(run, self.step, ended=True)
        catalog.finish_rescale_run(run)
        catalog.release_lease(self.job, run)
