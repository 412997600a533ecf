"""What a run of the DAG ``catch_up`` was asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from statecore.catalog import Catalog
from statecore.errors import ConfigurationError
from statecore.operations.resizing import check_workers
from statecore.policy import Figures, estimate_drain, policy_settings
from statecore_airflow.params.base import DagParams


@dataclass(frozen=True, slots=True)
class JobSize:
    """How large a job is.

    Attributes:
        parallelism: Its subtasks.
        workers: Size wanted of its cluster; None for a job without one.

    """

    parallelism: int
    workers: int | None


class CatchUpRequest(DagParams, frozen=True, kw_only=True):
    """The parameters of the DAG.

    Attributes:
        job: Name of the job.
        parallelism: Subtasks to drain with; None for as many as drain in time.
        workers: Workers to drain with; None for as many subtasks on each as the policy says, or as there are now.
        within_minutes: In how long to drain, when no parallelism is given.
        backlog: Rows that may wait when it is drained.
        lag_minutes: Event-time lag that it may have then; None where lag says nothing.
        hold_seconds: How long both have to stay under their limits.
        timeout_minutes: How long to wait for that.
        method: How the rescales are done.
        reason: Why.

    """

    job: str
    parallelism: int | None = None
    workers: int | None = None
    within_minutes: float = 15
    backlog: int = 10_000
    lag_minutes: float | None = None
    hold_seconds: float = 60
    timeout_minutes: float = 240
    method: Literal["auto", "by_reference", "live"] = "auto"
    reason: str = ""

    def size(self, catalog: Catalog, figures: Figures) -> JobSize:
        """Return the size to drain with.

        Raises:
            ConfigurationError: No size was asked for, and the job has no policy that would limit one; or workers were,
                and it has no cluster.

        """
        check_workers(catalog.job(self.job), self.workers)
        per_worker = figures.parallelism / figures.workers if figures.workers else 1.0
        parallelism = self.parallelism
        if parallelism is None:
            policy = catalog.policy(self.job)
            if policy is None:
                raise ConfigurationError(
                    f"found neither a parallelism to drain job {self.job!r} with nor a policy of it; expected one or "
                    "the other, because as many as needed may be very many; give a parallelism, or set limits with "
                    f"`python -m statecore policy set {self.job} --off --max-parallelism …`"
                )
            settings = policy_settings(policy.settings)
            if settings.subtasks_per_worker > 1:
                # One is also what a policy has where nobody said how many; then they lie as they do now.
                per_worker = settings.subtasks_per_worker
            sizes = settings.sizes(figures.max_parallelism, by_worker=figures.workers is not None)
            parallelism = self._as_needed(figures, sizes)
        if figures.workers is None:
            return JobSize(parallelism, None)
        return JobSize(parallelism, self.workers or max(figures.workers, math.ceil(parallelism / per_worker)))

    def _as_needed(self, figures: Figures, sizes: list[int]) -> int:
        """Return the smallest size that drains in time, or the one that drains first."""
        larger = [size for size in sizes if size > figures.parallelism]
        estimates = [estimate_drain(figures, size) for size in (figures.parallelism, *larger)]
        drained = [(each.seconds, each.parallelism) for each in estimates if each.seconds is not None]
        in_time = [parallelism for seconds, parallelism in drained if seconds <= self.within_minutes * 60]
        if in_time:
            return min(in_time)
        # A job with nothing to estimate from, or that no size drains, is best off with all that its policy allows.
        return min(drained)[1] if drained else max([figures.parallelism, *sizes])


def present_size(catalog: Catalog, job: str) -> JobSize:
    """Return the size that is wanted of a job now.

    Raises:
        UnknownJobError: There is no such job.

    """
    found = catalog.job(job)
    workers = None if found.cluster is None else catalog.cluster(found.cluster).desired_workers
    return JobSize(found.parallelism, workers)
