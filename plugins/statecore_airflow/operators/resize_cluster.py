"""The steps that resize a job's cluster: it grows before the job does, and shrinks after it."""

from __future__ import annotations

from airflow.sdk import Context

from statecore.catalog import Catalog, RescaleRunRecord
from statecore.errors import ConfigurationError
from statecore_airflow.operators.step import JobStep, change_id, find_run, out_of_order
from statecore_airflow.triggers.catalog import WorkersReadyTrigger


class _ResizeOperator(JobStep):
    """Sets the size of the job's cluster and waits until so many workers are ready.

    Args:
        **kwargs: See ``JobStep``.

    """

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Record the size wanted; the supervisor sees to it."""
        name, workers = self._wanted(catalog, context)
        cluster = catalog.set_desired_workers(name, workers)
        if cluster.ready_workers != workers:
            self.wait(catalog, WorkersReadyTrigger, owner=change_id(context), cluster=name, workers=workers)
        self.finish(catalog, context)

    def finish(self, catalog: Catalog, context: Context) -> None:
        """Say that the cluster is ready."""
        self.log.info("Cluster %s: %s workers are ready", *self._wanted(catalog, context))

    def _wanted(self, catalog: Catalog, context: Context) -> tuple[str, int]:
        run = change_id(context)
        record = find_run(catalog, run)
        if record is None or record.to_workers is None:
            raise out_of_order(run, "number of workers", "lease")
        cluster = catalog.job(self.job).cluster
        if cluster is None:
            raise ConfigurationError(
                f"found no cluster of job {self.job!r}; expected the one it had when run {run!r} began; register the "
                "job with it again"
            )
        return cluster, record.to_workers


class GrowClusterOperator(_ResizeOperator):
    """Adds workers before the job needs them; skipped when no more are wanted.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "resize_cluster"

    def is_needed(self, run: RescaleRunRecord) -> bool:
        """Tell whether the run asks for more workers."""
        return run.to_workers is not None and run.to_workers > (run.from_workers or 0)


class ShrinkClusterOperator(_ResizeOperator):
    """Removes workers once the job needs them no more; skipped when no fewer are wanted.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "shrink_cluster"

    def is_needed(self, run: RescaleRunRecord) -> bool:
        """Tell whether the run asks for fewer workers."""
        return run.to_workers is not None and run.to_workers < (run.from_workers or 0)
