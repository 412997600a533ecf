"""Triggers the DAG ``rescale`` from another DAG, once, and waits for its end."""

from __future__ import annotations

from typing import Any, NoReturn

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.triggers.external_task import DagStateTrigger
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException
from airflow.utils.state import DagRunState

from statecore_airflow.links.job import LINKS, show_links
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.triggers.catalog import SETTLE_S

RESCALE_DAG = "rescale"
_ENDED = [DagRunState.SUCCESS, DagRunState.FAILED]
# The first look finds a run that has just begun, so the trigger does not fire before this interval has passed.
_POLL_S = int(SETTLE_S)


class TriggerRescaleOperator(TriggerDagRunOperator):
    """Triggers a run of the DAG ``rescale`` and waits, deferred, until it has ended.

    A retried task continues with the run that it triggered before. ``run_ids`` decides whether a new run follows one
    that has ended. Airflow's ``conf`` holds the parameters of the run.
    """

    template_fields = (*TriggerDagRunOperator.template_fields, "job")
    operator_extra_links = [*TriggerDagRunOperator.operator_extra_links, *LINKS]  # noqa: RUF012, Airflow has a list

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        kwargs.setdefault("on_failure_callback", JobNotifier(Event.FAILED, job=job))
        super().__init__(
            trigger_dag_id=RESCALE_DAG,
            # Two runs triggered at the same moment must stay two runs.
            logical_date=None,
            wait_for_completion=True,
            deferrable=True,
            poke_interval=_POLL_S,
            # A run of a paused DAG would only wait, so fail at once.
            fail_when_dag_is_paused=True,
            allowed_states=[*_ENDED],
            failed_states=[],
            **kwargs,
        )
        self.job = job

    def pre_execute(self, context: Context) -> None:
        """Show the links while the task waits for the run, not only when the run has ended."""
        show_links(self, context)

    def run_ids(self, context: Context) -> list[str]:
        """Return the ids of the runs that this task may have triggered; the last is the one to trigger now."""
        return [f"{context['run_id']}__{self.task_id}-{number}" for number in range(1, context["ti"].try_number + 1)]

    def ended(self, context: Context, run_id: str, state: str) -> None:
        """Judge a rescale that has ended, by its state in Airflow.

        Raises:
            AirflowException: The rescale failed.

        """
        if state != DagRunState.SUCCESS:
            raise AirflowException(
                f"found run {run_id!r} of the DAG {RESCALE_DAG} {state}; expected success; see its log for what failed"
            )

    def execute(self, context: Context) -> None:
        """Trigger a run, or continue with the one that an earlier attempt triggered."""
        *earlier, self.trigger_run_id = self.run_ids(context)
        for run_id in [*earlier, self.trigger_run_id]:
            state = self._state(context, run_id)
            if state is not None and state not in _ENDED:
                self._wait_for(run_id)
            if state is not None and run_id == self.trigger_run_id:
                self.ended(context, run_id, state)
                return
        super().execute(context)

    def execute_complete(self, context: Context, event: tuple[str, dict[str, Any]]) -> None:
        """Continue after the run has ended."""
        _, payload = event
        (run_id,) = payload["run_ids"]
        self.ended(context, run_id, str(payload[run_id]))

    def _state(self, context: Context, run_id: str) -> DagRunState | None:
        """Return the state of a run, or None when there is none."""
        if not context["ti"].get_dr_count(dag_id=RESCALE_DAG, run_ids=[run_id]):
            return None
        return DagRunState(context["ti"].get_dagrun_state(dag_id=RESCALE_DAG, run_id=run_id))

    def _wait_for(self, run_id: str) -> NoReturn:
        self.log.info("Run %s was triggered before; waiting for it", run_id)
        trigger = DagStateTrigger(dag_id=RESCALE_DAG, states=_ENDED, run_ids=[run_id], poll_interval=_POLL_S)
        self.defer(trigger=trigger, method_name="execute_complete")
