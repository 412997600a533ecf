"""Route: abort the run that changes a job."""

from __future__ import annotations

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, status

from statecore_airflow.web.access import IsChangeable, from_these_pages, may_rescale
from statecore_airflow.web.answers import AbortRequest, RescaleRun
from statecore_airflow.web.catalogs import CatalogDep

router = APIRouter(dependencies=[Depends(may_rescale), Depends(from_these_pages)])


@router.post("/api/abort")
def abort(asked: AbortRequest, catalog: CatalogDep, user: GetUserDep, is_changeable: IsChangeable) -> RescaleRun:
    """Abort a run: the process that carries it out ends and rolls it back; the page follows the run."""
    if not is_changeable(asked.name):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")
    return RescaleRun.model_validate(catalog.runs.abort(asked.name, user.get_name(), run_id=asked.run_id))
