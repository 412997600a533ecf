"""The step that has a running driver take another parallelism up."""

from __future__ import annotations

from airflow.sdk import Context

from statecore.catalog import Catalog, RequestRecord
from statecore.operations.verification import patience_ms
from statecore_airflow.operators.step import JobStep, change_id
from statecore_airflow.triggers.catalog import RequestTrigger


class RescaleLiveOperator(JobStep):
    """Asks the driver for another parallelism, between two epochs, and waits until it has taken it up.

    A driver that dies meanwhile has failed the request; the next try asks its successor.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "rescale_live"
    methods = frozenset({"live"})

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Ask the driver."""
        run = catalog.rescale_run(change_id(context))
        request = self._request(catalog, run.run_id, run.to_parallelism)
        # It is taken up between two epochs, so the one that runs has to end first.
        patience = patience_ms(catalog, self.job)
        self.wait(catalog, RequestTrigger, owner=run.run_id, at_least_ms=patience, request_id=request.id)
        self.finish(catalog, context)

    def finish(self, catalog: Catalog, context: Context) -> None:
        """Say what is so now."""
        self.log.info("Job %s runs at parallelism %s", self.job, catalog.job(self.job).parallelism)

    def _request(self, catalog: Catalog, run: str, parallelism: int) -> RequestRecord:
        """Return the first request of this run that has not failed."""
        attempt = 1
        while True:
            key = f"{run}/{self.step}/{attempt}"
            request = catalog.request(self.job, "rescale", {"parallelism": parallelism}, key)
            if request.state != "failed":
                return request
            attempt += 1
