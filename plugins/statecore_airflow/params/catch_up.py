"""Parameters of the DAG ``catch_up``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from statecore.catalog import Catalog
from statecore.operations.autoscaling.figures import figures_of
from statecore.operations.resizing import check_workers
from statecore.policy import DrainEstimate, Figures, estimate_drain, policy_settings
from statecore_airflow.params.base import DagParams


@dataclass(frozen=True, slots=True)
class JobSize:
    """Desired size of a job; the workers of its cluster are None if it has no cluster."""

    parallelism: int
    workers: int | None


class CatchUpRequest(DagParams, frozen=True, kw_only=True):
    """The parameters of the DAG.

    Attributes:
        job: Name of the job.
        parallelism: Parallelism while draining; None for the smallest that drains in time within the limits of the
            job's policy, or without a policy twice the present one.
        workers: Workers while draining; None to keep the policy's subtasks per worker, or the present ratio.
        within_minutes: Time in which to drain, if ``parallelism`` is None.
        backlog: Rows up to which the backlog counts as drained.
        lag_minutes: Event-time lag up to which it counts as drained; None to ignore lag.
        hold_seconds: Time for which backlog and lag must stay below their limits.
        timeout_minutes: Longest wait for the backlog to drain.
        method: Rescale method of both rescales.
        reason: Reason recorded with savepoint and run.

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
        """Return the size for draining.

        Raises:
            ConfigurationError: Workers are given for a job without a cluster.

        """
        job = catalog.jobs.get(self.job)
        check_workers(catalog.clusters, job, self.workers)
        policy = catalog.policies.find(self.job)
        settings = None if policy is None else policy_settings(policy.settings)
        parallelism = self.parallelism
        if parallelism is None and settings is None:
            # Nobody has said how large the job may become.
            parallelism = min(2 * job.parallelism, job.max_parallelism)
        elif parallelism is None and settings is not None:
            sizes = settings.sizes(figures.max_parallelism, by_worker=figures.workers is not None)
            parallelism = self._as_needed(figures, sizes)
        assert parallelism is not None
        if figures.workers is None:
            return JobSize(parallelism, None)
        per_worker = job.parallelism / figures.workers
        if settings is not None and settings.subtasks_per_worker > 1:
            # 1 is also the default of a policy that does not set it; then keep the present ratio.
            per_worker = settings.subtasks_per_worker
        needed = math.ceil(parallelism / per_worker)
        if figures.max_workers is not None:
            needed = min(needed, figures.max_workers)
        return JobSize(parallelism, self.workers or max(figures.workers, needed))

    def _as_needed(self, figures: Figures, sizes: list[int]) -> int:
        """Return the smallest parallelism that drains in time, or else the one that drains soonest."""
        larger = [size for size in sizes if size > figures.parallelism]
        estimates = [estimate_drain(figures, size) for size in (figures.parallelism, *larger)]
        drained = [(each.seconds, each.parallelism) for each in estimates if each.seconds is not None]
        in_time = [parallelism for seconds, parallelism in drained if seconds <= self.within_minutes * 60]
        if in_time:
            return min(in_time)
        # Without an estimate, or if no size drains the backlog, take the largest that the policy allows.
        return min(drained)[1] if drained else max([figures.parallelism, *sizes])


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What a catch-up will do.

    Attributes:
        present: The job's size now.
        after: The size to drain with.
        now: Estimate at the present size.
        then: Estimate at the size to drain with.

    """

    present: JobSize
    after: JobSize
    now: DrainEstimate
    then: DrainEstimate

    def lines(self) -> list[str]:
        """Describe both sizes."""
        return [_describe("now", self.present, self.now), _describe("to drain with", self.after, self.then)]


def drain_plan(catalog: Catalog, request: CatchUpRequest) -> DrainPlan:
    """Choose the size to drain with, and estimate how long that takes.

    Raises:
        ConfigurationError: See ``CatchUpRequest.size``.
        UnknownJobError: There is no such job.

    """
    figures = figures_of(catalog, request.job, catalog.now_ms())
    present, after = present_size(catalog, request.job), request.size(catalog, figures)
    now, then = estimate_drain(figures, present.parallelism), estimate_drain(figures, after.parallelism)
    return DrainPlan(present, after, now, then)


def _describe(title: str, size: JobSize, estimate: DrainEstimate) -> str:
    """Return an estimate in words."""
    workers = "" if size.workers is None else f", {size.workers} workers"
    return f"{title}: parallelism {size.parallelism}{workers}: {drain_words(estimate)}; {estimate.based_on}"


def drain_words(estimate: DrainEstimate) -> str:
    """Return how long a backlog takes to drain, in words."""
    if estimate.drains is None:
        return "unknown time"
    if estimate.seconds is None or estimate.at_least_s is None:
        return "never"
    most = "never" if estimate.at_most_s is None else _minutes(estimate.at_most_s)
    return f"{_minutes(estimate.seconds)} ({_minutes(estimate.at_least_s)} to {most})"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def present_size(catalog: Catalog, job: str) -> JobSize:
    """Return the present desired size of a job.

    Raises:
        UnknownJobError: There is no such job.

    """
    record = catalog.jobs.get(job)
    workers = None if record.cluster is None else catalog.clusters.get(record.cluster).desired_workers
    return JobSize(record.parallelism, workers)
