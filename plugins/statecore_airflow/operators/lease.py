"""The first task of a rescale that changes something: it takes the lease, so that no other run changes the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from airflow.sdk import Context
from airflow.sdk.bases.skipmixin import SkipMixin

from statecore.operations.changes import BeginRescale
from statecore_airflow.operators.change_id import change_id
from statecore_airflow.operators.step import StepOperator
from statecore_airflow.params.rescale import RescaleParams


class BeginRescaleOperator(StepOperator, SkipMixin):
    """Takes the lease for a rescale, and records the rescale run that the parameters ask for.

    It skips the steps that this run does not need. Each could skip itself, but only in its own process, which takes
    time while the job is stopped. If a person approved the plan, its ``method`` replaces the parameters'.
    """

    inherits_from_skipmixin = True
    template_fields = (*StepOperator.template_fields, "method")

    def __init__(self, *, method: str = "", **kwargs: Any) -> None:
        super().__init__(step=BeginRescale, **kwargs)
        self.method = method

    def parameters(self, context: Context) -> Mapping[str, Any]:
        """Return the request; an approved plan fixes the method, otherwise ``auto`` is resolved now."""
        params = RescaleParams.of(context["params"])
        is_approved = params.approval and self.method
        return {"request": msgspec.structs.replace(params, method=self.method) if is_approved else params}

    def execute(self, context: Context) -> None:
        """Take the lease, record the run, and skip the steps that it does not need."""
        super().execute(context)
        if self.has_dag():  # type: ignore[no-untyped-call]  # Airflow has no types there
            with self.catalog() as catalog:
                run = catalog.runs.get(change_id(context))
            later = [task for task in self.get_flat_relatives(upstream=False) if isinstance(task, StepOperator)]
            self.skip(context["ti"], [task for task in later if not task.step.is_needed(run)])
