"""Resizing a job's cluster: what is refused, and when waiting for workers is pointless."""

from __future__ import annotations

from statecore.catalog import ClusterRecord, JobRecord
from statecore.errors import ClusterError, ConfigurationError

# The supervisor reports about once a second; trouble that lasts longer does not pass by itself.
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
    """Looks at a cluster again and again until it has the wanted size."""

    def __init__(self) -> None:
        self._complaints: set[int] = set()

    def is_done(self, cluster: ClusterRecord, workers: int) -> bool:
        """Tell whether the cluster, as the supervisor reported it last, has the wanted size.

        Raises:
            ClusterError: The supervisor has complained for a while that it cannot get there.

        """
        if cluster.message:
            self._complaints.add(cluster.updated_ms)
            if len(self._complaints) > _COMPLAINTS:
                raise ClusterError(f"cluster {cluster.name}: {cluster.message}")
        return cluster.ready_workers == workers
