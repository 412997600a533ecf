"""The metrics endpoint: one set of OpenTelemetry instruments, read by Prometheus and pushed by OTLP.

Needs the extra ``metrics``; import it after ``require``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from wsgiref.simple_server import WSGIServer

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableCounter, ObservableGauge
from opentelemetry.sdk.metrics.export import CardinalityLimits, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, start_http_server

from statecore.catalog import SystemClock
from statecore.errors import ConfigurationError
from statecore.operations.status.measures import JOB_MEASURES, JobSample, Measure
from statecore.operations.supervising.watch import STALE_MS, Pass, Sample
from statecore.release import RELEASE

# By default a histogram's limits are for milliseconds, and the 2,001st series of a metric is lost.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_SERIES: CardinalityLimits = dict.fromkeys((Counter, Histogram, ObservableCounter, ObservableGauge), 1_000_000)


class Telemetry:
    """Serves and pushes the newest sample, until closed.

    Args:
        host: Address to serve at.
        port: Port to serve at, 0 for a free one; None to serve nothing.
        last_pass: Returns the supervisor's last pass.
        is_pushed: Whether to push to the OTLP endpoint that the environment names.

    Raises:
        ConfigurationError: The address is taken, or is not this host's.

    """

    def __init__(
        self, host: str, port: int | None, last_pass: Callable[[], Pass | None], *, is_pushed: bool = False
    ) -> None:
        self._sample: Sample | None = None
        self._last_pass = last_pass
        registry, readers = CollectorRegistry(), list[MetricReader]()
        if port is not None:
            made = PrometheusMetricReader(scope_info_enabled=False, registry=registry, cardinality_limits=_SERIES)
            readers.append(made)
        if is_pushed:
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(), cardinality_limits=_SERIES))
        self._provider = MeterProvider(readers, _resource(), shutdown_on_exit=False)
        self._meter = self._provider.get_meter("statecore", RELEASE)
        self._add_gauges()
        self._rows_read = self._meter.create_counter("statecore.job.rows.read", "", "Rows read in committed epochs")
        self._rows_written = self._meter.create_counter("statecore.job.rows.written", "", "Rows published by them")
        self._epoch_s = self._meter.create_histogram(
            "statecore.job.epoch.duration", "s", "From an epoch's start until its outputs are published",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )  # fmt: skip
        self._phase_s = self._meter.create_histogram(
            "statecore.job.epoch.phase.duration", "s", "Duration of an epoch's phases",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )  # fmt: skip
        self._server = None if port is None else _serve(host, port, registry)

    @property
    def port(self) -> int | None:
        """The port that is served; None without one."""
        return None if self._server is None else self._server.server_port

    def take(self, sample: Sample) -> None:
        """Use a sample as the newest, and count its epochs."""
        self._sample = sample
        for name, job in sample.jobs.items():
            self._count(name, job)

    def close(self) -> None:
        """Push once more, and stop."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        # A receiver that hangs must not delay the end for longer.
        self._provider.shutdown(timeout_millis=2_000)

    def _count(self, name: str, job: JobSample) -> None:
        labels = {"job_name": name}
        # Start at 0, so that a rate is known from the first epoch on.
        self._rows_read.add(sum(epoch.rows for epoch in job.epochs), labels)
        self._rows_written.add(sum(epoch.rows_out for epoch in job.epochs), labels)
        for epoch in job.epochs:
            self._epoch_s.record(epoch.duration_ms / 1000, labels)
            for phase, took_ms in epoch.phases.items():
                self._phase_s.record(took_ms / 1000, {**labels, "phase": phase})

    def _add_gauges(self) -> None:
        for measure in JOB_MEASURES:
            kind = "counter" if measure.is_counter else "gauge"
            create = getattr(self._meter, f"create_observable_{kind}")
            create(measure.name, [self._points(measure)], measure.unit, measure.text)
        for name, unit, text, read in (
            ("statecore.supervisor.jobs", "", "Jobs in the catalog", self._jobs),
            ("statecore.supervisor.sample.timestamp", "s", "When the figures of jobs were last read", self._sampled_s),
            ("statecore.supervisor.pass.duration", "s", "Duration of the last pass", self._pass_s),
            ("statecore.supervisor.pass.timestamp", "s", "When the last pass ended", self._passed_s),
        ):
            self._meter.create_observable_gauge(name, [_alone(read)], unit, text)

    def _points(self, measure: Measure) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def points(_: CallbackOptions) -> Iterable[Observation]:
            sample = self._fresh()
            return [
                Observation(value, {"job_name": name, **labels})
                for name, job in ({} if sample is None else sample.jobs).items()
                for value, labels in measure.read(job)
            ]

        return points

    def _fresh(self) -> Sample | None:
        """Return the newest sample, unless it is out of date."""
        sample = self._sample
        return sample if sample is not None and SystemClock().now_ms() - sample.at_ms < STALE_MS else None

    def _jobs(self) -> float | None:
        sample = self._fresh()
        return None if sample is None else len(sample.jobs)

    def _sampled_s(self) -> float | None:
        return None if self._sample is None else self._sample.at_ms / 1000

    def _pass_s(self) -> float | None:
        last = self._last_pass()
        return None if last is None else last.duration_s

    def _passed_s(self) -> float | None:
        last = self._last_pass()
        return None if last is None else last.ended_ms / 1000


def _alone(read: Callable[[], float | None]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def points(_: CallbackOptions) -> Iterable[Observation]:
        value = read()
        return [] if value is None else [Observation(value)]

    return points


def _resource() -> Resource:
    name = os.environ.get("OTEL_SERVICE_NAME", "statecore")
    return Resource.create({"service.name": name, "service.version": RELEASE})


def _serve(host: str, port: int, registry: CollectorRegistry) -> WSGIServer:
    try:
        server, _ = start_http_server(port, host, registry)
        return server
    except OSError as error:
        raise ConfigurationError(
            f"found {error.strerror or error} for the metrics at {host}:{port}; expected a free "
            "address of this host; give another --metrics-port or --metrics-host"
        ) from None
