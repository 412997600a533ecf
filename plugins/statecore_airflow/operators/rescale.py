"""The other steps of a rescale, an upgrade, a stop and a start; ``statecore.operations.changes`` implements them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.state import TaskInstanceState

from statecore.operations.changes import (
    GrowCluster,
    ReplaceArtifact,
    RescaleState,
    ResizeCluster,
    Restart,
    Rollback,
    ShrinkCluster,
    StartJob,
    StopWithSavepoint,
    Verify,
)
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.operators.step import StepOperator

DONE = "done"
"""Id of the task by which a run with a rollback succeeds."""


class StopWithSavepointOperator(StepOperator):
    """Stops the job with a savepoint; returns the path of its manifest in the job's store.

    Args:
        reason: Reason, kept with the savepoint.
        for_good: Whether the job stays stopped; this is then the last step, and gives the lease back.
        **kwargs: See ``StepOperator``.

    """

    kind = StopWithSavepoint
    template_fields = ("job", "reason")

    def __init__(self, *, reason: str = "", for_good: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason
        self.for_good = for_good

    def fields(self, context: Context) -> dict[str, Any]:
        """Return the reason, and whether the job stays stopped."""
        return {"reason": self.reason, "for_good": self.for_good}


class GrowClusterOperator(StepOperator):
    """Adds workers before the job stops, and waits for them; skipped if the job keeps running, or needs fewer."""

    kind = GrowCluster


class ResizeClusterOperator(StepOperator):
    """Waits for added workers that are missing; skipped if the run adds none."""

    kind = ResizeCluster


class RescaleStateOperator(StepOperator):
    """Hands state over to its new subtasks by the run's method; returns the new manifest's path in the job's store."""

    kind = RescaleState

    def __init__(self, *, rewrite_timeout: timedelta = timedelta(hours=2), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rewrite_timeout = rewrite_timeout

    def fields(self, context: Context) -> dict[str, Any]:
        """Return what a rewrite needs."""
        groups = context["params"].get("max_parallelism")
        return {"max_parallelism": groups, "rewrite_timeout_s": self.rewrite_timeout.total_seconds()}


class RestartOperator(StepOperator):
    """Has the supervisor start the job from its savepoint, and waits until its driver runs."""

    kind = Restart

    def fields(self, context: Context) -> dict[str, Any]:
        """Return the new max parallelism, if it changes."""
        return {"max_parallelism": context["params"].get("max_parallelism")}


class ShrinkClusterOperator(StepOperator):
    """Waits until the workers are gone that the job no longer needs; skipped if the run removes none."""

    kind = ShrinkCluster


class VerifyOperator(StepOperator):
    """Waits until the job is healthy, then gives surplus workers and the lease back and ends the run."""

    kind = Verify


class ReplaceArtifactOperator(StepOperator):
    """Records the new job file, with which the stopped job resumes from its savepoint."""

    kind = ReplaceArtifact

    def fields(self, context: Context) -> dict[str, Any]:
        """Return the new job file."""
        return {"artifact": str(context["params"]["artifact"])}


class StartOperator(StepOperator):
    """Has the supervisor run the job from its newest epoch, and waits until its driver runs."""

    kind = StartJob

    def fields(self, context: Context) -> dict[str, Any]:
        """Return the sizes to start with, and what may be lost."""
        return {name: context["params"][name] for name in ("parallelism", "workers", "accept_lost_records")}


class RollbackOperator(StepOperator):
    """Restores the job as it was when its lease was taken, from its newest epoch; a teardown of the lease.

    Airflow runs it whether or not the steps in between succeed, and also when a person marks the run failed or
    successful. Returns what failed and what was done about it.

    Wire it with ``on_failure_fail_dagrun``, and beside it the task ``done``, by which the run succeeds. If that task
    has not failed although the job was rolled back, this one fails, so that no such run looks successful.
    """

    kind = Rollback
    ui_color = "#fce8e6"

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        kwargs.setdefault("on_success_callback", JobNotifier(Event.ROLLED_BACK, job=job))
        super().__init__(job=job, **kwargs)

    def execute(self, context: Context) -> str | None:
        """Roll back, if the run still has its lease."""
        return self._told(context, super().execute(context))

    def execute_complete(self, context: Context, event: dict[str, str]) -> str | None:
        """Continue after the restored driver was found."""
        return self._told(context, super().execute_complete(context, event))

    def _told(self, context: Context, said: str | None) -> str | None:
        ti, run = context.get("ti"), context["run_id"]
        if said is None or ti is None:
            return said
        states = ti.get_task_states(dag_id=self.dag_id, task_ids=[DONE], run_ids=[run])
        if states.get(run, {}).get(DONE) in (TaskInstanceState.FAILED, TaskInstanceState.UPSTREAM_FAILED):
            return said
        raise AirflowFailException(
            f"found the job rolled back though no step has failed: {said}; expected each step to do its work, but a "
            "person marked the run, or a step that had not, by hand; trigger a new run"
        )

    def given_up(self, step: Rollback, error: Exception) -> None:
        """Leave the job to the supervisor, which keeps trying to start it."""
        if step.has_lease():
            step.give_up(error)
