"""Triggers: wait in the triggerer until the catalog shows what a step asked for.

All times are milliseconds since the epoch, UTC. A trigger holds the lease of its run while it waits.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from statecore.catalog import Catalog
from statecore.errors import CatalogError, ClusterError, StatecoreError, UnhealthyJobError
from statecore.operations.resizing import Resizing
from statecore.operations.verification import Verification
from statecore_airflow.hooks.settings import CatalogSettings, lease_renewal_ms, lease_ttl_ms

POLL_S = 1.0
SETTLE_S = 8.0
"""A trigger fires no earlier after it began. Airflow takes a task for dead that is queued again before the executor has
seen its deferred process end, which takes seconds on a busy machine."""


class Status(StrEnum):
    """What has become of a wait."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    """It came to nothing, and may come to something when it is tried again."""
    REFUSED = "refused"
    """It came to nothing, and will again."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look at the catalog showed."""

    status: Status
    message: str


class CatalogTrigger(BaseTrigger):
    """Base of all triggers: looks at the catalog every second, off the event loop.

    Fires once, with ``{"status": …, "message": …}``.

    Args:
        conn_id: Airflow connection of the catalog; the URL itself may hold a password and is not stored.
        job: Name of the job.
        owner: Owner of the lease to keep while waiting; None for no lease.
        deadline_ms: When to give up; absolute, so that another triggerer going on does not begin anew.

    """

    expected: str
    """What is waited for, in words for an error message."""

    def __init__(self, *, conn_id: str, job: str, owner: str | None, deadline_ms: int) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.job = job
        self.owner = owner
        self.deadline_ms = deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments that make this trigger again."""
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

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until something has come of it or the deadline has passed."""
        catalog: Catalog | None = None
        begun = time.monotonic()
        try:
            settings = await CatalogSettings.aload(self.conn_id)
            catalog = await asyncio.to_thread(Catalog, settings.url)
            finding = await self._wait(catalog)
        except StatecoreError as error:
            finding = Finding(Status.FAILED, str(error))
        finally:
            if catalog is not None:
                await asyncio.to_thread(catalog.close)
        await asyncio.sleep(max(0.0, SETTLE_S - (time.monotonic() - begun)))
        yield TriggerEvent({"status": finding.status.value, "message": finding.message})

    async def _wait(self, catalog: Catalog) -> Finding:
        renewed_ms, message = 0, ""
        while True:
            try:
                if self.owner is not None and _now_ms() - renewed_ms >= lease_renewal_ms():
                    await asyncio.to_thread(catalog.renew_lease, self.job, self.owner, lease_ttl_ms())
                    renewed_ms = _now_ms()
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
            if _now_ms() >= self.deadline_ms:
                return self._timeout(message)
            await asyncio.sleep(POLL_S)

    def _timeout(self, message: str) -> Finding:
        deadline = datetime.fromtimestamp(self.deadline_ms / 1000, tz=UTC)
        return Finding(
            Status.TIMEOUT,
            f"found {message} at {deadline:%H:%M:%S} UTC; expected {self.expected} by then; look at the logs "
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
        request = catalog.get_request(self.request_id)
        if request.state == "done":
            return Finding(Status.DONE, f"request {request.id} to {request.kind} done: {request.result}")
        if request.state == "failed":
            return Finding(
                Status.FAILED,
                f"found request {request.id} to {request.kind} failed: {request.error}; expected the driver of job "
                f"{self.job!r} to carry it out; remove the cause and try again",
            )
        return Finding(Status.WAITING, f"request {request.id} to {request.kind} {request.state}")


class StoppedTrigger(RequestTrigger):
    """Waits until the driver has answered a request to stop and has ended, or is known to be lost."""

    expected = "the driver to write the savepoint and end"

    def look(self, catalog: Catalog) -> Finding:
        """Look at the request and the newest generation."""
        request = catalog.get_request(self.request_id)
        newest = catalog.newest_generation(self.job)
        if request.state == "failed" or not catalog.is_alive(newest):
            # The operator looks itself: it knows what to do without a driver.
            return Finding(Status.DONE, f"request {request.state}, no live driver")
        assert newest is not None
        return Finding(Status.WAITING, f"request {request.state}, generation {newest.generation} {newest.state}")


class WorkersReadyTrigger(CatalogTrigger):
    """Waits until a cluster has as many ready workers as wanted, or the supervisor says that it cannot get them."""

    def __init__(self, *, cluster: str, workers: int, **common: Any) -> None:
        super().__init__(**common)
        self.cluster = cluster
        self.workers = workers
        self.expected = f"{workers} ready"
        self._resizing = Resizing(workers)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments this class adds."""
        return {"cluster": self.cluster, "workers": self.workers}

    def look(self, catalog: Catalog) -> Finding:
        """Look at the size that the supervisor last reported."""
        cluster = catalog.cluster(self.cluster)
        try:
            is_done = self._resizing.is_done(cluster)
        except ClusterError as error:
            return Finding(Status.REFUSED, str(error))
        said = f" ({cluster.message})" if cluster.message else ""
        message = f"cluster {self.cluster!r} with {cluster.ready_workers} workers ready{said}"
        return Finding(Status.DONE if is_done else Status.WAITING, message)


class RunningTrigger(CatalogTrigger):
    """Waits until a generation newer than ``after`` runs; the failure of one is the failure of the wait."""

    expected = "the supervisor to launch a driver that reports to be running"

    def __init__(self, *, after: int, **common: Any) -> None:
        super().__init__(**common)
        self.after = after

    def arguments(self) -> dict[str, Any]:
        """Return the arguments this class adds."""
        return {"after": self.after}

    def look(self, catalog: Catalog) -> Finding:
        """Look at every newer generation: a failed one may have a successor already."""
        newer = [item for item in catalog.generations(self.job, limit=20) if item.generation > self.after]
        for generation in newer:
            if generation.state == "failed":
                return Finding(
                    Status.FAILED,
                    f"generation {generation.generation} of job {self.job!r} failed: "
                    f"{generation.error or 'no reason given'} (log: {generation.log_path})",
                )
        if not newer:
            return Finding(Status.WAITING, f"no generation after {self.after}")
        newest, is_alive = newer[0], catalog.is_alive(newer[0])
        message = f"generation {newest.generation} {newest.state}"
        if not newest.ended and not is_alive:
            message += ", not heard of lately"
        return Finding(Status.DONE if newest.state == "running" and is_alive else Status.WAITING, message)


class HealthyTrigger(CatalogTrigger):
    """Waits until a run's job does well at its new parallelism; ``statecore.operations.health`` says what that is.

    The owner of the lease is the id of the run.
    """

    def __init__(self, *, parallelism: int, **common: Any) -> None:
        super().__init__(**common)
        self.parallelism = parallelism
        self.expected = f"a live driver at parallelism {parallelism} that keeps up"
        self._verification = Verification(self.job, str(self.owner), parallelism)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments this class adds."""
        return {"parallelism": self.parallelism}

    def look(self, catalog: Catalog) -> Finding:
        """Look at the job once more."""
        try:
            health = self._verification.look(catalog)
        except UnhealthyJobError as error:
            return Finding(Status.REFUSED, str(error))
        return Finding(Status.DONE if health.is_healthy else Status.WAITING, health.found)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
