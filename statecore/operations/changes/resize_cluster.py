"""The steps that resize a job's cluster: it grows before the job stops, and shrinks once the job is verified."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from statecore.catalog import ClusterRecord, RescaleRunRecord
from statecore.errors import ClusterError, ConfigurationError
from statecore.operations.changes.change import out_of_order
from statecore.operations.changes.finding import Finding, Status
from statecore.operations.changes.step import Step
from statecore.operations.resizing import Resizing

RESIZE_TIMEOUT = timedelta(minutes=15)
"""Longer than instances take to start plus the cluster's ``ready_timeout_s``, because the cluster's error says more."""


@dataclass(kw_only=True)
class ResizeCluster(Step):
    """Requests added workers that are missing, or were lost since ``GrowCluster``, and waits for them.

    A live rescale stops nothing, so it needs no step before this one.
    """

    name = "resize_cluster"
    timeout = RESIZE_TIMEOUT
    expected = "all workers ready"

    def __post_init__(self) -> None:
        """Start to count the supervisor's messages; each process counts itself."""
        self._resizing = Resizing()

    def ask(self) -> None:
        """Record the desired size; the supervisor resizes the cluster."""
        self.change.catalog.clusters.set_desired_workers(*self._wanted())

    def look(self) -> Finding:
        """Look at the size that the supervisor reported last."""
        name, workers = self._wanted()
        cluster = self.change.catalog.clusters.get(name)
        try:
            is_done = self._resizing.is_done(cluster, workers)
        except ClusterError as error:
            return Finding(Status.REFUSED, str(error))
        return Finding(Status.DONE if is_done else Status.WAITING, _described(cluster, workers))

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Return whether the run adds workers."""
        return run.to_workers is not None and run.to_workers > (run.from_workers or 0)

    def _wanted(self) -> tuple[str, int]:
        run = self.required_run()
        if run.to_workers is None:
            raise out_of_order(run.run_id, "number of workers", "lease")
        cluster = self.change.catalog.jobs.get(self.change.job).cluster
        if cluster is None:
            raise ConfigurationError(
                f"found no cluster of job {self.change.job!r}; expected the one it had when run {run.run_id!r} began; "
                "register the job with it again"
            )
        return cluster, run.to_workers


@dataclass(kw_only=True)
class GrowCluster(ResizeCluster):
    """Adds workers while the job still runs: the job stops only after its cluster is ready."""

    name = "grow_cluster"

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Return whether the run stops the job and needs at least all present workers."""
        return run.stops_job and run.to_workers is not None and run.to_workers >= (run.from_workers or 0)


@dataclass(kw_only=True)
class ShrinkCluster(Step):
    """Waits until the verified job's surplus workers are gone.

    ``Verify`` has ended the run, which releases them, so a failure here does not roll back a healthy job.
    """

    name = "shrink_cluster"
    timeout = RESIZE_TIMEOUT
    holds_lease = False
    expected = "the surplus workers to be gone"

    def enter(self, run: RescaleRunRecord | None) -> None:
        """Begin once the run is done; the lease is given back."""
        if run is None or run.state != "done":
            raise out_of_order(self.change.run_id, "end", "verify")
        self.change.mark(self.name, started=True)

    def look(self) -> Finding:
        """Look at the size that the supervisor reported last."""
        workers = self.required_run().to_workers
        name = self.change.catalog.jobs.get(self.change.job).cluster
        if name is None or workers is None:
            return super().look()
        cluster = self.change.catalog.clusters.get(name)
        if cluster.desired_workers > workers:
            return Finding(Status.DONE, f"cluster {name!r} has been resized to {cluster.desired_workers} workers since")
        is_done = cluster.ready_workers <= workers
        return Finding(Status.DONE if is_done else Status.WAITING, _described(cluster, workers))

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Return whether the run removes workers."""
        return run.removes_workers


def _described(cluster: ClusterRecord, workers: int) -> str:
    said = f" ({cluster.message})" if cluster.message else ""
    return f"cluster {cluster.name!r} with {cluster.ready_workers} of {workers} workers ready{said}"
