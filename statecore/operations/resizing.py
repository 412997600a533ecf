"""A job's cluster when the job is rescaled: what is refused, and when it is waited for in vain."""

from __future__ import annotations

from statecore.catalog import ClusterRecord, JobRecord
from statecore.errors import ClusterError, ConfigurationError

# Reports of the supervisor, one a second or so: what cannot be done for so long is not a moment's trouble.
_COMPLAINTS = 5


def check_workers(job: JobRecord, workers: int | None) -> None:
    """Refuse a number of workers for a job without a cluster; None is for every job.

    Raises:
        ConfigurationError: It names no cluster.

    """
    if workers is not None and job.cluster is None:
        raise ConfigurationError(
            f"found {workers} workers asked for job {job.name!r}, which names no cluster; expected a job whose cluster "
            "is ours to resize; leave them out, or register the job with --cluster"
        )


class Resizing:
    """Looks at a cluster again and again, until it has its size.

    Args:
        workers: What it is to have.

    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._complaints: set[int] = set()

    def is_done(self, cluster: ClusterRecord) -> bool:
        """Tell whether the cluster has its size.

        Args:
            cluster: As the supervisor has last reported it.

        Raises:
            ClusterError: The supervisor has said for a while that it cannot get it.

        """
        if cluster.message:
            self._complaints.add(cluster.updated_ms)
            if len(self._complaints) > _COMPLAINTS:
                raise ClusterError(f"cluster {cluster.name}: {cluster.message}")
        return cluster.ready_workers == self._workers
