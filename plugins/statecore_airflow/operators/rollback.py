"""What follows every change of a job: nothing when it went well, and the way back when it did not."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from statecore.catalog import Catalog, JobBefore, RescaleRunRecord
from statecore.errors import StatecoreError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore_airflow.faults import Place, fault_point
from statecore_airflow.hooks.settings import lease_ttl_ms
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.operators.base import CatalogOperator
from statecore_airflow.operators.restart import last_ended
from statecore_airflow.operators.step import change_id, find_run
from statecore_airflow.triggers.catalog import RunningTrigger


class RollbackOperator(CatalogOperator):
    """Brings the job back to what it was when its lease was taken, from its newest epoch; a teardown of that step.

    Airflow runs it whatever became of the steps in between, also when a person marks the run failed. The last step
    gives the lease back, so a run that still has it did not get there. The result is what failed and what was done
    about it; it is kept with the rescale run, too.

    Args:
        **kwargs: See ``CatalogOperator``.

    """

    step = "rollback"
    ui_color = "#fce8e6"

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        kwargs.setdefault("on_success_callback", JobNotifier(Event.ROLLED_BACK, job=job))
        super().__init__(job=job, **kwargs)

    def execute(self, context: Context) -> str | None:
        """Put the job back, and wait until its driver runs."""
        run = change_id(context)
        with self.catalog() as catalog:
            record = find_run(catalog, run)
            if record is not None and record.state == "done":
                # Its last step was killed just before it gave the lease back; the job is what it was to become.
                catalog.release_lease(self.job, run)
            if not self._has_lease(catalog, run):
                return self._nothing_to_do(record)
            fault_point(self.step, Place.BEGUN)
            what = _what_failed(record)
            self.log.warning("%s; rolling back", what)
            lease = catalog.roll_back(self.job, run, lease_ttl_ms(), f"{what}; rolled back")
            if lease.before is not None and lease.before.desired_state == "running":
                self._wait_until_running(catalog, run, what)
            return self._end(catalog, run, what)

    def execute_complete(self, context: Context, event: dict[str, str]) -> str | None:
        """Go on after the trigger has fired."""
        run = change_id(context)
        with self.catalog() as catalog:
            if not self._has_lease(catalog, run):
                return self._nothing_to_do(find_run(catalog, run))
            what = _what_failed(find_run(catalog, run))
            try:
                self.judge(event["status"], event["message"])
            except AirflowFailException as error:
                self._give_up(catalog, run, what, error)
            return self._end(catalog, run, what)

    def _has_lease(self, catalog: Catalog, run: str) -> bool:
        lease = catalog.lease(self.job)
        return lease is not None and lease.owner == run

    def _wait_until_running(self, catalog: Catalog, run: str, what: str) -> None:
        after = last_ended(catalog.newest_generation(self.job))
        try:
            self.wait(catalog, RunningTrigger, owner=run, after=after)
        except AirflowFailException as error:
            self._give_up(catalog, run, what, error)

    def _nothing_to_do(self, record: RescaleRunRecord | None) -> str | None:
        if record is None or record.state == "done":
            self.log.info("The run has no lease any more; nothing to roll back")
            return None
        self.log.warning("Nothing left to roll back: %s", record.error)
        return record.error

    def _end(self, catalog: Catalog, run: str, what: str) -> str:
        lease = catalog.lease(self.job)
        before = None if lease is None else lease.before
        said = f"{what}; {self._now(catalog, before)}"
        self._finish(catalog, run, said)
        self.log.error("%s", said)
        return said

    def _give_up(self, catalog: Catalog, run: str, what: str, error: AirflowFailException) -> None:
        """Leave the job to the supervisor, which goes on trying, and to whoever reads this."""
        said = f"{what}; rolled back, but no driver runs yet: {error}; the supervisor goes on trying"
        self._finish(catalog, run, said)
        raise AirflowFailException(said) from error

    def _finish(self, catalog: Catalog, run: str, said: str) -> None:
        if find_run(catalog, run) is not None:
            catalog.finish_rescale_run(run, error=said)
        catalog.release_lease(self.job, run)

    def _now(self, catalog: Catalog, before: JobBefore | None) -> str:
        job = catalog.job(self.job)
        if before is not None and before.desired_state == "stopped":
            return f"job {job.name!r} was rolled back: it is stopped, as before"
        try:
            newest = CheckpointStore.at(job.store).newest()
            epoch = "no epoch" if newest is None else f"epoch {newest.epoch} of lineage {newest.lineage}"
        except StatecoreError as error:
            # The job is back; a store that is away must not keep the run from its end.
            epoch = f"its newest epoch, which cannot be named now: {error}"
        workers = "" if before is None or before.workers is None else f" and {before.workers} workers"
        return f"job {job.name!r} was rolled back to parallelism {job.parallelism}{workers}, and goes on from {epoch}"


def _what_failed(record: RescaleRunRecord | None) -> str:
    """Return the last thing that went wrong in a run."""
    if record is None or not record.error:
        return "the run was ended before its last step"
    return record.error
