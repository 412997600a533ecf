"""Computes which alerts fire, and which changes have not been sent yet; pure.

Every reader computes the same alerts from the same catalog. Only the sent changes are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statecore.catalog import SupervisorRecord, ToldAlertRecord
from statecore.operations.status.advice import Alert, findings, releases_differ, span
from statecore.operations.status.job_status import JobStatus

ALL_JOBS = ""
"""Subject of an alert that concerns no single job."""
SUPERVISOR_DEAD_MS = 60_000
"""A supervisor that was silent for this long is dead."""
_RUNBOOK = "docs/alerts.md"


class Severity(StrEnum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    WARNING = "warning"


SEVERITY = {
    Alert.SUPERVISOR_DEAD: Severity.CRITICAL,
    Alert.CRASH_LOOP: Severity.CRITICAL,
    Alert.DRIVER_LOST: Severity.WARNING,
    Alert.DRIVER_MISSING: Severity.CRITICAL,
    Alert.SUPERVISOR_WAITS: Severity.WARNING,
    Alert.STREAM_STALLED: Severity.CRITICAL,
    Alert.LEASE_TAKEN_BACK: Severity.WARNING,
    Alert.RESCALE_FAILED: Severity.WARNING,
    Alert.WORKERS_MISSING: Severity.WARNING,
    Alert.MEMORY_FULL: Severity.WARNING,
    Alert.POLICY_IDLE: Severity.WARNING,
    Alert.POLICY_BLOCKED: Severity.WARNING,
    Alert.JOB_BOTTLENECK: Severity.WARNING,
    Alert.RELEASES_DIFFER: Severity.WARNING,
}


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """An alert that fires.

    Attributes:
        subject: Name of the job, or ``ALL_JOBS``.
        found: The finding, with figures.
        todo: What to do.

    """

    subject: str
    alert: Alert
    found: str
    todo: str


@dataclass(frozen=True, slots=True)
class AlertChange:
    """A change of an alert, to send to people.

    Attributes:
        subject: Name of the job, or ``ALL_JOBS``.
        firing: Whether the alert fires from now on, or is resolved.
        text: The message, of several lines.

    """

    subject: str
    alert: Alert
    firing: bool
    text: str


def job_alerts(status: JobStatus) -> list[FiringAlert]:
    """Return the alerts among the findings of a job."""
    named = [(each.alert, each) for each in findings(status) if each.alert is not None]
    return [FiringAlert(status.job.name, alert, each.found, each.todo) for alert, each in named]


def supervisor_alerts(newest: SupervisorRecord | None, release: str, now_ms: int) -> list[FiringAlert]:
    """Return Airflow's alerts about the supervisor: it is dead, or of another release than Airflow.

    A supervisor that was stopped in order has no record, and no alert.
    """
    if newest is None:
        return []
    if now_ms - newest.heartbeat_ms < SUPERVISOR_DEAD_MS:
        if newest.version == release:
            return []
        problem = releases_differ("Airflow", release, newest)
        return [FiringAlert(ALL_JOBS, Alert.RELEASES_DIFFER, problem.found, problem.todo)]
    silent = span(now_ms - newest.heartbeat_ms)
    return [
        FiringAlert(
            ALL_JOBS,
            Alert.SUPERVISOR_DEAD,
            f"the last supervisor, process {newest.pid} on {newest.host}, was last heard of {silent} ago",
            "start one with `statecore supervisor --logs …`; until then, no failed driver is restarted",
        )
    ]


def alert_changes(
    firing: Sequence[FiringAlert], told: Iterable[ToldAlertRecord], judged: Collection[str], now_ms: int
) -> list[AlertChange]:
    """Return the changes that a channel has not sent yet, or is sending.

    Args:
        firing: The alerts that fire now.
        told: The changes that the channel has sent.
        judged: The subjects that were checked. Alerts of other subjects are unknown, so they are not resolved.
        now_ms: Time of the look.

    """
    known = {(each.subject, each.alert): each for each in told if each.firing}
    begun = [each for each in firing if (each.subject, each.alert) not in known]
    present = {(each.subject, each.alert) for each in firing}
    over = [each for key, each in known.items() if key not in present and each.subject in judged]
    return [*map(_begun, begun), *(_over(each, now_ms) for each in over)]


def _begun(each: FiringAlert) -> AlertChange:
    text = (
        f"{SEVERITY[each.alert].upper()} {each.alert}, {_about(each.subject)}: {each.found}\n"
        f"What to do: {each.todo}\n"
        f"Runbook: {_RUNBOOK}#{each.alert}"
    )
    return AlertChange(each.subject, each.alert, True, text)


def _over(told: ToldAlertRecord, now_ms: int) -> AlertChange:
    alert = Alert(told.alert)
    lasted = "" if told.told_ms is None else f" after {span(now_ms - told.told_ms)}"
    return AlertChange(told.subject, alert, False, f"RESOLVED {alert}, {_about(told.subject)}{lasted}")


def _about(subject: str) -> str:
    return "all jobs" if subject == ALL_JOBS else f"job {subject}"
