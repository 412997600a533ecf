"""The two tasks that end a change: ``rollback`` restores the job; ``done`` decides whether the run succeeds."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, Context, TriggerRule
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.state import TaskInstanceState

from statecore.catalog import Catalog
from statecore.operations.changes import Rollback
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.operators.change_id import change_id, is_same_run
from statecore_airflow.operators.step import StepOperator

DONE = "done"
"""Id of the task that decides whether a run with a rollback succeeds."""


def rollback_or_done(lease: StepOperator) -> list[BaseOperator]:
    """Return the tasks after a change's steps: ``rollback`` always runs; ``done`` decides whether the run succeeds."""
    rollback = RollbackOperator(job=lease.job).as_teardown(setups=lease, on_failure_fail_dagrun=True)
    return [rollback, EmptyOperator(task_id=DONE, trigger_rule=TriggerRule.NONE_FAILED)]


class RollbackOperator(StepOperator):
    """Restores the job as it was when its lease was taken, from its newest epoch; a teardown of the lease.

    Airflow runs it whether or not the steps in between succeed, and also when a person marks the run failed or
    successful. Returns what failed and what was done about it.

    If the job was rolled back although the task ``done`` has not failed, this task fails, so that the run does not look
    successful.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        kwargs.setdefault("on_success_callback", JobNotifier(Event.ROLLED_BACK, job=job))
        super().__init__(step=Rollback, job=job, **kwargs)

    def change_id(self, catalog: Catalog, context: Context) -> str:
        """Return the id under which the run holds the lease: a step may have been cleared since it was taken."""
        current, lease = change_id(context), catalog.leases.find(self.job)
        return lease.owner if lease is not None and is_same_run(lease.owner, current) else current

    def execute(self, context: Context) -> str | None:
        """Roll back, if the run still has its lease."""
        return self._told(context, super().execute(context))

    def execute_complete(self, context: Context, event: dict[str, str]) -> str | None:
        """Continue after the trigger has fired."""
        return self._told(context, super().execute_complete(context, event))

    def _told(self, context: Context, said: str | None) -> str | None:
        ti, run = context.get("ti"), context["run_id"]
        if said is None or ti is None:
            return said
        states = ti.get_task_states(dag_id=self.dag_id, task_ids=[DONE], run_ids=[run])
        if states.get(run, {}).get(DONE) in (TaskInstanceState.FAILED, TaskInstanceState.UPSTREAM_FAILED):
            return said
        raise AirflowFailException(
            f"found the job rolled back although no step failed: {said}; expected nobody to mark the run or a step by "
            "hand; trigger a new run"
        )
