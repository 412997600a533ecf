"""Triggers: wait in the triggerer until the catalog shows what a task asked for.

All times are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from statecore.catalog import Catalog, SystemClock
from statecore.errors import CatalogError, LeaseHeldError, StatecoreError, UnknownRecordError
from statecore.operations.changes import (
    STEPS,
    Change,
    Finding,
    Status,
    Step,
    find_run,
    is_retryable,
    look_at_request,
)
from statecore_airflow.hooks.settings import CatalogSettings, lease_renewal_ms, lease_ttl_ms

log = logging.getLogger(__name__)

POLL_S = 1.0
SETTLE_S = 8.0
"""A trigger waits at least this long. Airflow fails a task that is queued again before the executor has seen its
deferred process end, which takes seconds on a busy machine."""

LATE_S = 30.0
"""A trigger that begins after its deadline, because Airflow was down, still looks for this long."""


class CatalogTrigger(BaseTrigger):
    """Base of all triggers: looks at the catalog every second, off the event loop.

    Fires once, with ``{"status": …, "message": …}``.

    Args:
        conn_id: Airflow connection of the catalog; the URL itself may hold a password and is not stored.
        job: Name of the job.
        owner: Owner of the lease to renew while waiting; None for no lease.
        deadline_ms: When to give up, by the database's clock; absolute, so that another triggerer does not restart the
            wait.

    """

    expected: str
    """What the trigger waits for, for an error message."""

    def __init__(self, *, conn_id: str, job: str, owner: str | None, deadline_ms: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no types there
        self.conn_id = conn_id
        self.job = job
        self.owner = owner
        self.deadline_ms = deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments that recreate this trigger."""
        arguments = {
            "conn_id": self.conn_id,
            "job": self.job,
            "owner": self.owner,
            "deadline_ms": self.deadline_ms,
            **self.arguments(),
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that a subclass adds."""
        return {}

    @abstractmethod
    def look(self, catalog: Catalog) -> Finding:
        """Look once; runs in a thread."""

    def renew(self, catalog: Catalog) -> Finding | None:
        """Renew the lease; return a finding if the wait is over. Runs in a thread.

        Raises:
            LeaseHeldError, UnknownRecordError: The lease is lost.

        """
        if self.owner is not None:
            catalog.leases.renew(self.job, self.owner, lease_ttl_ms())
        return None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until the wait is over or the deadline has passed."""
        catalog: Catalog | None = None
        begun = time.monotonic()
        try:
            settings = await CatalogSettings.aload(self.conn_id)
            catalog = await asyncio.to_thread(Catalog, settings.url)
            finding = await self._wait(catalog)
        except StatecoreError as error:
            finding = Finding(Status.FAILED if is_retryable(error) else Status.REFUSED, str(error))
        finally:
            if catalog is not None:
                await asyncio.to_thread(catalog.close)
        await asyncio.sleep(max(0.0, SETTLE_S - (time.monotonic() - begun)))
        yield TriggerEvent({"status": finding.status.value, "message": finding.message})

    async def _wait(self, catalog: Catalog) -> Finding:
        message, renewed_s = "", -math.inf
        ends_s = time.monotonic() + await asyncio.to_thread(self._left_s, catalog)
        while True:
            try:
                if (time.monotonic() - renewed_s) * 1000 >= lease_renewal_ms():
                    ended = await asyncio.to_thread(self.renew, catalog)
                    if ended is not None:
                        return ended
                    renewed_s = time.monotonic()
                finding = await asyncio.to_thread(self.look, catalog)
            except CatalogError as error:
                if type(error) is not CatalogError:
                    raise
                # The database cannot be reached; it may come back before the deadline.
                finding = Finding(Status.WAITING, str(error))
            if finding.status is not Status.WAITING:
                return finding
            if finding.message != message:
                message = finding.message
                self.log.info("Waiting: %s", message)
            if time.monotonic() >= ends_s:
                return await asyncio.to_thread(self.timed_out, finding)
            await asyncio.sleep(POLL_S)

    def _left_s(self, catalog: Catalog) -> float:
        """Return the remaining wait in seconds; runs in a thread."""
        try:
            now_ms = catalog.now_ms()
        except CatalogError:
            # The database cannot be reached: use this host's clock.
            now_ms = SystemClock().now_ms()
        left_ms = self.deadline_ms - now_ms
        return left_ms / 1000 if left_ms > 0 else LATE_S

    def timed_out(self, last: Finding) -> Finding:
        """Return the finding for a wait that reached its deadline after this last look; runs in a thread."""
        deadline = datetime.fromtimestamp(self.deadline_ms / 1000, tz=UTC)
        return Finding(
            Status.TIMEOUT,
            f"found {last.message} at {deadline:%H:%M:%S} UTC; expected {self.expected} by then; look at the logs "
            f"of the supervisor and of the driver of job {self.job!r}, then trigger a new run",
        )


class RequestTrigger(CatalogTrigger):
    """Waits until the driver has answered a request."""

    expected = "the driver to answer the request"

    def __init__(self, *, request_id: int, **common: Any) -> None:
        super().__init__(**common)
        self.request_id = request_id

    def arguments(self) -> dict[str, Any]:
        """Return the arguments this class adds."""
        return {"request_id": self.request_id}

    def look(self, catalog: Catalog) -> Finding:
        """Look at the request."""
        return look_at_request(catalog.requests, self.request_id)


class StepTrigger(CatalogTrigger):
    """Continues the wait for a step of a change; ``Step.fields`` recreates the step."""

    def __init__(self, *, run: str, step: str, fields: dict[str, Any], **common: Any) -> None:
        super().__init__(**common)
        self.run_id = run
        self.step = step
        self.fields = fields
        self._made: Step | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments this class adds."""
        return {"run": self.run_id, "step": self.step, "fields": self.fields}

    def look(self, catalog: Catalog) -> Finding:
        """Look at the step."""
        if self._made is None:
            change = Change(catalog, self.job, self.run_id, lease_ttl_ms(), log)
            self._made = STEPS[self.step](change=change, **self.fields)
        return self._made.observe()

    def renew(self, catalog: Catalog) -> Finding | None:
        """Renew the lease; after an outage of Airflow, the supervisor may have ended the run and given it back."""
        try:
            return super().renew(catalog)
        except (LeaseHeldError, UnknownRecordError):
            run = find_run(catalog.runs, self.run_id)
            if run is None or run.state != "done":
                raise
            return Finding(Status.DONE, f"rescale run {run.run_id} is done")

    def timed_out(self, last: Finding) -> Finding:
        """Return the finding for a step that still waits at the deadline."""
        # The catalog could never be reached; another attempt may reach it.
        return Finding(Status.FAILED, last.message) if self._made is None else self._made.timed_out(last)
