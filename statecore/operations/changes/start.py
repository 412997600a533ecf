"""The step that starts a stopped job."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.errors import ConfigurationError
from statecore.model.key_groups import check_parallelism
from statecore.operations.changes.finding import Finding
from statecore.operations.changes.restart import find_driver, last_ended
from statecore.operations.changes.step import Step
from statecore.operations.kinds import kind_of, rescaled_running
from statecore.operations.resizing import check_workers


@dataclass(kw_only=True)
class StartJob(Step):
    """Has the supervisor run a job from its newest epoch, and waits until its driver runs.

    A running job keeps its parallelism; ``rescale`` changes it. A failed start is not undone: the supervisor keeps
    trying, as after a crash.

    Attributes:
        parallelism: Subtasks; None as before.
        workers: Workers; None leaves the cluster as it is.
        accept_lost_records: Whether its driver may skip records that topics no longer have.
        after: The new driver's generation is higher than this one.

    """

    name = "start"
    parameters = ("parallelism", "workers", "accept_lost_records")
    holds_lease = False
    expected = "the supervisor to launch a driver that runs"

    parallelism: int | None = None
    workers: int | None = None
    accept_lost_records: bool = False
    after: int = 0

    def begin(self) -> None:
        """Begin: ``ask`` takes the lease and gives it back."""

    def ask(self) -> None:
        """Set the desired state to running, at the requested size.

        Raises:
            ConfigurationError: The job runs at another parallelism, or cannot have this size.
            LeaseHeldError: Another run changes the job.

        """
        change = self.change
        self.after = last_ended(change.catalog.generations.newest(change.job))
        try:
            change.catalog.leases.acquire(change.job, change.run_id, change.lease_ttl_ms)
            self._record()
        finally:
            # Release the lease of a killed attempt, too: its expiry would stop the job again.
            change.catalog.leases.release(change.job, change.run_id)

    def look(self) -> Finding:
        """Look for the driver."""
        return find_driver(self.change.catalog.generations, self.change.job, self.after)

    def end(self) -> None:
        """End; there is no run to record it in."""

    def check(self) -> None:
        """Refuse a size that the job cannot have.

        Raises:
            ConfigurationError: The job runs at another parallelism, or cannot have this size.

        """
        job = self.change.catalog.jobs.get(self.change.job)
        if job.desired_state == "running" and self.parallelism not in (None, job.parallelism):
            raise ConfigurationError(
                f"found job {job.name!r} running at parallelism {job.parallelism}; expected it stopped, because "
                f"parallelism {self.parallelism} would change it; use `rescale`, or stop the job first"
            )
        if self.parallelism not in (None, job.parallelism):
            kind_of(job).require_statecore_job(
                f"parallelism {self.parallelism}", rescaled_running(job, self.parallelism)
            )
        if self.parallelism is not None:
            check_parallelism(self.parallelism, job.max_parallelism, f" of job {job.name!r}")
        check_workers(self.change.catalog.clusters, job, self.workers)

    def _record(self) -> None:
        self.check()
        job = self.change.catalog.jobs.get(self.change.job)
        if job.cluster is not None and self.workers is not None:
            self.change.catalog.clusters.set_desired_workers(job.cluster, self.workers)
        if self.accept_lost_records:
            remedy = "set the option failOnDataLoss of its source to false until it runs"
            kind_of(job).require_statecore_job("accept_lost_records", remedy)
        newest = self.change.catalog.generations.newest(job.name)
        # A running driver needs no permission.
        if newest is None or newest.state != "running" or not self.change.catalog.generations.is_alive(newest):
            self.change.catalog.jobs.set_desired(job.name, accept_lost_records=self.accept_lost_records)
        if job.desired_state == "stopped":
            # The permission to drop state was for an earlier start.
            self.change.catalog.jobs.set_desired(
                job.name, state="running", parallelism=self.parallelism, allow_non_restored_state=False
            )
