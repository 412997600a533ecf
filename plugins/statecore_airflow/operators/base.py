"""What all operators have in common: they talk to the catalog, and wait for what it shows."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.catalog import Catalog, SystemClock
from statecore.errors import CatalogError, StatecoreError, StorageError
from statecore_airflow.hooks.settings import CATALOG_CONNECTION, CatalogSettings, lease_renewal_ms, lease_ttl_ms
from statecore_airflow.links.job import LINKS, show_links
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.triggers.catalog import POLL_S, CatalogTrigger, Status


class CatalogOperator(BaseOperator):
    """An operator on one job.

    Args:
        job: Name of the job.
        timeout: How long to wait for what was asked.
        conn_id: Airflow connection of the catalog.
        **kwargs: Passed on to Airflow.

    """

    wait_here_ms: ClassVar[int] = 25_000
    template_fields: Collection[str] = ("job",)
    ui_color = "#e8f0fe"
    operator_extra_links = LINKS

    def __init__(
        self,
        *,
        job: str,
        timeout: timedelta = timedelta(minutes=5),
        conn_id: str = CATALOG_CONNECTION,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("on_failure_callback", JobNotifier(Event.FAILED, job=job))
        super().__init__(**kwargs)
        self.job = job
        self.timeout = timeout
        self.conn_id = conn_id

    def pre_execute(self, context: Context) -> None:
        """Show the links while the task runs and waits, not only when it has ended."""
        show_links(self, context)

    def wait(
        self,
        catalog: Catalog,
        trigger: type[CatalogTrigger],
        *,
        owner: str | None = None,
        at_least_ms: int = 0,
        **arguments: Any,
    ) -> None:
        """Return when what was asked for is there; after a moment in the worker, a trigger waits instead.

        A deferral costs Airflow ten seconds and more, in which the job stands still, and most steps are soon done: a
        driver starts in twenty. When it is a trigger that has waited, the operator goes on in ``execute_complete``.

        Args:
            catalog: Where to look.
            trigger: What to wait for.
            owner: Owner of the lease to keep meanwhile; None for no lease.
            at_least_ms: How long to wait, if that is longer than ``timeout``.
            arguments: Of the trigger.

        Raises:
            AirflowException: It came to nothing, and may come to something when it is tried again.
            AirflowFailException: It will not.

        """
        begun_ms = renewed_ms = now_ms()
        waiting = trigger(
            conn_id=self.conn_id,
            job=self.job,
            owner=owner,
            deadline_ms=begun_ms + max(at_least_ms, int(self.timeout.total_seconds() * 1000)),
            **arguments,
        )
        while (finding := waiting.look(catalog)).status is Status.WAITING:
            if now_ms() - begun_ms >= self.wait_here_ms:
                self.defer(trigger=waiting, method_name="execute_complete")
            time.sleep(POLL_S)
            # Before the next look: who has slept too long, with the machine perhaps, must not go on with what it finds.
            if owner is not None and now_ms() - renewed_ms >= lease_renewal_ms():
                catalog.renew_lease(self.job, owner, lease_ttl_ms())
                renewed_ms = now_ms()
        self.judge(finding.status, finding.message)

    def judge(self, status: str, message: str) -> None:
        """Log what has become of a wait.

        Raises:
            AirflowException: It came to nothing, and may come to something when it is tried again.
            AirflowFailException: It will not.

        """
        self.log.info("%s: %s", status, message)
        if status in (Status.TIMEOUT, Status.REFUSED):
            raise AirflowFailException(message)
        if status == Status.FAILED:
            raise AirflowException(message)

    def catalog(self) -> AbstractContextManager[Catalog]:
        """Open the catalog; what cannot get better by trying again fails the task for good."""
        return open_catalog(self.conn_id)


@contextmanager
def open_catalog(conn_id: str) -> Iterator[Catalog]:
    """Open the catalog that a connection names.

    Raises:
        AirflowException: It, or a store, cannot be reached now.
        AirflowFailException: What is done with it will not come to anything by trying again.

    """
    try:
        with Catalog(CatalogSettings.load(conn_id).url) as catalog:
            yield catalog
    except StatecoreError as error:
        # What may be otherwise in a moment; whatever will not be has a kind of its own.
        if type(error) in (CatalogError, StorageError):
            raise AirflowException(str(error)) from error
        raise AirflowFailException(str(error)) from error


def run_id(context: Context) -> str:
    """Return Airflow's id of the DAG run."""
    return str(context["run_id"])


def now_ms() -> int:
    """Return the time in milliseconds since the epoch, UTC."""
    return SystemClock().now_ms()
