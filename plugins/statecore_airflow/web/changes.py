"""Routes: what a start, a stop, a savepoint, a catch-up or an upgrade will do; and a policy's switch.

The page triggers the DAG itself, as it does for a rescale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, status

from statecore.catalog import Catalog
from statecore.errors import ConfigurationError, StatecoreError
from statecore.operations.changes import BeginUpgrade, Change, RescaleRequest, StartJob, require_free
from statecore.operations.downtime import downtime_words, expected_downtime
from statecore.operations.status.job_status import JobStatus, job_status
from statecore.redaction import redacted
from statecore_airflow.hooks.settings import lease_ttl_ms
from statecore_airflow.params.catch_up import CatchUpRequest, drain_plan
from statecore_airflow.web.access import IsChangeable, JobName, from_these_pages, may_trigger
from statecore_airflow.web.answers import ChangePlanAnswer, PolicyRequest
from statecore_airflow.web.catalogs import CatalogDep

router = APIRouter()
log = logging.getLogger(__name__)

_EARLIER_RUNS = 50


@router.get("/api/plan/start", dependencies=[Depends(may_trigger["start"])])
def plan_start(
    name: JobName,
    catalog: CatalogDep,
    parallelism: Annotated[int | None, Query(ge=1, description="Parallelism to start with.")] = None,
    workers: Annotated[int | None, Query(ge=1, description="Workers to start with.")] = None,
) -> ChangePlanAnswer:
    """Say where a job would start from, and at which size."""
    found = job_status(catalog, catalog.jobs.get(name))
    step = StartJob(change=_change(catalog, name), parallelism=parallelism, workers=workers)
    if found.job.desired_state == "running":
        resized = "" if workers is None else f" Its cluster gets {workers} workers."
        lines = [f"The job is to run already; a start waits until its driver runs.{resized}"]
    else:
        size = f"at parallelism {parallelism or found.job.parallelism}"
        on = "" if workers is None else f" on {workers} workers"
        lines = [f"The supervisor launches a driver that goes on {_origin(found)}, {size}{on}.", _start_time(found)]
    if not found.supervised:
        lines.append("No supervisor is alive: the job starts once one runs.")
    return _answer(catalog, name, lines, step.check)


@router.get("/api/plan/stop", dependencies=[Depends(may_trigger["stop"])])
def plan_stop(name: JobName, catalog: CatalogDep) -> ChangePlanAnswer:
    """Say what a stop with a savepoint does."""
    found = job_status(catalog, catalog.jobs.get(name))
    if found.job.desired_state == "stopped":
        return _answer(catalog, name, ["The job is stopped already; a stop changes nothing."])
    if not found.alive:
        lines = [
            "No driver is alive. The stop itself makes a savepoint of the newest committed epoch, if there is one.",
            "From then on no driver is started.",
        ]
        return _answer(catalog, name, lines)
    epoch, rate = found.figures.epoch, found.figures.rows_per_second
    took = "" if epoch is None else f"; the newest epoch took {epoch.duration_ms / 1000:.1f} s"
    waits = "" if not rate else f" It has read {rate:,.0f} rows per second in the last minute."
    lines = [
        f"The driver lets the epoch in flight end, publishes it, writes a savepoint, and ends{took}.",
        f"From then on rows wait until the job is started again.{waits}",
        "If the stop fails, the job keeps running.",
    ]
    return _answer(catalog, name, lines)


@router.get("/api/plan/savepoints", dependencies=[Depends(may_trigger["savepoints"])])
def plan_savepoint(name: JobName, catalog: CatalogDep) -> ChangePlanAnswer:
    """Say what taking a savepoint does."""
    found = job_status(catalog, catalog.jobs.get(name))
    last = found.savepoint
    took = "" if last is None or last.took_ms is None else f" The newest one took {last.took_ms / 1000:.1f} s."
    lines = [
        f"The driver makes a savepoint of its newest epoch, and the job runs on.{took}",
        "Then all of it is read once, to verify it. Only after that are older savepoints of this DAG dropped, by the "
        "number and age that its form says.",
    ]

    def check() -> None:
        if not found.alive:
            raise ConfigurationError(
                f"found no live driver of job {name!r}; expected one to take a savepoint; start the job, or use its "
                "newest epoch, which is kept"
            )

    return _answer(catalog, name, lines, check, free=False)


@router.get("/api/plan/catch_up", dependencies=[Depends(may_trigger["catch_up"])])
def plan_catch_up(
    name: JobName,
    catalog: CatalogDep,
    parallelism: Annotated[int | None, Query(ge=1, description="Parallelism to drain with.")] = None,
    workers: Annotated[int | None, Query(ge=1, description="Workers to drain with.")] = None,
    within_minutes: Annotated[float, Query(gt=0, description="How long draining may take.")] = 15,
) -> ChangePlanAnswer:
    """Say how long a backlog takes to drain, now and at the size to drain with."""
    request = CatchUpRequest(job=name, parallelism=parallelism, workers=workers, within_minutes=within_minutes)
    try:
        planned = drain_plan(catalog, request)
    except ConfigurationError as error:
        return ChangePlanAnswer(now_ms=catalog.now_ms(), lines=[], refusal=redacted(str(error)))
    back = f"Then the job goes back to parallelism {planned.present.parallelism}, drained or not."
    is_scaled = planned.after != planned.present
    if not is_scaled:
        back = "That is the job's size: nothing is rescaled; the run waits until the backlog is drained."
    lines = [f"{line[0].upper()}{line[1:]}." for line in planned.lines()]

    def check() -> None:
        if is_scaled:
            RescaleRequest(
                job=name, parallelism=planned.after.parallelism, workers=planned.after.workers, method=request.method
            ).checked(catalog)

    return _answer(catalog, name, [*lines, back], check)


@router.get("/api/plan/upgrade", dependencies=[Depends(may_trigger["upgrade"])])
def plan_upgrade(
    name: JobName,
    catalog: CatalogDep,
    artifact: Annotated[str, Query(min_length=1, description="The new job file.")],
) -> ChangePlanAnswer:
    """Say what moving a job to another job file does."""
    job = catalog.jobs.get(name)
    downtime = expected_downtime(catalog.runs.of(name, limit=_EARLIER_RUNS), "by_reference")
    lines = [
        f"Now the job runs {job.artifact}.",
        f"The supervisor checks {artifact} where drivers run, before anything stops. Then the job stops with a "
        "savepoint, and resumes from it with the new file.",
        f"Expected downtime: {downtime_words('by_reference', downtime)}.",
        "If it does not become healthy, it goes back to the old file, from its newest epoch.",
    ]
    return _answer(catalog, name, lines, BeginUpgrade(change=_change(catalog, name), artifact=artifact).check)


@router.post("/api/policy", dependencies=[Depends(may_trigger["autoscale"]), Depends(from_these_pages)])
def set_policy(asked: PolicyRequest, catalog: CatalogDep, user: GetUserDep, is_changeable: IsChangeable) -> None:
    """Turn a job's policy on or off; its settings stay."""
    if not is_changeable(asked.name):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")
    catalog.policies.switch(asked.name, enabled=asked.enabled, who=f"{user.get_name()} (Airflow)")


