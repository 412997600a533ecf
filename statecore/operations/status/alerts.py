"""Computes which alerts fire, and which changes are due to be sent; pure.

Every reader computes the same alerts from the same catalog. What people are sent has lasted: an alert is sent after the
time of its rule, and resolved after half a minute without it. So the catalog stores, for each channel, what was sent,
and since when it is otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statecore.catalog import SupervisorRecord, ToldAlertRecord
from statecore.operations.status.advice import findings, releases_differ
from statecore.operations.status.finding import Alert, span
from statecore.operations.status.job_status import JobStatus

ALL_JOBS = ""
"""Subject of an alert that concerns no single job."""
SUPERVISOR_DEAD_MS = 60_000
"""A supervisor that was silent for this long is dead."""
RESOLVED_AFTER_MS = 30_000
"""An alert that was sent is resolved when it has been over for this long."""
_MINUTE_MS = 60_000


class Severity(StrEnum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """How urgent an alert is, and for how long (ms) it must have fired before it is sent."""

    severity: Severity
    sent_after_ms: int = 0


RULES = {
    Alert.SUPERVISOR_DEAD: Rule(Severity.CRITICAL),
    Alert.CRASH_LOOP: Rule(Severity.CRITICAL),
    Alert.DRIVER_LOST: Rule(Severity.WARNING),
    Alert.DRIVER_MISSING: Rule(Severity.CRITICAL),
    Alert.SUPERVISOR_WAITS: Rule(Severity.WARNING),
    Alert.STREAM_STALLED: Rule(Severity.CRITICAL, _MINUTE_MS // 2),
    Alert.SOURCE_SILENT: Rule(Severity.WARNING, _MINUTE_MS),
    Alert.LEASE_TAKEN_BACK: Rule(Severity.WARNING),
    Alert.RESCALE_FAILED: Rule(Severity.WARNING),
    Alert.WORKERS_MISSING: Rule(Severity.WARNING, 5 * _MINUTE_MS),
    Alert.MEMORY_FULL: Rule(Severity.WARNING, _MINUTE_MS),
    Alert.POLICY_IDLE: Rule(Severity.WARNING),
    Alert.POLICY_BLOCKED: Rule(Severity.WARNING),
    # A burst may pass by itself.
    Alert.JOB_BOTTLENECK: Rule(Severity.WARNING, 2 * _MINUTE_MS),
    Alert.RELEASES_DIFFER: Rule(Severity.WARNING, 60 * _MINUTE_MS),
}


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """An alert that fires.

    Attributes:
        subject: Name of the job, or ``ALL_JOBS``.
        found: The finding, with figures.
        todo: What to do.
        only_keeps: Whether it does not fire, but an alert that was sent is not over either.

    """

    subject: str
    alert: Alert
    found: str
    todo: str
    only_keeps: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """Since when an alert is otherwise than sent; None if it is as sent again."""

    subject: str
    alert: Alert
    changed_ms: int | None


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
    return [FiringAlert(status.job.name, alert, each.found, each.todo, each.only_keeps) for alert, each in named]


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
) -> tuple[list[AlertChange], list[Notice]]:
    """Return the changes that are due to be sent on a channel, or are being sent, and what to note for the next look.

    Args:
        firing: The alerts that fire now.
        told: What the channel has sent, with what was noted.
        judged: The subjects that were checked. Alerts of other subjects are unknown, so they are not resolved.
        now_ms: Time of the look.

    """
    # An earlier release may have sent others.
    told = [each for each in told if each.subject in judged and each.alert in RULES]
    known = {(each.subject, Alert(each.alert)): each for each in told}
    # Of several findings of one alert, the first is the most urgent.
    found = {(each.subject, each.alert): each for each in reversed(firing)}
    changes, notices = [], []
    for subject, alert in dict.fromkeys([*found, *known]):
        record, fires = known.get((subject, alert)), found.get((subject, alert))
        changed_ms = None if record is None else record.changed_ms
        change = _change(subject, alert, record, fires, now_ms)
        if change is None:
            if changed_ms is not None:
                notices.append(Notice(subject, alert, None))
            continue
        if changed_ms is None:
            notices.append(Notice(subject, alert, now_ms))
        lasted_ms = 0 if changed_ms is None else now_ms - changed_ms
        if lasted_ms >= (RULES[alert].sent_after_ms if change.firing else RESOLVED_AFTER_MS):
            changes.append(change)
    return changes, notices


def _change(
    subject: str, alert: Alert, told: ToldAlertRecord | None, fires: FiringAlert | None, now_ms: int
) -> AlertChange | None:
    """Return how an alert differs from what was sent; None if it does not."""
    if told is not None and told.firing:
        return _over(told, alert, now_ms) if fires is None else None
    return None if fires is None or fires.only_keeps else _begun(fires)


def _begun(each: FiringAlert) -> AlertChange:
    text = (
        f"{RULES[each.alert].severity.upper()} {each.alert}, {_about(each.subject)}: {each.found}\n"
        f"What to do: {each.todo}\n"
        f"Runbook: statecore explain {each.alert}"
    )
    return AlertChange(each.subject, each.alert, True, text)


def _over(told: ToldAlertRecord, alert: Alert, now_ms: int) -> AlertChange:
    ended_ms = now_ms if told.changed_ms is None else told.changed_ms
    lasted = "" if told.told_ms is None else f" after {span(ended_ms - told.told_ms)}"
    return AlertChange(told.subject, alert, False, f"RESOLVED {alert}, {_about(told.subject)}{lasted}")


def _about(subject: str) -> str:
    return "all jobs" if subject == ALL_JOBS else f"job {subject}"
