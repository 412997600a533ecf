"""The other steps of the DAG ``catch_up``: estimate, scale out, scale back."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.utils.state import TaskInstanceState

from statecore.catalog import Catalog
from statecore.operations.changes import require_free
from statecore_airflow.hooks.settings import CATALOG_CONNECTION
from statecore_airflow.operators.base import CatalogOperator, open_catalog
from statecore_airflow.operators.trigger_rescale import TriggerRescaleOperator
from statecore_airflow.params.catch_up import CatchUpRequest, JobSize, drain_plan, drain_words, present_size


class EstimateDrainOperator(CatalogOperator):
    """Estimates how long the backlog takes to drain, at the present size and at the size to drain with.

    Returns both sizes and both estimates. The XComs ``scale_out`` and ``scale_back`` hold the parameters of the
    rescales; both are empty if the job already has the size.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Estimate, and choose a size if none was given."""
        request = CatchUpRequest.of(context["params"])
        with self.catalog() as catalog:
            # While another run changes the job, its present size is not the one to go back to.
            require_free(catalog, self.job, context["run_id"])
            plan = drain_plan(catalog, request)
            before = _size_before(catalog, self.job, context["run_id"])
        for line in plan.lines():
            self.log.info("%s", line)
        after, now, then = plan.after, plan.now, plan.then
        why = request.reason or f"{drain_words(then)} instead of {drain_words(now)} to drain"
        out = _conf(request, after, f"catch_up {context['run_id']}: {why}; {then.based_on}")
        back = _conf(request, before, f"catch_up {context['run_id']}")
        if after == before:
            self.log.info("The job has that size already; nothing is scaled")
            # If another run resizes the job meanwhile, such as a catch_up that goes back, that size stays.
            out, back = {}, {}
        context["ti"].xcom_push(key="scale_out", value=out)
        context["ti"].xcom_push(key="scale_back", value=back)
        return {
            "job": self.job,
            "now": {**dataclasses.asdict(plan.present), **dataclasses.asdict(now)},
            "after": {**dataclasses.asdict(after), **dataclasses.asdict(then)},
        }


class ScaleOperator(TriggerRescaleOperator):
    """Rescales the job with a run of the DAG ``rescale``; skipped if the job has the size."""

    def __init__(self, *, conn_id: str = CATALOG_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def execute(self, context: Context) -> None:
        """Compare sizes, then trigger the run and wait for it."""
        if not self.conf:
            raise AirflowSkipException("the job had that size already when it was estimated, so nothing is scaled")
        with open_catalog(self.conn_id) as catalog:
            present, lease = present_size(catalog, self.job), catalog.leases.find(self.job)
        # Under a lease the present size is not final: the run may still change it, or be rolled back.
        if lease is None and present == JobSize(self.conf["parallelism"], self.conf["workers"]):
            raise AirflowSkipException(f"the job has parallelism {present.parallelism} already")
        super().execute(context)


class ScaleBackOperator(ScaleOperator):
    """Rescales the job back to its old size, even if the backlog was not drained; a teardown of the estimate.

    The reason says whether the task ``drained``, which waits for the backlog, succeeded.
    """

    def __init__(self, *, drained: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drained = drained

    def execute(self, context: Context) -> None:
        """Set the run's reason, which says whether the backlog was drained, and trigger the rescale in any case."""
        if self.conf:
            run = context["run_id"]
            states = context["ti"].get_task_states(dag_id=self.dag_id, task_ids=[self.drained], run_ids=[run])
            state = states.get(run, {}).get(self.drained)
            done = state == TaskInstanceState.SUCCESS
            said = "the backlog is drained" if done else f"not drained ({self.drained} {state}), going back anyway"
            self.log.log(logging.INFO if done else logging.WARNING, "%s", said)
            self.conf = {**self.conf, "reason": f"{self.conf['reason']}: {said}"}
        super().execute(context)


def _size_before(catalog: Catalog, job: str, run: str) -> JobSize:
    """Return the size to go back to; if the run was cleared, its earlier attempt may have resized the job."""
    size = present_size(catalog, job)
    for rescale in catalog.runs.of(job, limit=10):
        if rescale.state != "done":
            continue
        if not rescale.run_id.startswith(f"{run}__scale_out-"):
            break
        size = JobSize(rescale.from_parallelism, rescale.from_workers)
    return size


def _conf(request: CatchUpRequest, size: JobSize, reason: str) -> dict[str, Any]:
    """Return the parameters of a run of the DAG ``rescale``."""
    return {"job": request.job, **dataclasses.asdict(size), "method": request.method, "reason": reason}
