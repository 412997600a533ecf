"""Parameters of the DAG ``rescale``."""

from __future__ import annotations

from statecore.catalog import Catalog, JobRecord, RescaleMethod
from statecore.errors import ConfigurationError, InvalidParallelismError, RequestFailedError
from statecore.operations.resizing import check_workers
from statecore_airflow.params.base import DagParams

_MAX_PARALLELISM_LIMIT = 32_768


class RescaleRequest(DagParams, frozen=True, kw_only=True):
    """The parameters of the DAG.

    Attributes:
        job: Name of the job.
        parallelism: New parallelism.
        workers: New number of workers; None keeps it.
        method: Rescale method.
        max_parallelism: New max parallelism of a rewrite; None keeps it.
        dry_run: Show the plan and change nothing.
        approval: Wait for a person to approve the plan.
        reason: Reason recorded with savepoint and run.

    """

    job: str
    parallelism: int
    workers: int | None = None
    method: RescaleMethod = "by_reference"
    max_parallelism: int | None = None
    dry_run: bool = False
    approval: bool = False
    reason: str = ""

    def checked(self, catalog: Catalog) -> JobRecord:
        """Validate the request and return the job; called before anything is stopped.

        Raises:
            UnknownJobError: There is no such job.
            InvalidParallelismError: A parallelism is out of bounds.
            ConfigurationError: The parameters contradict each other, or the job's desired state is stopped.
            RequestFailedError: The method is live and the job has no live driver.

        """
        job = catalog.job(self.job)
        self._check_sizes(job)
        if job.desired_state != "running":
            raise ConfigurationError(
                f"found job {job.name!r} stopped; expected a running job, because a rescale restarts it; trigger the "
                "DAG start, which takes a parallelism"
            )
        if self.method == "live" and not catalog.is_alive(catalog.newest_generation(job.name)):
            raise RequestFailedError(
                f"found no live driver of job {job.name!r}; expected one for a live rescale to parallelism "
                f"{self.parallelism}; choose the method by_reference, which needs no driver"
            )
        return job

    def _check_sizes(self, job: JobRecord) -> None:
        groups = job.max_parallelism if self.max_parallelism is None else self.max_parallelism
        if groups != job.max_parallelism and self.method != "rewrite":
            raise ConfigurationError(
                f"found max parallelism {groups} with the method {self.method} for job {job.name!r}; expected the "
                f"job's {job.max_parallelism}, because only a rewrite changes it; leave the field empty, or choose the "
                "method rewrite"
            )
        if not 1 <= groups <= _MAX_PARALLELISM_LIMIT:
            raise InvalidParallelismError(
                f"found max parallelism {groups} for job {job.name!r}; expected 1 to {_MAX_PARALLELISM_LIMIT}; choose "
                "a value in that range"
            )
        if not 1 <= self.parallelism <= groups:
            raise InvalidParallelismError(
                f"found parallelism {self.parallelism} for job {job.name!r}; expected 1 to its max parallelism "
                f"{groups}; choose a value in that range, or raise max parallelism with the method rewrite"
            )
        if self.workers is not None and self.workers < 1:
            raise ConfigurationError(
                f"found {self.workers} workers for job {job.name!r}; expected at least 1; give 1 or more"
            )
        check_workers(job, self.workers)
