"""The first task that changes something: it takes the lease, so that no other run changes the job."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from airflow.sdk import Context
from airflow.sdk.bases.skipmixin import SkipMixin

from statecore.operations.changes import BeginRescale, BeginUpgrade, Step, TakeLease
from statecore_airflow.operators.step import StepOperator, change_id
from statecore_airflow.params.rescale import RescaleParams


class LeaseOperator(StepOperator):
    """Takes the lease; any further run on the job is refused with the first run's id.

    Wire it as the setup of a ``RollbackOperator``.
    """

    kind: ClassVar[type[Step]] = TakeLease

    def given_up(self, step: TakeLease, error: Exception) -> None:
        """Leave no lease behind: no rollback follows this task."""
        step.abandon(error)


class BeginRescaleOperator(LeaseOperator, SkipMixin):
    """Takes the lease for a rescale, and records the rescale run that the parameters ask for.

    It skips the steps that this run does not need. Each could skip itself, but only in a process of its own, which
    takes time while the job stands still. If a person approved the plan, its ``method`` replaces the parameters'.
    """

    kind = BeginRescale
    inherits_from_skipmixin = True
    template_fields = ("job", "method")

    def __init__(self, *, method: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = method

    def fields(self, context: Context) -> dict[str, Any]:
        """Return the request; an approved plan fixes the method, otherwise ``auto`` is resolved now."""
        params = RescaleParams.of(context["params"])
        is_approved = params.approval and self.method
        return {"request": msgspec.structs.replace(params, method=self.method) if is_approved else params}

    def execute(self, context: Context) -> None:
        """Take the lease, record the run, and skip what it does not need."""
        super().execute(context)
        if self.has_dag():  # type: ignore[no-untyped-call]  # Airflow has no types there
            with self.catalog() as catalog:
                run = catalog.runs.get(change_id(context))
            later = [task for task in self.get_flat_relatives(upstream=False) if isinstance(task, StepOperator)]
            needless = [task for task in later if not task.is_teardown and not task.kind.is_needed(run)]
            self.skip(context["ti"], needless)


class BeginUpgradeOperator(LeaseOperator):
    """Checks the new job file, takes the lease, and records a run that keeps parallelism and workers."""

    kind = BeginUpgrade

    def fields(self, context: Context) -> dict[str, Any]:
        """Return the new job file and the reason."""
        return {"artifact": str(context["params"]["artifact"]), "reason": str(context["params"]["reason"])}
