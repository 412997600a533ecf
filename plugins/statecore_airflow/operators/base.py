"""Base classes of the operators: they use the catalog and wait for its records."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.catalog import Catalog
from statecore.errors import StatecoreError
from statecore.operations.changes import Finding, Status, is_retryable
from statecore_airflow.hooks.settings import CATALOG_CONNECTION, CatalogSettings, lease_renewal_ms
from statecore_airflow.links.job import LINKS, show_links
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.triggers.catalog import POLL_S, CatalogTrigger


class CatalogWideOperator(BaseOperator):
    """An operator that is not about one job; ``conn_id`` is the Airflow connection of the catalog."""

    def __init__(self, *, conn_id: str = CATALOG_CONNECTION, **kwargs: Any) -> None:
        kwargs.setdefault("on_failure_callback", JobNotifier(Event.FAILED, job=None))
        super().__init__(**kwargs)
        self.conn_id = conn_id


class CatalogOperator(BaseOperator):
    """An operator on one job.

    Args:
        job: Name of the job.
        timeout: How long to wait for the result.
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
        """Wait for a trigger's finding: look in the worker for a moment, then defer.

        A deferral costs Airflow ten seconds or more, while the job may be stopped, and most waits end within
        ``wait_here_ms``: a driver starts in twenty seconds. After a deferral Airflow calls ``execute_complete``. The
        wait renews the lease of ``owner``, if any. ``at_least_ms`` replaces a shorter ``timeout``.

        Raises:
            StepFailedError: The step failed, or the time is up.

        """
        begun_s = renewed_s = time.monotonic()
        waiting = trigger(
            conn_id=self.conn_id,
            job=self.job,
            owner=owner,
            # The triggerer, on another host, judges it after a deferral.
            deadline_ms=catalog.now_ms() + max(at_least_ms, int(self.timeout.total_seconds() * 1000)),
            **arguments,
        )
        while (finding := waiting.look(catalog)).status is Status.WAITING:
            if (time.monotonic() - begun_s) * 1000 >= self.wait_here_ms:
                self.defer(trigger=waiting, method_name="execute_complete")
            time.sleep(POLL_S)
            if (time.monotonic() - renewed_s) * 1000 >= lease_renewal_ms():
                ended = waiting.renew(catalog)
                if ended is not None:
                    finding = ended
                    break
                renewed_s = time.monotonic()
        if finding.status is Status.DONE:
            # A worker that slept past its lease must stop here; the local clock may not show that its machine slept.
            finding = waiting.renew(catalog) or finding
        self.judge(finding)

    def judge(self, finding: Finding) -> None:
        """Log the finding that ended a wait.

        Raises:
            StepFailedError: The step failed.

        """
        self.log.info("%s: %s", finding.status, finding.message)
        finding.check()

    def catalog(self, context: Context | None = None) -> AbstractContextManager[Catalog]:
        """Open the catalog, with the user who triggered the run as author; see ``open_catalog``."""
        return open_catalog(self.conn_id, None if context is None else _author(context))


@contextmanager
def open_catalog(conn_id: str, who: str | None = None) -> Iterator[Catalog]:
    """Open the catalog of a connection; errors are converted by ``airflow_errors``."""
    with airflow_errors(), Catalog(CatalogSettings.load(conn_id).url, who=who) as catalog:
        yield catalog


def _author(context: Context) -> str:
    """Return the user who triggered a DAG run, or the DAG that Airflow started by itself."""
    user = getattr(context.get("dag_run"), "triggering_user_name", None)
    return f"{user} (Airflow)" if user else f"DAG {context['dag'].dag_id} (Airflow)"


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Convert this library's errors to Airflow's.

    Raises:
        AirflowException: Failed; retryable.
        AirflowFailException: Failed for good.

    """
    try:
        yield
    except StatecoreError as error:
        raise (AirflowException if is_retryable(error) else AirflowFailException)(str(error)) from error


def event_finding(event: dict[str, str]) -> Finding:
    """Return the finding in a trigger's event."""
    return Finding(Status(event["status"]), event["message"])
