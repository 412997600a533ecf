"""Route: what a key has in state."""

from __future__ import annotations

import json
import threading

from fastapi import APIRouter, Depends, HTTPException, status
from pydantic import BaseModel

from statecore.errors import ConfigurationError, ManifestError
from statecore.operations.state_of_key import KeyContents, look_up
from statecore.redaction import redacted
from statecore_airflow.web.access import JobName, from_these_pages, may_rescale
from statecore_airflow.web.answers import Answer
from statecore_airflow.web.catalogs import CatalogDep

# State may hold what is known of people: who only sees figures does not see it.
router = APIRouter(dependencies=[Depends(may_rescale), Depends(from_these_pages)])

_MOST = 1_000
# A look-up reads files: leave threads for Airflow's own requests.
_slots = threading.BoundedSemaphore(2)


class StateQuestion(BaseModel):
    """A key as text, and the operator; without one, that with keyed state."""

    key: str
    uid: str | None = None


class Content(Answer):
    """What a key has in a state, or in one window of it; the value is JSON, because a browser rounds large numbers."""

    state: str
    type: str
    window_start_ms: int | None
    window_end_ms: int | None
    value: str
    left_out: int


class StateAnswer(Answer):
    """The state of a key at the newest committed epoch; the columns of the key are JSON, as the values are."""

    now_ms: int
    uid: str
    key: dict[str, str]
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
        found = look_up(catalog.jobs.get(name), question.key, question.uid or None, most=_MOST)
    except (ConfigurationError, ManifestError) as error:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, redacted(str(error))) from error
    finally:
        _slots.release()
    return _answer(found, catalog.now_ms())


def _answer(found: KeyContents, now_ms: int) -> StateAnswer:
    return StateAnswer(
        now_ms=now_ms,
        uid=found.uid,
        key={column: _text(value) for column, value in found.key.items()},
        lineage=found.lineage,
        epoch=found.epoch,
        committed_ms=found.committed_ms,
        contents=[
            Content(
                state=each.state,
                type=each.type,
                window_start_ms=each.window_start_ms,
                window_end_ms=each.window_end_ms,
                value=_text(each.value),
                left_out=each.left_out,
            )
            for each in found.contents
        ],
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
