"""Route: how a job is registered, and who has changed it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import field_validator

from statecore.redaction import HIDDEN, redacted, without_secrets
from statecore_airflow.web.access import JobName
from statecore_airflow.web.answers import Answer
from statecore_airflow.web.catalogs import CatalogDep

router = APIRouter()

_LISTED = 50


class AuditLine(Answer):
    """A change of a job: ``{field: [before, after]}``; of settings and configuration only the names that changed."""

    at_ms: int
    actor: str | None
    on_behalf_of: str
    change: dict[str, Any]

    @field_validator("change", mode="before")
    @classmethod
    def _redacted(cls, change: dict[str, Any]) -> dict[str, Any]:
        return {
            field: [redacted(each) if isinstance(each, str) else each for each in value]
            if isinstance(value, list)
            else redacted(str(value))
            for field, value in change.items()
        }


class DefinitionAnswer(Answer):
    """How a job is registered; values that look like secrets are hidden.

    Attributes:
        registered: Job file, store, master and what else belongs to the job, by name.
        settings: What the job file reads as ``job.settings``.
        conf: Spark configuration of its driver.
        audit: The newest changes, newest first.

    """

    now_ms: int
    registered: dict[str, str]
    settings: dict[str, str]
    conf: dict[str, str]
    audit: list[AuditLine]


@router.get("/api/definition")
def get_definition(name: JobName, catalog: CatalogDep) -> DefinitionAnswer:
    """Return how a job is registered, and who has changed it."""
    job = catalog.jobs.get(name)
    registered = {
        "Job file": job.artifact,
        "SHA-256 of the job file": job.artifact_sha256,
        "Checkpoint": job.checkpoint,
        "Store": job.store,
        "Spark master": job.master_url,
        "Cluster": job.cluster,
        "Desired state": job.desired_state,
        "Starts from": job.start_from,
    }
    return DefinitionAnswer(
        now_ms=catalog.now_ms(),
        registered={title: redacted(value) for title, value in registered.items() if value is not None},
        settings=_shown(job.settings),
        conf=_shown(job.conf),
        audit=[AuditLine.model_validate(each) for each in catalog.jobs.audit(name, limit=_LISTED)],
    )


def _shown(values: dict[str, str]) -> dict[str, str]:
    public = without_secrets(values)
    return {name: public.get(name, HIDDEN) for name in sorted(values)}
