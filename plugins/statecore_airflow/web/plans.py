"""Route: what a rescale would do."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, status

from statecore.catalog import Catalog, JobRecord, RescaleMethod, SystemClock
from statecore.errors import StatecoreError
from statecore.operations.downtime import expected_downtime
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.plan import RescalePlan, newest_to_plan, plan_rescale
from statecore_airflow.params.rescale import RescaleRequest
from statecore_airflow.web.access import may_rescale
from statecore_airflow.web.answers import DowntimeRange, PlanAnswer, SubtaskShare
from statecore_airflow.web.catalogs import CatalogDep
from statecore_airflow.web.jobs import JobName

router = APIRouter(dependencies=[Depends(may_rescale)])

_SHOWN = 256
_EARLIER_RUNS = 50
# Counting rows reads every state file's statistics: Airflow's own requests need threads, too.
_under_way = threading.BoundedSemaphore(2)


@router.get("/api/plan")
def get_plan(
    name: JobName,
    catalog: CatalogDep,
    parallelism: Annotated[int, Query(ge=1, description="Subtasks to be.")],
    workers: Annotated[int | None, Query(ge=1, description="Workers to be.")] = None,
    method: Annotated[RescaleMethod, Query(description="How the state gets there.")] = "by_reference",
    max_parallelism: Annotated[int | None, Query(ge=1, description="Key groups to be.")] = None,
) -> PlanAnswer:
    """Return what a rescale of the newest epoch would do; nothing is changed."""
    request = RescaleRequest(
        job=name, parallelism=parallelism, workers=workers, method=method, max_parallelism=max_parallelism
    )
    plan = _plan(catalog.job(name), request)
    size = sum(each.bytes for each in plan.subtasks)
    downtime = expected_downtime(catalog.rescale_runs(name, limit=_EARLIER_RUNS), method)
    return PlanAnswer(
        now_ms=SystemClock().now_ms(),
        lineage=plan.lineage,
        epoch=plan.epoch,
        method=method,
        from_parallelism=plan.from_parallelism,
        to_parallelism=plan.to_parallelism,
        from_max_parallelism=plan.from_max_parallelism,
        to_max_parallelism=plan.to_max_parallelism,
        subtasks=[SubtaskShare.model_validate(each) for each in plan.subtasks[:_SHOWN]],
        fixed=dict(plan.fixed),
        rows=plan.rows,
        bytes=size,
        # A rewrite for the same max parallelism writes everything, too, though nothing else changes.
        bytes_written=plan.bytes_written or (size if method == "rewrite" else 0),
        average_rows=plan.rows / len(plan.subtasks),
        skew=plan.skew,
        downtime=None if downtime is None else DowntimeRange.model_validate(downtime),
        refusal=_refusal(catalog, request),
    )


def _plan(job: JobRecord, request: RescaleRequest) -> RescalePlan:
    if not _under_way.acquire(blocking=False):
        raise HTTPException(
            status.HTTP_503_SERVICE_UNAVAILABLE,
            "found two plans being counted already; expected one to be done; try again in a moment",
        )
    try:
        store = CheckpointStore.at(job.store)
        return plan_rescale(store, newest_to_plan(store, job.name), request.parallelism, request.max_parallelism)
    finally:
        _under_way.release()


def _refusal(catalog: Catalog, request: RescaleRequest) -> str | None:
    """Return why the DAG's first step would refuse, so that nobody waits for it in vain."""
    try:
        request.checked(catalog)
    except StatecoreError as error:
        return str(error)
    lease = catalog.lease(request.job)
    if lease is not None and SystemClock().now_ms() < lease.expires_ms:
        return f"found run {lease.owner!r} changing the job; expected nobody to; wait until that run has ended"
    return None
