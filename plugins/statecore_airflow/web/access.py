"""Access control: Airflow's login and its permissions on the DAG ``rescale``."""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, HTTPException, Request

DAG = "rescale"

may_read = requires_access_dag("GET", param_dag_id=DAG)
may_read_logs = requires_access_dag("GET", DagAccessEntity.TASK_LOGS, DAG)
may_rescale = requires_access_dag("POST", DagAccessEntity.RUN, DAG)


def _is_rescaler(request: Request, user: GetUserDep) -> bool:
    """Return whether the user may trigger a rescale; the page enables its button accordingly."""
    try:
        may_rescale(request, user)
    except HTTPException:
        return False
    return True


IsRescaler = Annotated[bool, Depends(_is_rescaler)]
