"""What all steps of a rescale have in common."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.catalog import Catalog, RescaleRunRecord, SystemClock
from statecore.errors import CatalogError, StatecoreError, UnknownRecordError
from statecore_airflow.settings import CATALOG_CONNECTION, CatalogSettings
from statecore_airflow.triggers import LEASE_TTL_MS, POLL_S, CatalogTrigger, Status


def fail_rescale_run(context: Context) -> None:
    """Record why a run failed; its lease stays and expires, upon which the supervisor recovers the job."""
    with suppress(UnknownRecordError), Catalog(CatalogSettings.load().url) as catalog:
        reason = context.get("exception") or "the task was ended from outside"
        catalog.finish_rescale_run(str(context["run_id"]), error=str(reason))


class RescaleStep(BaseOperator):
    """One step of a rescale run: say what is wanted, wait, defer if it takes long, go on when the catalog shows it.

    A step that is tried or run again finds what it did before, in the catalog, under the id of its DAG run.

    Args:
        job: Name of the job.
        timeout: How long to wait for what was asked.
        conn_id: Airflow connection of the catalog.
        **kwargs: Passed on to Airflow.

    """

    step: ClassVar[str]
    wait_here_ms: ClassVar[int] = 12_000
    template_fields: Collection[str] = ("job",)
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        job: str,
        timeout: timedelta = timedelta(minutes=5),
        conn_id: str = CATALOG_CONNECTION,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("on_failure_callback", fail_rescale_run)
        super().__init__(**kwargs)
        self.job = job
        self.timeout = timeout
        self.conn_id = conn_id

    def execute(self, context: Context) -> str | None:
        """Begin the step, or go on where an earlier try left it."""
        with self._catalog() as catalog:
            run = find_run(catalog, run_id(context))
            if run is not None and run.state == "done":
                self.log.info("Rescale run %s is done; nothing is left to do", run.run_id)
                catalog.release_lease(self.job, run.run_id)
                return self.recorded(run)
            self.hold_lease(catalog, run_id(context), run)
            return self._end(catalog, context, self.begin(catalog, run_id(context)))

    def execute_complete(self, context: Context, event: dict[str, str]) -> str | None:
        """Go on after a trigger has fired."""
        self._judge(event["status"], event["message"])
        with self._catalog() as catalog:
            self.hold_lease(catalog, run_id(context), find_run(catalog, run_id(context)))
            return self._end(catalog, context, self.finish(catalog, run_id(context)))

    @abstractmethod
    def begin(self, catalog: Catalog, run: str) -> str | None:
        """Ask for what the step does, wait for it, and return what ``finish`` returns."""

    @abstractmethod
    def finish(self, catalog: Catalog, run: str) -> str | None:
        """Return the step's result, now that what was asked for is there."""

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the result of this step in a run that is done."""
        return None

    def hold_lease(self, catalog: Catalog, run: str, record: RescaleRunRecord | None) -> None:
        """Renew the lease: a run that has lost it must not touch the job any more."""
        catalog.renew_lease(self.job, run, LEASE_TTL_MS)

    def wait(self, catalog: Catalog, trigger: type[CatalogTrigger], run: str, **arguments: Any) -> None:
        """Return when what was asked for is there; after a moment in the worker, a trigger waits instead.

        A deferral costs Airflow several seconds, and most steps need no longer than that. When it is a trigger that
        has waited, the step goes on in ``finish``.
        """
        begun_ms = now_ms()
        waiting = trigger(
            conn_id=self.conn_id,
            job=self.job,
            owner=run,
            deadline_ms=begun_ms + int(self.timeout.total_seconds() * 1000),
            **arguments,
        )
        while (finding := waiting.look(catalog)).status is Status.WAITING:
            if now_ms() - begun_ms >= self.wait_here_ms:
                self.defer(trigger=waiting, method_name="execute_complete")
            time.sleep(POLL_S)
        self._judge(finding.status, finding.message)

    def _judge(self, status: str, message: str) -> None:
        self.log.info("%s: %s", status, message)
        if status == Status.TIMEOUT:
            raise AirflowFailException(message)
        if status == Status.FAILED:
            raise AirflowException(message)

    def _end(self, catalog: Catalog, context: Context, result: str | None) -> str | None:
        catalog.mark_step(run_id(context), self.step, ended=True)
        return result

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        """Open the catalog; what cannot get better by trying again fails the task for good."""
        try:
            with Catalog(CatalogSettings.load(self.conn_id).url) as catalog:
                yield catalog
        except StatecoreError as error:
            if type(error) is CatalogError:
                raise AirflowException(str(error)) from error
            raise AirflowFailException(str(error)) from error


def run_id(context: Context) -> str:
    """Return the id under which this DAG run is known to the catalog: as rescale run and as lease owner."""
    return str(context["run_id"])


def find_run(catalog: Catalog, run: str) -> RescaleRunRecord | None:
    """Return a rescale run, or None when it was never started."""
    with suppress(UnknownRecordError):
        return catalog.rescale_run(run)
    return None


def now_ms() -> int:
    """Return the time in milliseconds since the epoch, UTC."""
    return SystemClock().now_ms()
