"""The task of the DAG ``alerts``: sends alerts to people."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context

from statecore.operations.status.alerts import ALL_JOBS, AlertChange
from statecore.operations.supervising.alert_loop import confirm
from statecore_airflow.hooks.settings import WEBHOOK_CONNECTION
from statecore_airflow.links.addresses import job_page
from statecore_airflow.notifications.webhook import webhook
from statecore_airflow.operators.base import CatalogWideOperator, open_catalog
from statecore_airflow.triggers.alerts import CHANNEL, change_of


class TellAlertsOperator(CatalogWideOperator):
    """Logs the changes of alerts that triggered the run, and posts them to the webhook.

    A retry does not send a change again. ``webhook_conn_id`` is the Airflow connection of the webhook; without it,
    the changes are only logged.
    """

    def __init__(self, *, webhook_conn_id: str = WEBHOOK_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.webhook_conn_id = webhook_conn_id

    def execute(self, context: Context) -> list[str]:
        """Send each change, and return the messages.

        Raises:
            AirflowFailException: The webhook does not accept a message; the next run sends the rest.

        """
        events = [event for of_asset in context["triggering_asset_events"].values() for event in of_asset]
        # An event that a person created announces no change.
        changes = [change_of(event.extra["payload"]) for event in events if "payload" in event.extra]
        with open_catalog(self.conn_id) as catalog:
            told = {(each.subject, each.alert): each.firing for each in catalog.alerts.told(CHANNEL)}
            texts = []
            for change in dict.fromkeys(changes):
                if told.get((change.subject, change.alert)) == change.firing:
                    continue
                texts.append(self._tell(change))
                confirm(catalog.alerts, CHANNEL, change)
            return texts

    def _tell(self, change: AlertChange) -> str:
        text = change.text if change.subject == ALL_JOBS else f"{change.text}\nJob: {job_page(change.subject)}"
        (self.log.error if change.firing else self.log.info)("%s", text)
        post_to = webhook(self.webhook_conn_id)
        if post_to is not None:
            post_to.post(text)
        return text
