"""The steps that resize a job's cluster: it grows before the job does, and shrinks after it."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.catalog import RescaleRunRecord
from statecore.errors import ClusterError, ConfigurationError
from statecore.operations.rescaling.change import out_of_order
from statecore.operations.rescaling.finding import Finding, Status
from statecore.operations.rescaling.step import Step
from statecore.operations.resizing import Resizing


@dataclass(kw_only=True)
class GrowCluster(Step):
    """Adds workers before the job needs them, and waits until they are ready."""

    name = "resize_cluster"
    expected = "all workers ready"

    def __post_init__(self) -> None:
        """Each process counts the supervisor's messages itself."""
        self._resizing = Resizing()

    def ask(self) -> None:
        """Record the wanted size; the supervisor resizes the cluster."""
        self.change.catalog.set_desired_workers(*self._wanted())

    def look(self) -> Finding:
        """Look at the size that the supervisor reported last."""
        name, workers = self._wanted()
        cluster = self.change.catalog.cluster(name)
        try:
            is_done = self._resizing.is_done(cluster, workers)
        except ClusterError as error:
            return Finding(Status.REFUSED, str(error))
        said = f" ({cluster.message})" if cluster.message else ""
        message = f"cluster {name!r} with {cluster.ready_workers} of {workers} workers ready{said}"
        return Finding(Status.DONE if is_done else Status.WAITING, message)

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Tell whether the run asks for more workers."""
        return run.to_workers is not None and run.to_workers > (run.from_workers or 0)

    def _wanted(self) -> tuple[str, int]:
        run = self.required_run()
        if run.to_workers is None:
            raise out_of_order(run.run_id, "number of workers", "lease")
        cluster = self.change.catalog.job(self.change.job).cluster
        if cluster is None:
            raise ConfigurationError(
                f"found no cluster of job {self.change.job!r}; expected the one it had when run {run.run_id!r} began; "
                "register the job with it again"
            )
        return cluster, run.to_workers


@dataclass(kw_only=True)
class ShrinkCluster(GrowCluster):
    """Removes workers that the job no longer needs, and waits until they are gone."""

    name = "shrink_cluster"

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Tell whether the run asks for fewer workers."""
        return run.to_workers is not None and run.to_workers < (run.from_workers or 0)
