"""Routes: all jobs, and all about one of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from statecore.catalog import Catalog, SystemClock
from statecore_airflow.web.access import IsRescaler
from statecore_airflow.web.answers import Generation, JobAnswer, JobsAnswer, Savepoint, Waiting
from statecore_airflow.web.catalogs import CatalogDep
from statecore_airflow.web.overview import rescale_run, summaries, summary

router = APIRouter()

JobName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the job.")]

_LISTED = 20


@router.get("/api/jobs")
def get_jobs(catalog: CatalogDep) -> JobsAnswer:
    """Return all jobs."""
    now_ms = SystemClock().now_ms()
    return JobsAnswer(now_ms=now_ms, jobs=summaries(catalog, now_ms))


@router.get("/api/job")
def get_job(name: JobName, catalog: CatalogDep, is_rescaler: IsRescaler) -> JobAnswer:
    """Return all about a job but for its charts."""
    now_ms = SystemClock().now_ms()
    job = catalog.job(name)
    backlog = catalog.figures(name).backlog
    clusters = {cluster.name: cluster for cluster in catalog.clusters()}
    return JobAnswer(
        now_ms=now_ms,
        is_rescaler=is_rescaler,
        job=summary(catalog, job, clusters, now_ms),
        sources=[Waiting.model_validate(each) for each in (backlog.sources if backlog else ())],
        savepoints=[Savepoint.model_validate(each) for each in catalog.savepoints(name, limit=_LISTED)],
        rescales=[rescale_run(each) for each in catalog.rescale_runs(name, limit=_LISTED)],
        generations=_generations(catalog, name),
    )


def _generations(catalog: Catalog, name: str) -> list[Generation]:
    return [Generation.model_validate(each) for each in catalog.generations(name, limit=_LISTED)]
