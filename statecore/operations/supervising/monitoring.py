"""Runs alerts, and metrics if configured, beside the supervisor's passes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from statecore.catalog import Catalog
from statecore.extras import require
from statecore.operations.supervising.alert_loop import CHANNEL, AlertLoop, webhook_sender
from statecore.operations.supervising.watch import Pass, Watch

_OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


@contextmanager
def monitoring(
    catalog: Catalog, *, host: str, port: int | None, last_pass: Callable[[], Pass | None]
) -> Iterator[None]:
    """Send alerts; serve metrics at a port, and push them if the environment names an OTLP endpoint.

    Args:
        catalog: The figures.
        host: Address to serve metrics at.
        port: Port to serve metrics at; None to serve none.
        last_pass: Returns the supervisor's last pass.

    Raises:
        ConfigurationError: The address is taken, or is not this host's.
        MissingExtraError: Metrics need the extra ``metrics``.

    """
    alerts = AlertLoop(catalog, CHANNEL, webhook_sender())
    with _metrics(catalog, host, port, last_pass):
        alerts.start()
        try:
            yield
        finally:
            alerts.stop()


@contextmanager
def _metrics(catalog: Catalog, host: str, port: int | None, last_pass: Callable[[], Pass | None]) -> Iterator[None]:
    is_pushed = any(os.environ.get(name) for name in _OTLP_VARIABLES)
    if port is None and not is_pushed:
        yield
        return
    require("prometheus_client", extra="metrics")
    # Of an extra, and slow to import.
    from statecore.operations.supervising.telemetry import Telemetry

    telemetry = Telemetry(host, port, last_pass, is_pushed=is_pushed)
    watch = Watch(catalog, telemetry.take, acts=lambda: last_pass() is not None)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
        telemetry.close()
