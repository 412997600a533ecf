"""The webhook that messages are posted to."""

from __future__ import annotations

from statecore.operations.supervising.webhook import Webhook
from statecore_airflow.hooks.settings import WEBHOOK_CONNECTION, WebhookSettings


def webhook(conn_id: str = WEBHOOK_CONNECTION) -> Webhook | None:
    """Return the webhook of an Airflow connection; None when there is no such connection.

    Raises:
        ConfigurationError: The connection has no address.

    """
    settings = WebhookSettings.load(conn_id)
    if settings is None:
        return None
    return Webhook(settings.url, f"the Airflow connection {conn_id!r}", "which is the connection's password")
