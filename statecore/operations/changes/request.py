"""The request for a rescale."""

from __future__ import annotations

from typing import Literal

import msgspec

from statecore.catalog import Catalog, JobRecord, RescaleMethod
from statecore.errors import ConfigurationError, RequestFailedError
from statecore.model.key_groups import check_max_parallelism, check_parallelism
from statecore.operations.kinds import kind_of
from statecore.operations.resizing import check_workers
from statecore.operations.supervision import require_supervisor

WantedMethod = Literal["auto", "by_reference", "live", "rewrite"]
"""A rescale method, or ``auto``: ``live`` if a driver runs and max parallelism stays, else ``by_reference``."""


class RescaleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A requested rescale.

    Attributes:
        job: Name of the job.
        parallelism: Subtasks after the rescale.
        workers: Workers after the rescale; None leaves the cluster as it is.
        method: How state gets to its new subtasks.
        max_parallelism: Key groups after a rewrite; None keeps their number.
        reason: Why, for the history.

    """

    job: str
    parallelism: int
    workers: int | None = None
    method: WantedMethod = "auto"
    max_parallelism: int | None = None
    reason: str = ""

    def resolved(self, catalog: Catalog) -> RescaleMethod:
        """Return the rescale method; ``auto`` depends on whether a driver runs now."""
        if self.method != "auto":
            return self.method
        methods = kind_of(catalog.jobs.get(self.job)).methods
        if len(methods) == 1:
            return methods[0]
        stays = self.max_parallelism in (None, catalog.jobs.get(self.job).max_parallelism)
        return "live" if stays and self._driver_runs(catalog) else "by_reference"

    def checked(self, catalog: Catalog) -> JobRecord:
        """Return the job if this rescale is possible; call it before anything is stopped.

        Raises:
            UnknownJobError: There is no such job.
            InvalidParallelismError: A parallelism is out of bounds.
            CheckpointError: The checkpoint of a query of Spark's own cannot be rescaled.
            ConfigurationError: The parameters do not fit together, the job is stopped, or cannot be rescaled this way.
            RequestFailedError: A live rescale needs a live driver, and there is none.
            NoSupervisorError: The job would stop, or its cluster would not be resized.

        """
        job = catalog.jobs.get(self.job)
        kind = kind_of(job)
        kind.require_rescalable(self.parallelism, self.method, self.max_parallelism)
        self._check_sizes(job)
        check_workers(catalog.clusters, job, self.workers)
        if job.desired_state != "running":
            raise ConfigurationError(
                f"found job {job.name!r} stopped; expected it to run, because a rescale starts it again; start it "
                f"{kind.start_first(self.parallelism)}"
            )
        if self.method == "live" and not catalog.generations.is_alive(catalog.generations.newest(self.job)):
            raise RequestFailedError(
                f"found no live driver of job {job.name!r}; expected one to adopt parallelism {self.parallelism}; "
                "choose the method by_reference, which needs none"
            )
        if self.resolved(catalog) != "live" or self.workers is not None:
            require_supervisor(catalog, job.name)
        return job

    def _driver_runs(self, catalog: Catalog) -> bool:
        generations = catalog.generations.of(self.job, limit=2)
        if not generations or not catalog.generations.is_alive(generations[0]):
            return False
        # A driver that is launching will run, unless it is the next one in a crash loop.
        return generations[0].state == "running" or generations[-1].state != "failed"

    def _check_sizes(self, job: JobRecord) -> None:
        groups = job.max_parallelism if self.max_parallelism is None else self.max_parallelism
        if groups != job.max_parallelism and self.method != "rewrite":
            raise ConfigurationError(
                f"found max parallelism {groups} with the method {self.method} for job {job.name!r}; expected its "
                f"{job.max_parallelism}, because only a rewrite changes it; leave it out, or choose the method rewrite"
            )
        check_max_parallelism(groups, f" of job {job.name!r}")
        check_parallelism(self.parallelism, groups, f" of job {job.name!r}")
        if self.workers is not None and self.workers < 1:
            raise ConfigurationError(
                f"found {self.workers} workers for job {job.name!r}; expected at least 1; pass --workers 1 or more"
            )
