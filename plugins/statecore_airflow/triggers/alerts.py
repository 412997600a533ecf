"""The alert loop in the triggerer: also reports that no supervisor is alive, which the supervisor itself cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from statecore.catalog import Catalog
from statecore.errors import StatecoreError
from statecore.operations.status.alerts import AlertChange
from statecore.operations.status.job_status import job_statuses
from statecore.operations.supervising.alert_loop import INTERVAL_S, claim, due_changes
from statecore_airflow.hooks.settings import CATALOG_CONNECTION, CatalogSettings

CHANNEL = "airflow"
CLAIM_MS = 600_000
"""Longer than a run takes from its event to its end, retries included; then the change is announced again."""


class AlertTrigger(BaseEventTrigger):
    """Fires once for each change of an alert; the run that it starts sends the message.

    It keeps no memory: the catalog records the sent changes. It never ends: it logs an error and looks again.
    """

    def __init__(self, *, conn_id: str = CATALOG_CONNECTION) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no types there
        self.conn_id = conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments that recreate this trigger."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"conn_id": self.conn_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at all jobs every ten seconds."""
        catalog: Catalog | None = None
        said = ""
        try:
            while True:
                changes: list[AlertChange] = []
                try:
                    if catalog is None:
                        settings = await CatalogSettings.aload(self.conn_id)
                        catalog = await asyncio.to_thread(Catalog, settings.url)
                    changes = await asyncio.to_thread(self.look, catalog)
                    said = ""
                except Exception as error:
                    # Log once, until the error changes: the catalog may be unreachable for hours.
                    if str(error) != said:
                        self.log.error("alerts: %s", error, exc_info=not isinstance(error, StatecoreError))
                    said = str(error)
                for change in changes:
                    yield TriggerEvent(payload_of(change))
                await asyncio.sleep(INTERVAL_S)
        finally:
            if catalog is not None:
                catalog.close()

    def look(self, catalog: Catalog) -> list[AlertChange]:
        """Look at all jobs once; runs in a thread.

        Returns:
            The claimed changes to send.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        changes = due_changes(catalog, CHANNEL, job_statuses(catalog), catalog.supervisors.last())
        return [change for change in changes if claim(catalog.alerts, CHANNEL, change, CLAIM_MS)]


def payload_of(change: AlertChange) -> dict[str, Any]:
    """Return the payload of a change's asset event."""
    return {"subject": change.subject, "alert": change.alert.value, "firing": change.firing, "text": change.text}


def change_of(payload: dict[str, Any]) -> AlertChange:
    """Return the change of a payload."""
    return msgspec.convert(payload, AlertChange)
