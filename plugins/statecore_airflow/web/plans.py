"""Route: the plan of a rescale."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, status

from statecore.catalog import Catalog
from statecore.errors import MissingFileError, StatecoreError
from statecore.operations.changes import Plan, RescaleRequest, WantedMethod, plan, require_free
from statecore_airflow.web.access import JobName, may_rescale
from statecore_airflow.web.answers import PlanAnswer, QueryPlanAnswer
from statecore_airflow.web.catalogs import CatalogDep

router = APIRouter(dependencies=[Depends(may_rescale)])

_SHOWN = 256
# A plan reads the statistics of every state file: leave threads for Airflow's own requests.
_slots = threading.BoundedSemaphore(2)


@router.get("/api/plan")
def get_plan(
    name: JobName,
    catalog: CatalogDep,
    parallelism: Annotated[int, Query(ge=1, description="New parallelism.")],
    workers: Annotated[int | None, Query(ge=1, description="New number of workers.")] = None,
    method: Annotated[WantedMethod, Query(description="Rescale method.")] = "auto",
    max_parallelism: Annotated[int | None, Query(ge=1, description="New max parallelism.")] = None,
) -> PlanAnswer | QueryPlanAnswer:
    """Return the plan of a rescale from the newest epoch; changes nothing."""
    request = RescaleRequest(
        job=name, parallelism=parallelism, workers=workers, method=method, max_parallelism=max_parallelism
    )
    planned = _plan(catalog, request)
    state = planned.state
    if planned.query is not None:
        return QueryPlanAnswer(
            now_ms=catalog.now_ms(),
            method=planned.method,
            from_parallelism=planned.query.partitions,
            to_parallelism=parallelism,
            lines=planned.query_lines(),
            downtime=planned.downtime,
            refusal=_refusal(catalog, request),
        )
    if state is None:
        raise MissingFileError(
            f"found no committed epoch of job {name!r}; expected one whose state is counted; wait for the first epoch, "
            "or rescale without a plan"
        )
    return PlanAnswer(
        now_ms=catalog.now_ms(),
        lineage=state.lineage,
        epoch=state.epoch,
        method=planned.method,
        from_parallelism=state.from_parallelism,
        to_parallelism=state.to_parallelism,
        from_max_parallelism=state.from_max_parallelism,
        to_max_parallelism=state.to_max_parallelism,
        subtasks=state.subtasks[:_SHOWN],
        operators=state.operators,
        fixed=dict(state.fixed),
        rows=state.rows,
        bytes=state.bytes,
        bytes_written=state.bytes_written,
        skew=state.skew,
        downtime=planned.downtime,
        refusal=_refusal(catalog, request),
    )


def _plan(catalog: Catalog, request: RescaleRequest) -> Plan:
    if not _slots.acquire(blocking=False):
        raise HTTPException(
            status.HTTP_503_SERVICE_UNAVAILABLE,
            "found two plans being computed already; expected a free slot; retry in a moment",
        )
    try:
        return plan(catalog, request, check=False)
    finally:
        _slots.release()


def _refusal(catalog: Catalog, request: RescaleRequest) -> str | None:
    """Return why the DAG's first step would refuse the request; None when it would not."""
    try:
        request.checked(catalog)
        require_free(catalog, request.job, "")
    except StatecoreError as error:
        return str(error)
    return None
