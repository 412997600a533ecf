"""The autoscaler's loop in the triggerer, over all jobs that have a policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from statecore.catalog import Catalog, DecisionRecord
from statecore.errors import CatalogError, StatecoreError
from statecore.operations.autoscaling.evaluation import decisions_to_announce, evaluate
from statecore_airflow.hooks.settings import CATALOG_CONNECTION, CatalogSettings

POLL_S = 5.0
"""A driver measures its backlog at the same interval."""


class DecisionTrigger(BaseEventTrigger):
    """Fires once for each decision, also for one that is only observed.

    It keeps no memory: the catalog holds the decisions and the time since which more has been needed. So a restart
    loses nothing, and two triggers at once decide nothing twice. It never ends: it logs an error and looks again.
    """

    def __init__(self, *, conn_id: str = CATALOG_CONNECTION) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no types there
        self.conn_id = conn_id
        self._said: dict[str, str] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments that recreate this trigger."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"conn_id": self.conn_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at all jobs every few seconds."""
        catalog: Catalog | None = None
        try:
            while True:
                try:
                    if catalog is None:
                        settings = await CatalogSettings.aload(self.conn_id)
                        catalog = await asyncio.to_thread(Catalog, settings.url)
                    decisions = await asyncio.to_thread(self.look, catalog)
                    self._say("", "")
                except StatecoreError as error:
                    self._say("", str(error))
                    decisions = []
                for decision in decisions:
                    yield TriggerEvent(payload_of(decision))
                await asyncio.sleep(POLL_S)
        finally:
            if catalog is not None:
                catalog.close()

    def look(self, catalog: Catalog) -> list[DecisionRecord]:
        """Look at all jobs once; runs in a thread.

        Returns:
            The decisions to announce: those reached now, and open ones again.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        reached: list[DecisionRecord] = []
        try:
            reached.extend(self._reached(catalog))
            again = list(decisions_to_announce(catalog.policies, catalog.now_ms()))
        except CatalogError as error:
            if not reached:
                raise
            # The decisions are recorded, and no later look would announce an observed one.
            self._say("", str(error))
            return reached
        for decision in again:
            self.log.info("Decision %d for job %s is announced again", decision.id, decision.job)
        return [*reached, *again]

    def _reached(self, catalog: Catalog) -> Iterator[DecisionRecord]:
        for policy in catalog.policies.all():
            if not policy.enabled:
                continue
            try:
                decision = evaluate(catalog, policy, catalog.now_ms())
                self._say(policy.job, "")
            except StatecoreError as error:
                if type(error) is CatalogError:
                    raise
                self._say(policy.job, str(error))
                continue
            except Exception:
                # One job's error must not stop the policies of the others.
                self.log.exception("Job %s: unexpected error", policy.job)
                continue
            if decision is not None:
                yield decision

    def _say(self, about: str, error: str) -> None:
        """Log an error once, until it changes or clears."""
        if error and self._said.get(about) != error:
            self.log.error("%s", f"Job {about}: {error}" if about else error)
        self._said[about] = error


def payload_of(decision: DecisionRecord) -> dict[str, Any]:
    """Return the payload of a decision's asset event."""
    return {
        "decision": decision.id,
        "job": decision.job,
        "parallelism": decision.to_parallelism,
        "workers": decision.to_workers,
        "method": decision.method,
        "reason": decision.reason,
    }
