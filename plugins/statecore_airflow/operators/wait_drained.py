"""Waits until a backlog is drained."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Context

from statecore.catalog import Catalog
from statecore.operations.autoscaling.figures import CurrentBacklog, current_backlog
from statecore.operations.changes import Finding, Status
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.operators.base import CatalogOperator, airflow_errors, event_finding
from statecore_airflow.params.catch_up import CatchUpRequest
from statecore_airflow.triggers.catalog import CatalogTrigger

# A driver measures every few seconds, and less often only if listing a folder takes long.
_OUT_OF_DATE_MS = 300_000
# Spark reports a source's backlog, such as Kafka's lag, after a driver's first epoch.
_FIRST_EPOCH_MS = 120_000


class DrainedTrigger(CatalogTrigger):
    """Waits until backlog and event-time lag have been under their limits for a time; holds no lease.

    Args:
        rows: Rows that may wait.
        lag_ms: Event-time lag allowed while rows wait, None for any. Without a backlog even a silent source has a lag.
        hold_ms: How long both must stay under their limits.
        since_ms: Time since which both are under their limits, if another process has seen it.
        **common: See ``CatalogTrigger``.

    """

    def __init__(
        self, *, rows: int, lag_ms: int | None, hold_ms: int, since_ms: int | None = None, **common: Any
    ) -> None:
        super().__init__(**common)
        self.rows, self.lag_ms, self.hold_ms, self.since_ms = rows, lag_ms, hold_ms, since_ms
        lag = "" if lag_ms is None else f" and event time no more than {lag_ms / 1000:,.0f} s behind"
        self.expected = f"at most {rows:,} rows to wait{lag}, for {hold_ms / 1000:.0f} s"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments this class adds."""
        return {"rows": self.rows, "lag_ms": self.lag_ms, "hold_ms": self.hold_ms, "since_ms": self.since_ms}

    def look(self, catalog: Catalog) -> Finding:
        """Look at the newest measurement."""
        backlog = current_backlog(catalog, self.job)
        if backlog is None or catalog.now_ms() - backlog.measured_ms > _OUT_OF_DATE_MS:
            self.since_ms = None
            return Finding(Status.WAITING, f"no backlog of job {self.job!r} measured lately")
        if backlog.rows is None and (backlog.lag_ms is None or self.lag_ms is None):
            newest = catalog.generations.newest(self.job)
            if newest is not None and backlog.measured_ms - newest.started_ms < _FIRST_EPOCH_MS:
                return Finding(Status.WAITING, f"no source of job {self.job!r} has reported its backlog yet")
            return Finding(
                Status.REFUSED,
                f"found no source of job {self.job!r} that reports its backlog; expected one, or a source with event "
                "time and a limit for its lag; set a limit for the lag, or rescale by hand",
            )
        if not self._is_under(backlog):
            self.since_ms = None
            return Finding(Status.WAITING, _words(backlog))
        if self.since_ms is None:
            self.since_ms = backlog.measured_ms
        held_ms = backlog.measured_ms - self.since_ms
        status = Status.DONE if held_ms >= self.hold_ms else Status.WAITING
        return Finding(status, f"{_words(backlog)}, under the limits")

    def _is_under(self, backlog: CurrentBacklog) -> bool:
        if backlog.rows is not None and backlog.rows > self.rows:
            return False
        return self.lag_ms is None or backlog.rows == 0 or (backlog.lag_ms or 0) <= self.lag_ms


class WaitDrainedOperator(CatalogOperator):
    """Waits until the backlog is drained, by the limits in the run's parameters."""

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        kwargs.setdefault("on_success_callback", JobNotifier(Event.DRAINED, job=job))
        super().__init__(job=job, **kwargs)

    def execute(self, context: Context) -> None:
        """Wait in a trigger, up to the run's timeout."""
        request = CatchUpRequest.of(context["params"])
        self.timeout = timedelta(minutes=request.timeout_minutes)
        with self.catalog() as catalog:
            self.wait(
                catalog,
                DrainedTrigger,
                rows=request.backlog,
                lag_ms=None if request.lag_minutes is None else int(request.lag_minutes * 60_000),
                hold_ms=int(request.hold_seconds * 1000),
            )

    def execute_complete(self, context: Context, event: dict[str, str]) -> None:
        """Continue after the trigger has fired."""
        with airflow_errors():
            self.judge(event_finding(event))


def _words(backlog: CurrentBacklog) -> str:
    rows = "backlog unknown" if backlog.rows is None else f"{backlog.rows:,} rows wait"
    return rows if backlog.lag_ms is None else f"{rows}, event time {backlog.lag_ms / 1000:,.0f} s behind"
