"""Route: what a key has in state."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, status
from pydantic import BaseModel, BeforeValidator

from statecore.errors import ConfigurationError, ManifestError
from statecore.operations.state_of_key import MOST_SHOWN, look_up
from statecore.redaction import redacted
from statecore_airflow.web.access import JobName, from_these_pages, may_rescale
from statecore_airflow.web.answers import Answer
from statecore_airflow.web.catalogs import CatalogDep

# State may hold what is known of people: who only sees figures does not see it.
router = APIRouter(dependencies=[Depends(may_rescale), Depends(from_these_pages)])

# A look-up reads files: leave threads for Airflow's own requests.
_slots = threading.BoundedSemaphore(2)


class StateQuestion(BaseModel):
    """A key as text, and the operator; without one, that with keyed state."""

    key: str
    uid: str | None = None


AsJson = Annotated[str, BeforeValidator(partial(json.dumps, ensure_ascii=False))]
"""JSON as text: a browser would round large numbers."""


class Content(Answer):
    """What a key has in a state, or in one window of it; see ``statecore.operations.state_of_key``."""

    state: str
    type: str
    window_start_ms: int | None
    window_end_ms: int | None
    value: AsJson
    left_out: int


class StateAnswer(Answer):
    """The state of a key at the newest committed epoch."""

    uid: str
    key: dict[str, AsJson]
    lineage: int
    epoch: int
    committed_ms: int
    contents: list[Content]


@router.post("/api/state")
def get_state(name: JobName, catalog: CatalogDep, question: StateQuestion) -> StateAnswer:
    """Return what a key has in state at the newest committed epoch, without hidden columns.

    The key is in the body, and not in the address, which is logged.
    """
    if not _slots.acquire(blocking=False):
        raise HTTPException(
            status.HTTP_503_SERVICE_UNAVAILABLE, "found other look-ups running; expected at most one more; try again"
        )
    try:
        return StateAnswer.model_validate(
            look_up(catalog.jobs.get(name), question.key, question.uid or None, most=MOST_SHOWN)
        )
    except (ConfigurationError, ManifestError) as error:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, redacted(str(error))) from error
    finally:
        _slots.release()
