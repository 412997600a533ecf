"""Sends alerts to people, in a loop on its own thread: a webhook that hangs delays nothing else."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping

from statecore.catalog import Alerts, Catalog, SupervisorRecord
from statecore.operations.status.alerts import (
    ALL_JOBS,
    AlertChange,
    FiringAlert,
    alert_changes,
    job_alerts,
    supervisor_alerts,
)
from statecore.operations.status.job_status import JobStatus, job_statuses
from statecore.release import RELEASE
from statecore.repeating import Repeating

log = logging.getLogger(__name__)

CHANNEL = "supervisor"
"""The channel of supervisors."""
INTERVAL_S = 10.0
CLAIM_MS = 60_000
"""Longer than a webhook may take; then another process, or this one, tries again."""
WEBHOOK_VARIABLE = "STATECORE_WEBHOOK"
"""Environment variable with the address of the supervisor's webhook."""


class AlertLoop:
    """Sends each change of an alert once.

    Args:
        catalog: The figures, and the changes already sent.
        channel: Name of the channel; several loops of one channel send each change once.
        send: Delivers a message; an error that it raises is logged, and the message is sent again later.

    """

    def __init__(self, catalog: Catalog, channel: str, send: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._channel = channel
        self._send = send
        self._repeating = Repeating("alerts", self.step, INTERVAL_S)

    def start(self) -> None:
        """Look every ten seconds."""
        self._repeating.start()

    def stop(self) -> None:
        """End the loop without waiting for a message that hangs: the next process sends it."""
        self._repeating.stop()

    def step(self) -> None:
        """Look once, and send the changes.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        for change in due_changes(self._catalog, self._channel, job_statuses(self._catalog)):
            if claim(self._catalog.alerts, self._channel, change, CLAIM_MS):
                self._tell(change)

    def _tell(self, change: AlertChange) -> None:
        (log.warning if change.firing else log.info)("%s", change.text)
        try:
            self._send(change.text)
        except Exception as error:
            log.error("this alert could not be sent and is sent again later: %s", error)
            return
        confirm(self._catalog.alerts, self._channel, change)


def webhook_sender() -> Callable[[str], None]:
    """Return a function that posts to the environment's webhook; without one, alerts are only logged.

    Removes the address, a secret, from the environment, because job code inherits it.
    """
    url = os.environ.pop(WEBHOOK_VARIABLE, "")
    if not url:
        return lambda _: None
    # An HTTP client takes longer to import than most commands take.
    from statecore.operations.supervising.webhook import Webhook

    return Webhook(url, f"the variable {WEBHOOK_VARIABLE}", "which is the variable's value").post


def firing_alerts(found: Iterable[JobStatus]) -> list[FiringAlert]:
    """Return the alerts of these jobs."""
    return [alert for each in found for alert in job_alerts(each)]


def due_changes(
    catalog: Catalog, channel: str, found: Mapping[str, JobStatus], supervisor: SupervisorRecord | None = None
) -> list[AlertChange]:
    """Return the changes of alerts that a channel should send now, and note those that have not lasted yet.

    Args:
        catalog: What was sent and noted.
        channel: The channel.
        found: Status of each job, by name.
        supervisor: The supervisor that acted last, for Airflow's loop; None in the supervisor itself, which cannot be
            dead.

    """
    now_ms = catalog.now_ms()
    firing = [*firing_alerts(found.values()), *supervisor_alerts(supervisor, RELEASE, now_ms)]
    changes, notices = alert_changes(firing, catalog.alerts.told(channel), {*found, ALL_JOBS}, now_ms)
    for each in notices:
        catalog.alerts.note(channel, each.subject, each.alert, changed_ms=each.changed_ms)
    return changes


def claim(alerts: Alerts, channel: str, change: AlertChange, ttl_ms: int) -> bool:
    """Claim a change to send; of several processes, one succeeds."""
    return alerts.claim(channel, change.subject, change.alert, firing=change.firing, ttl_ms=ttl_ms)


def confirm(alerts: Alerts, channel: str, change: AlertChange) -> None:
    """Record that a change was sent."""
    alerts.confirm(channel, change.subject, change.alert, firing=change.firing)
