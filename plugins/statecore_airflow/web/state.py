"""Route: what a key has in state."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, status

from statecore.errors import ConfigurationError
from statecore.operations.state_of_key import of_job
from statecore_airflow.web.access import JobName
from statecore_airflow.web.answers import Answer
from statecore_airflow.web.catalogs import CatalogDep

router = APIRouter()


class Content(Answer):
    """What a key has in a state, or in one window of it; see ``statecore.operations.state_of_key``."""

    state: str
    type: str
    window_start_ms: int | None
    window_end_ms: int | None
    value: Any


class StateAnswer(Answer):
    """The state of a key at the newest committed epoch."""

    now_ms: int
    uid: str
    key: dict[str, Any]
    lineage: int
    epoch: int
    committed_ms: int
    contents: list[Content]


@router.get("/api/state")
def get_state(
    name: JobName,
    catalog: CatalogDep,
    key: Annotated[str, Query(description="The key; its columns separated by commas.")],
    uid: Annotated[str | None, Query(description="The operator; may be left out if one alone has keyed state.")] = None,
) -> StateAnswer:
    """Return what a key has in state at the newest committed epoch; hidden columns are left out."""
    job, now_ms = catalog.jobs.get(name), catalog.now_ms()
    try:
        found = of_job(job, [key], uid)
    except ConfigurationError as error:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, str(error)) from error
    contents = [
        Content(
            state=each.state,
            type=each.type,
            window_start_ms=each.window_start_ms,
            window_end_ms=each.window_end_ms,
            value=each.value,
        )
        for each in found.contents
    ]
    return StateAnswer(
        now_ms=now_ms,
        uid=found.uid,
        key=found.key,
        lineage=found.lineage,
        epoch=found.epoch,
        committed_ms=found.committed_ms,
        contents=contents,
    )
