"""Access control: Airflow's login and permissions, and no request of another site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, HTTPException, Query, Request, status

from statecore_airflow.hooks.settings import permissions_per_job

DAG = "rescale"

may_read = requires_access_dag("GET", param_dag_id=DAG)
TRIGGERED = ("rescale", "start", "stop", "upgrade", "savepoints", "catch_up", "autoscale")
"""The DAGs that the page of a job triggers, and ``autoscale``, whose policies it turns on and off."""

may_trigger = {dag: requires_access_dag("POST", DagAccessEntity.RUN, dag) for dag in TRIGGERED}
may_read_logs = requires_access_dag("GET", DagAccessEntity.TASK_LOGS, DAG)
may_rescale = may_trigger[DAG]


def _triggerable(request: Request, user: GetUserDep) -> list[str]:
    """Return the DAGs that the user may trigger; the page enables its buttons accordingly."""
    return [dag for dag in TRIGGERED if _is_allowed(dag, request, user)]


def _is_allowed(dag: str, request: Request, user: BaseUser) -> bool:
    try:
        may_trigger[dag](request, user)
    except HTTPException:
        return False
    return True


Triggerable = Annotated[list[str], Depends(_triggerable)]


def _readable(user: GetUserDep) -> Callable[[str], bool]:
    """Return whether the user may read a job, given its name: all of them, unless permissions are per job."""
    return _allowed("GET", user)


def _changeable(user: GetUserDep) -> Callable[[str], bool]:
    """Return whether the user may change a job, given its name: all of them, unless permissions are per job."""
    return _allowed("PUT", user)


def _allowed(method: Literal["GET", "PUT"], user: BaseUser) -> Callable[[str], bool]:
    if not permissions_per_job():
        return lambda _: True
    manager = get_auth_manager()
    return lambda job: manager.is_authorized_custom_view(method=method, resource_name=f"Streaming job {job}", user=user)


IsReadable = Annotated[Callable[[str], bool], Depends(_readable)]
IsChangeable = Annotated[Callable[[str], bool], Depends(_changeable)]


def _readable_job(
    name: Annotated[str, Query(min_length=1, max_length=200, description="Name of the job.")], is_readable: IsReadable
) -> str:
    """Return the name of the job that a route is about, if the user may read it."""
    if not is_readable(name):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")
    return name


JobName = Annotated[str, Depends(_readable_job)]
"""The job's name in every route about one job."""


def from_these_pages(request: Request) -> None:
    """Refuse a request that changes something, unless it comes from these pages or from a program.

    Airflow's cookie is ``SameSite=Lax``, so that browsers do not send it along with another site's POST. This does not
    rely on it: browsers say where a request comes from, and let no other site send JSON unless Airflow permits it.

    Raises:
        HTTPException: Another site may have sent it.

    """
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HTTPException(status.HTTP_403_FORBIDDEN, "found a request of another site; expected one of this page")
    kind, _, _ = request.headers.get("content-type", "").partition(";")
    if kind.strip().lower() != "application/json":
        raise HTTPException(
            status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, f"found content of the type {kind!r}; expected application/json"
        )
