"""The first task of a rescale: it refuses an impossible rescale, and shows the plan of a possible one."""

from __future__ import annotations

from typing import Any

import msgspec
from airflow.sdk import Context
from airflow.sdk.bases.skipmixin import SkipMixin

from statecore.operations.changes import find_run, plan, require_free
from statecore_airflow.faults import Place, fault_point
from statecore_airflow.operators.approval import ApprovalWhenAskedOperator
from statecore_airflow.operators.base import CatalogOperator
from statecore_airflow.operators.change_id import change_id
from statecore_airflow.params.rescale import RescaleParams


class PlanOperator(CatalogOperator, SkipMixin):
    """Plans a rescale from the job's newest epoch and changes nothing. A dry run skips all other steps.

    Returns ``{"text": Markdown, "method": …, "plan": RescalePlan, "rows": …, "skew": …, "downtime_ms": … or None}``;
    ``plan`` is None for a live rescale of a job that has not committed an epoch yet.
    """

    inherits_from_skipmixin = True

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the request, plan, and show the plan."""
        run = change_id(context)
        with self.catalog() as catalog:
            params = RescaleParams.of(context["params"])
            fault_point("plan", Place.BEGUN)
            # The step `lease` checks this, too, but perhaps only after a person approved the plan. Check it before
            # the plan: the state of a job that another run is changing is no reason for a refusal.
            require_free(catalog, params.job, run)
            planned = plan(catalog, params, check=find_run(catalog.runs, run) is None)
        text, state, downtime = planned.markdown(), planned.state, planned.downtime
        self.log.info("%s", text)
        result = {
            "text": text,
            "method": planned.method,
            "plan": None if state is None else msgspec.to_builtins(state),
            "rows": None if state is None else state.rows,
            "skew": None if state is None else state.skew,
            "downtime_ms": None if downtime is None else downtime.median_ms,
        }
        if self.has_dag():  # type: ignore[no-untyped-call]  # Airflow has no types there
            # The skip below ends this task with an exception, so its result is recorded here.
            context["ti"].xcom_push(key="return_value", value=result)
            self.skip(context["ti"], self._needless(params))
        return result

    def _needless(self, params: RescaleParams) -> list[Any]:
        later = [task for task in self.get_flat_relatives(upstream=False) if not task.is_teardown]
        if params.dry_run:
            self.log.info("A dry run: nothing was changed, and nothing will be")
            return later
        return [] if params.approval else [task for task in later if isinstance(task, ApprovalWhenAskedOperator)]
