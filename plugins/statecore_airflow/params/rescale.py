"""What a run of the DAG ``rescale`` was asked for."""

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
        parallelism: Subtasks to be.
        workers: Workers to be; None leaves the cluster as it is.
        method: How the state gets to its new subtasks.
        max_parallelism: Key groups to be, of a rewrite; None keeps their number.
        dry_run: Whether to show the plan and change nothing.
        approval: Whether somebody has to approve the plan first.
        reason: Why.

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
        """Return the job, if it can be rescaled like this; called before anything is stopped.

        Raises:
            UnknownJobError: There is no such job.
            InvalidParallelismError: A parallelism is out of bounds.
            ConfigurationError: What is asked for does not fit together, or the job is to be stopped.
            RequestFailedError: A live rescale needs a live driver, and there is none.

        """
        job = catalog.job(self.job)
        self._check_sizes(job)
        if job.desired_state != "running":
            raise ConfigurationError(
                f"found job {job.name!r} stopped; expected it to run, because a rescale starts it again; trigger the "
                "DAG start, which takes a parallelism"
            )
        if self.method == "live" and not catalog.is_alive(catalog.newest_generation(job.name)):
            raise RequestFailedError(
                f"found no live driver of job {job.name!r}; expected one to take up parallelism {self.parallelism}; "
                "choose the method by_reference, which needs none"
            )
        return job

    def _check_sizes(self, job: JobRecord) -> None:
        groups = job.max_parallelism if self.max_parallelism is None else self.max_parallelism
        if groups != job.max_parallelism and self.method != "rewrite":
            raise ConfigurationError(
                f"found max parallelism {groups} with the method {self.method} for job {job.name!r}; expected its "
                f"{job.max_parallelism}, which a rewrite alone can change; leave it empty, or choose the method rewrite"
            )
        if not 1 <= groups <= _MAX_PARALLELISM_LIMIT:
            raise InvalidParallelismError(
                f"found max parallelism {groups} for job {job.name!r}; expected 1 to {_MAX_PARALLELISM_LIMIT}; choose "
                "one in between"
            )
        if not 1 <= self.parallelism <= groups:
            raise InvalidParallelismError(
                f"found parallelism {self.parallelism} for job {job.name!r}; expected 1 to its max parallelism "
                f"{groups}; choose one in between, or lay the state out anew with the method rewrite"
            )
        if self.workers is not None and self.workers < 1:
            raise ConfigurationError(
                f"found {self.workers} workers for job {job.name!r}; expected at least 1; without any nothing runs"
            )
        check_workers(job, self.workers)
