"""Resizing a job's cluster: what is refused, and when waiting for workers is pointless."""

from __future__ import annotations

from statecore.catalog import ClusterRecord, JobRecord
from statecore.errors import ClusterError, ConfigurationError

# The supervisor reports about once a second; a problem that lasts longer needs a person.
_COMPLAINTS = 5


def check_workers(job: JobRecord, workers: int | None) -> None:
    """Refuse a number of workers for a job without a cluster; None suits every job.

    Raises:
        ConfigurationError: The job names no cluster.

    """
    if workers is not None and job.cluster is None:
        raise ConfigurationError(
            f"found {workers} workers asked for job {job.name!r}, which names no cluster; expected a job with a "
            "cluster that statecore resizes; leave the workers out, or register the job with --cluster"
        )


class Resizing:
    """Checks a cluster repeatedly until it has the wanted size."""

    def __init__(self) -> None:
        self._complaints: set[int] = set()

    def is_done(self, cluster: ClusterRecord, workers: int) -> bool:
        """Tell whether the cluster has the wanted size, by the supervisor's newest report.

        Raises:
            ClusterError: The supervisor has reported problems for a while.

        """
        if cluster.message:
            self._complaints.add(cluster.updated_ms)
            if len(self._complaints) > _COMPLAINTS:
                raise ClusterError(f"cluster {cluster.name}: {cluster.message}")
        return cluster.ready_workers == workers
