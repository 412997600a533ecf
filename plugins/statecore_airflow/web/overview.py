"""Converts the catalog's view of jobs to answers."""

from __future__ import annotations

from collections.abc import Callable, Collection

from statecore.catalog import Catalog
from statecore.operations.kinds import kind_of
from statecore.operations.status.advice import findings
from statecore.operations.status.alerts import RULES, Severity
from statecore.operations.status.job_status import DriverState, JobStatus, job_statuses
from statecore.operations.supervising.alert_loop import CHANNEL as SUPERVISOR
from statecore_airflow.links.addresses import change_path
from statecore_airflow.triggers.alerts import CHANNEL as AIRFLOW
from statecore_airflow.web.answers import Backlog, Condition, Epoch, Finding, JobSummary, Lease, Savepoint, Workers

_ORDER = {condition: place for place, condition in enumerate(Condition)}
_URGENCY = {severity: place for place, severity in enumerate((*Severity, None))}
_WANTED: dict[DriverState, Condition] = {
    "never started": Condition.STARTING,
    "launching": Condition.STARTING,
    "running": Condition.RUNNING,
    "stopped": Condition.STARTING,
    "failed": Condition.FAILED,
    "lost": Condition.LOST,
}
_NOT_WANTED: dict[DriverState, Condition] = {
    "never started": Condition.STOPPED,
    "launching": Condition.STOPPING,
    "running": Condition.STOPPING,
    "stopped": Condition.STOPPED,
    "failed": Condition.STOPPED,
    "lost": Condition.LOST,
}


def summaries(catalog: Catalog, is_shown: Callable[[str], bool] = lambda _: True) -> list[JobSummary]:
    """Return the jobs whose names are to be shown: by their worst finding, their condition and their name."""
    sent = sent_alerts(catalog)
    shown = [name for name in catalog.jobs.names() if is_shown(name)]
    made = [summary(each, sent) for each in job_statuses(catalog, shown).values()]
    return sorted(made, key=lambda each: (_URGENCY[each.severity], _ORDER[each.condition], each.name))


def sent_alerts(catalog: Catalog) -> Collection[tuple[str, str]]:
    """Return the alerts that the supervisor or Airflow has sent, and that are not resolved: job and alert."""
    told = [each for channel in (SUPERVISOR, AIRFLOW) for each in catalog.alerts.told(channel)]
    return {(each.subject, each.alert) for each in told if each.firing}


def summary(status: JobStatus, sent: Collection[tuple[str, str]]) -> JobSummary:
    """Return a job's row in the list of jobs, given the alerts that were sent."""
    job, generation, figures = status.job, status.generation, status.figures
    cluster, found = status.cluster, _findings(status, sent)
    return JobSummary(
        name=job.name,
        checkpoint=job.checkpoint,
        methods=list(kind_of(job).methods),
        condition=_condition(status),
        severity=min((each.severity for each in found), key=_URGENCY.__getitem__, default=None),
        error=status.error,
        findings=found,
        generation=None if generation is None else generation.generation,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        workers=None
        if cluster is None
        else Workers(desired=cluster.desired_workers, ready=cluster.ready_workers, message=cluster.message),
        rows_per_second=figures.rows_per_second,
        backlog=Backlog.model_validate(status.waiting) if figures.backlog is not None else None,
        backlog_ms=None if figures.backlog is None else figures.backlog.measured_ms,
        epoch=None if figures.epoch is None else Epoch.model_validate(figures.epoch),
        savepoint=None if status.savepoint is None else Savepoint.model_validate(status.savepoint),
        lease=_lease(status),
    )


def _findings(status: JobStatus, sent: Collection[tuple[str, str]]) -> list[Finding]:
    """Return what is found about a job, the most urgent first."""
    found = [
        Finding(
            found=each.found,
            todo=each.todo,
            alert=each.alert,
            severity=None if each.alert is None else RULES[each.alert].severity,
            is_new=each.alert is not None and (status.job.name, each.alert) not in sent,
        )
        for each in findings(status)
        if not each.only_keeps
    ]
    return sorted(found, key=lambda each: _URGENCY[each.severity])


def _condition(status: JobStatus) -> Condition:
    if _lease(status) is not None:
        return Condition.RESCALING
    if status.crash_loops and status.alive:
        return Condition.FAILED
    return (_WANTED if status.job.desired_state == "running" else _NOT_WANTED)[status.driver]


def _lease(status: JobStatus) -> Lease | None:
    lease = status.lease
    if lease is None or status.now_ms >= lease.expires_ms:
        return None
    return Lease(owner=lease.owner, page=change_path(lease.owner), expires_ms=lease.expires_ms)