def _change(catalog: Catalog, job: str) -> Change:
    """Return a change that is only checked, never made."""
    return Change(catalog, job, "", lease_ttl_ms(), log)


def _answer(
    catalog: Catalog,
    job: str,
    lines: Iterable[str],
    check: Callable[[], None] = lambda: None,
    *,
    free: bool = True,
) -> ChangePlanAnswer:
    """Return a plan, with the reason why it would be refused; without a lease only if it needs the job ``free``."""
    refusal = None
    try:
        if free:
            require_free(catalog, job, "")
        check()
    except StatecoreError as error:
        refusal = redacted(str(error))
    return ChangePlanAnswer(now_ms=catalog.now_ms(), lines=[redacted(line) for line in lines], refusal=refusal)


def _origin(found: JobStatus) -> str:
    """Return where the next driver of a job starts."""
    if found.job.start_from is not None:
        return f"from {found.job.start_from}"
    epoch = found.figures.epoch
    return "without state" if epoch is None else f"from epoch {epoch.epoch} of lineage {epoch.lineage}"


def _start_time(found: JobStatus) -> str:
    """Return how long the newest start took that is known."""
    for each in found.generations:
        if each.settled_ms is not None:
            return f"Generation {each.generation} took {(each.settled_ms - each.started_ms) / 1000:.0f} s to start."
    return "How long a start takes is not known yet."
