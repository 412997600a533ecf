"""Starting a job."""

from __future__ import annotations

from airflow.sdk import Context

from statecore.catalog import Catalog
from statecore.errors import InvalidParallelismError
from statecore.operations.resizing import check_workers
from statecore_airflow.hooks.settings import lease_ttl_ms
from statecore_airflow.operators.base import CatalogOperator
from statecore_airflow.operators.restart import last_ended
from statecore_airflow.operators.step import change_id
from statecore_airflow.triggers.catalog import RunningTrigger


class StartOperator(CatalogOperator):
    """Has the supervisor run the job from its newest epoch, and waits until its driver does.

    The job stays wanted when that fails: the supervisor goes on trying, as it would after a crash. A job that runs
    stays as it is.

    Args:
        **kwargs: See ``CatalogOperator``.

    """

    def execute(self, context: Context) -> None:
        """Record what is wanted, and wait."""
        run, params = change_id(context), context["params"]
        with self.catalog() as catalog:
            newest = catalog.newest_generation(self.job)
            try:
                if catalog.job(self.job).desired_state == "stopped":
                    # Not while another run changes the job; this one has changed it when it gives the lease back.
                    catalog.acquire_lease(self.job, run, lease_ttl_ms())
                    self._want(catalog, params["parallelism"], params["workers"])
            finally:
                # Also that of a try that was killed: when it expired, the job would be stopped again.
                catalog.release_lease(self.job, run)
            self.wait(catalog, RunningTrigger, after=last_ended(newest))

    def execute_complete(self, context: Context, event: dict[str, str]) -> None:
        """Go on after the trigger has fired."""
        self.judge(event["status"], event["message"])

    def _want(self, catalog: Catalog, parallelism: int | None, workers: int | None) -> None:
        job = catalog.job(self.job)
        if parallelism is not None and not 1 <= parallelism <= job.max_parallelism:
            raise InvalidParallelismError(
                f"found parallelism {parallelism} for job {job.name!r}; expected 1 to its max parallelism "
                f"{job.max_parallelism}; choose one in between"
            )
        check_workers(job, workers)
        if job.cluster is not None and workers is not None:
            catalog.set_desired_workers(job.cluster, workers)
        catalog.set_desired(job.name, state="running", parallelism=parallelism)
