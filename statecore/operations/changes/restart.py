"""The step that starts a job again, and the search for its new driver."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from statecore.catalog import GenerationRecord, Generations, RescaleRunRecord
from statecore.operations.changes.change import out_of_order
from statecore.operations.changes.finding import Finding, Status
from statecore.operations.changes.rescale_state import RescaleState
from statecore.operations.changes.step import Step
from statecore.operations.changes.stop import StopWithSavepoint
from statecore.operations.kinds import kind_of
from statecore.operations.status.verification import RESTART_LOOP, failed_drivers

_GENERATIONS = 20


@dataclass(kw_only=True)
class Restart(Step):
    """Has the supervisor start the job from its savepoint, and waits until its driver runs.

    Attributes:
        max_parallelism: Key groups after a rewrite; None keeps their number.
        after: The new driver's generation is higher than this one.

    """

    name = "restart"
    parameters = ("max_parallelism",)
    expected = "the supervisor to launch a driver that runs"

    max_parallelism: int | None = None
    after: int = 0

    @classmethod
    def is_needed(cls, run: RescaleRunRecord) -> bool:
        """Return whether the run stops the job."""
        return run.stops_job

    def ask(self) -> None:
        """Set the desired state to running, from this run's state."""
        run, catalog = self.required_run(), self.change.catalog
        if run.savepoint is None:
            raise out_of_order(run.run_id, "savepoint", StopWithSavepoint.name)
        # An upgrade keeps the parallelism, so nothing is rescaled.
        if run.rescaled is None and run.method == "rewrite":
            raise out_of_order(run.run_id, "rescaled state", RescaleState.name)
        self.after = last_ended(catalog.generations.newest(self.change.job))
        job = catalog.jobs.get(self.change.job)
        # If the job should run, an earlier attempt has done this; its driver may have used the savepoint since.
        if job.desired_state != "running":
            fields = kind_of(job).restarting(run, self.after, self.max_parallelism)
            catalog.jobs.set_desired(job.name, state="running", parallelism=run.to_parallelism, **fields)

    def look(self) -> Finding:
        """Look for the new driver; refuse a restart loop now, because ``verify`` would refuse it later."""
        finding = find_driver(self.change.catalog.generations, self.change.job, self.after)
        if (
            finding.status is Status.FAILED
            and len(failed_drivers(self.change.catalog, self.change.job)) >= RESTART_LOOP
        ):
            return dataclasses.replace(finding, status=Status.REFUSED)
        return finding


def find_driver(generations: Generations, job: str, after: int) -> Finding:
    """Check whether a generation after ``after`` runs; a failed one ends the wait, even if it has a successor."""
    newer = [each for each in generations.of(job, limit=_GENERATIONS) if each.generation > after]
    for each in newer:
        if each.state == "failed":
            return Finding(
                Status.FAILED,
                f"found that generation {each.generation} of job {job!r} failed: {each.error or 'no reason given'}; "
                f"expected it to run; look at its log {each.log_path}",
            )
    if not newer:
        return Finding(Status.WAITING, f"no generation after {after}")
    newest, is_alive = newer[0], generations.is_alive(newer[0])
    message = f"generation {newest.generation} {newest.state}"
    if not newest.ended and not is_alive:
        message += ", no heartbeat lately"
    return Finding(Status.DONE if newest.state == "running" and is_alive else Status.WAITING, message)


def last_ended(newest: GenerationRecord | None) -> int:
    """Return the newest generation that has ended: a driver after it is the new one.

    In a first attempt that is the driver that was stopped; in a later one, the generation before the new driver's.
    """
    return 0 if newest is None else newest.generation - (0 if newest.ended else 1)
