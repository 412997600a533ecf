"""Checks resizes of a job's cluster: refuse a size, and stop waiting for workers that will not come."""

from __future__ import annotations

from statecore.catalog import ClusterRecord, Clusters, JobRecord
from statecore.errors import ClusterError, ConfigurationError

# The supervisor reports about once a second; a problem that lasts longer needs a person.
_COMPLAINTS = 5


def check_workers(clusters: Clusters, job: JobRecord, workers: int | None) -> None:
    """Refuse a number of workers beyond the limits of the job's cluster; None is always accepted.

    The supervisor reports the cluster's limits. While they are unknown, the cluster itself refuses the size, also
    before the job is stopped.

    Raises:
        ConfigurationError: The job names no cluster, or the number is beyond the cluster's limits.

    """
    if workers is None:
        return
    if job.cluster is None:
        raise ConfigurationError(
            f"found {workers} workers asked for job {job.name!r}, which names no cluster; expected a job with a "
            "cluster that statecore resizes; leave the workers out, or register the job with --cluster"
        )
    cluster = clusters.get(job.cluster)
    least, most = cluster.min_workers or 0, cluster.max_workers
    if workers < least or (most is not None and workers > most):
        raise ConfigurationError(
            f"found {workers} workers asked for job {job.name!r}; expected {least} to {most}, the limits of cluster "
            f"{cluster.name!r}; choose another number, or change the limits where the cluster is defined"
        )


class Resizing:
    """Checks a cluster repeatedly until it has the workers that a job needs."""

    def __init__(self) -> None:
        self._complaints: set[int] = set()

    def is_done(self, cluster: ClusterRecord, workers: int) -> bool:
        """Return whether the cluster has at least these workers, by the supervisor's newest report.

        Raises:
            ClusterError: The supervisor has reported problems for a while.

        """
        if cluster.message:
            self._complaints.add(cluster.updated_ms)
            if len(self._complaints) > _COMPLAINTS:
                raise ClusterError(f"cluster {cluster.name}: {cluster.message}")
        return cluster.ready_workers >= workers
