"""Route: the plan of a rescale."""

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
# A plan reads the statistics of every state file: leave threads for Airflow's own requests.
_slots = threading.BoundedSemaphore(2)


@router.get("/api/plan")
def get_plan(
    name: JobName,
    catalog: CatalogDep,
    parallelism: Annotated[int, Query(ge=1, description="New parallelism.")],
    workers: Annotated[int | None, Query(ge=1, description="New number of workers.")] = None,
    method: Annotated[RescaleMethod, Query(description="Rescale method.")] = "by_reference",
    max_parallelism: Annotated[int | None, Query(ge=1, description="New max parallelism.")] = None,
) -> PlanAnswer:
    """Return the plan of a rescale from the newest epoch; changes nothing."""
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
        # plan_rescale does not count a rewrite at the same max parallelism, which writes all state as well.
        bytes_written=plan.bytes_written or (size if method == "rewrite" else 0),
        average_rows=plan.rows / len(plan.subtasks),
        skew=plan.skew,
        downtime=None if downtime is None else DowntimeRange.model_validate(downtime),
        refusal=_refusal(catalog, request),
    )


def _plan(job: JobRecord, request: RescaleRequest) -> RescalePlan:
    if not _slots.acquire(blocking=False):
        raise HTTPException(
            status.HTTP_503_SERVICE_UNAVAILABLE,
            "found two plans being computed already; expected a free slot; retry in a moment",
        )
    try:
        store = CheckpointStore.at(job.store)
        return plan_rescale(store, newest_to_plan(store, job.name), request.parallelism, request.max_parallelism)
    finally:
        _slots.release()


def _refusal(catalog: Catalog, request: RescaleRequest) -> str | None:
    """Return why the DAG's first step would refuse the request; None when it would not."""
    try:
        request.checked(catalog)
    except StatecoreError as error:
        return str(error)
    lease = catalog.lease(request.job)
    if lease is not None and SystemClock().now_ms() < lease.expires_ms:
        return f"found run {lease.owner!r} changing the job; expected no other run; wait until that run has ended"
    return None
