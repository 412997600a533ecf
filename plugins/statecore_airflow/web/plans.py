"""Route: what a rescale would do."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, status

from statecore.catalog import Catalog, SystemClock
from statecore.errors import MissingFileError, StatecoreError
from statecore.operations.rescaling import Plan, RescaleRequest, WantedMethod, plan, require_free
from statecore_airflow.web.access import may_rescale
from statecore_airflow.web.answers import DowntimeRange, PlanAnswer, SubtaskShare
from statecore_airflow.web.catalogs import CatalogDep
from statecore_airflow.web.jobs import JobName

router = APIRouter(dependencies=[Depends(may_rescale)])

_SHOWN = 256
# Counting rows reads every state file's statistics: Airflow's own requests need threads, too.
_under_way = threading.BoundedSemaphore(2)


@router.get("/api/plan")
def get_plan(
    name: JobName,
    catalog: CatalogDep,
    parallelism: Annotated[int, Query(ge=1, description="Subtasks to be.")],
    workers: Annotated[int | None, Query(ge=1, description="Workers to be.")] = None,
    method: Annotated[WantedMethod, Query(description="How the state gets there.")] = "auto",
    max_parallelism: Annotated[int | None, Query(ge=1, description="Key groups to be.")] = None,
) -> PlanAnswer:
    """Return what a rescale of the newest epoch would do; nothing is changed."""
    request = RescaleRequest(
        job=name, parallelism=parallelism, workers=workers, method=method, max_parallelism=max_parallelism
    )
    planned = _plan(catalog, request)
    state = planned.state
    if state is None:
        raise MissingFileError(
            f"found no committed epoch of job {name!r}; expected one whose state is counted; wait for the first epoch, "
            "or rescale without a plan"
        )
    size = sum(each.bytes for each in state.subtasks)
    return PlanAnswer(
        now_ms=SystemClock().now_ms(),
        lineage=state.lineage,
        epoch=state.epoch,
        method=planned.method,
        from_parallelism=state.from_parallelism,
        to_parallelism=state.to_parallelism,
        from_max_parallelism=state.from_max_parallelism,
        to_max_parallelism=state.to_max_parallelism,
        subtasks=[SubtaskShare.model_validate(each) for each in state.subtasks[:_SHOWN]],
        fixed=dict(state.fixed),
        rows=state.rows,
        bytes=size,
        # A rewrite for the same max parallelism writes everything, too, though nothing else changes.
        bytes_written=state.bytes_written or (size if planned.method == "rewrite" else 0),
        average_rows=state.rows / len(state.subtasks),
        skew=state.skew,
        downtime=None if planned.downtime is None else DowntimeRange.model_validate(planned.downtime),
        refusal=_refusal(catalog, request),
    )


def _plan(catalog: Catalog, request: RescaleRequest) -> Plan:
    if not _under_way.acquire(blocking=False):
        raise HTTPException(
            status.HTTP_503_SERVICE_UNAVAILABLE,
            "found two plans being counted already; expected one to be done; try again in a moment",
        )
    try:
        return plan(catalog, request, check=False)
    finally:
        _under_way.release()


def _refusal(catalog: Catalog, request: RescaleRequest) -> str | None:
    """Return why the DAG's first step would refuse, so that the person does not wait for it in vain."""
    try:
        request.checked(catalog)
        require_free(catalog, request.job, "")
    except StatecoreError as error:
        return str(error)
    return None
