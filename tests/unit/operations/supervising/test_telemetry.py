"""The metrics of jobs: scraped over HTTP as Prometheus does, and pushed by OTLP to a receiver."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from statecore.catalog import Catalog, EpochRecord, SourceBacklog, SourceTime, SourceTopics, StateFigures, SystemClock
from statecore.cluster.ports import free_ports
from statecore.errors import ConfigurationError
from statecore.model.metrics import MetricFigure, MetricKind
from statecore.operations.status.finding import Alert
from statecore.operations.supervising.telemetry import Telemetry
from statecore.operations.supervising.watch import STALE_MS, Pass, Sample, Watch
from statecore.topics.lag import PartitionLag
from tests.support.paths import REPO
from tests.support.waiting import PATIENCE_S, wait

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        opened.clusters.register("local", "standalone", {}, 3)
        opened.clusters.report("local", ready_workers=2, message="no machines")
        opened.jobs.register(
            "orders", artifact="a", store="s", master_url="m", cluster="local", parallelism=2, max_parallelism=16
        )
        opened.jobs.set_desired("orders", state="running")
        opened.generations.claim("orders", log_path="/logs/1.log")
        opened.generations.end("orders", 1, state="failed", error="x")
        opened.generations.claim("orders", log_path="/logs/2.log")
        opened.generations.heartbeat("orders", 2)
        yield opened


def commit(catalog: Catalog, number: int, rows: int = 100, **more: Any) -> EpochRecord:
    now_ms = int(time.time() * 1000)
    made = EpochRecord(
        "orders", 3, number, 2, 2, rows, 0, now_ms - 2_000, now_ms + number, 2_000,
        {"run": 1_500.0, "commit": 300.0, "publish": 200.0}, memory_share=0.5, rows_out=rows // 2, state_rows=40,
        state_bytes=4_096, **more,
    )  # fmt: skip
    catalog.epochs.record(made)
    return made


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry("127.0.0.1", 0, lambda: Pass(7_000, 0.25))
    yield made
    made.close()


def scrape(port: int | None) -> Series:
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).raise_for_status()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def of(found: Series, name: str, **labels: str) -> float | None:
    return found.get((f"statecore_job_{name}", frozenset({"job_name": "orders", **labels}.items())))


@pytest.fixture
def full_scrape(catalog: Catalog, telemetry: Telemetry) -> Series:
    """A scrape in which no figure is unknown."""
    watch = Watch(catalog, telemetry.take, acts=lambda: True)
    watch.step()
    times = {"in": SourceTime(90_500), "quiet": SourceTime(60_500, idle=True), "new": SourceTime(None)}
    state = (StateFigures("0 stateStoreSave", 40, 1_024, 2_048),)
    metrics = (
        MetricFigure("rejected", MetricKind.COUNTER, total=3),
        MetricFigure("size", MetricKind.GAUGE, 2, 7, 3, 4),
        MetricFigure("unset", MetricKind.GAUGE),
        MetricFigure("cents", MetricKind.HISTOGRAM, 4, 9.5, -1, 8, ((None, 1), (1, 1), (3, 2))),
    )
    commit(catalog, 8, state=state, watermark_ms=60_500, source_times=times, metrics={"totals": metrics})
    backlog = [
        SourceBacklog("in", 500, event_time_lag_ms=-1_500, oldest_age_ms=2_500),
        SourceBacklog("files", bytes=9, files=0),
    ]
    catalog.epochs.record_backlog("orders", 2, backlog)
    waiting = PartitionLag("orders", 1, position=7, begin=0, end=507)
    catalog.epochs.record_topics("orders", 2, [SourceTopics("in", "broker:9092", False, (waiting,))])
    catalog.savepoints.record("/sp", job="orders", lineage=3, epoch=8, parallelism=2, reason="", created_ms=5_000)
    catalog.runs.start("r", "orders", from_parallelism=2, to_parallelism=2)
    catalog.runs.finish("r", error="no quota")
    watch.step()
    return scrape(telemetry.port)


def test_a_scrape_shows_each_figure_of_a_job(catalog: Catalog, full_scrape: Series) -> None:
    found, (epoch,) = full_scrape, catalog.epochs.of("orders")
    assert {name: of(found, name) for name in (
        "desired_running", "driver_starts_total", "driver_failures", "parallelism", "max_parallelism",
        "workers_ready", "workers_desired", "lineage", "epoch", "epoch_commit_timestamp_seconds",
        "savepoint_timestamp_seconds", "state_rows", "state_size_bytes", "memory_ratio", "backlog_rows",
        "rows_read_total", "rows_written_total", "epoch_duration_seconds_sum", "epoch_duration_seconds_count",
    )} == {
        "desired_running": 1, "driver_starts_total": 2, "driver_failures": 0, "parallelism": 2, "max_parallelism": 16,
        "workers_ready": 2, "workers_desired": 3, "lineage": 3, "epoch": 8,
        "epoch_commit_timestamp_seconds": epoch.committed_ms / 1000, "savepoint_timestamp_seconds": 5,
        "state_rows": 40, "state_size_bytes": 4_096, "memory_ratio": 0.5, "backlog_rows": 500,
        "rows_read_total": 100, "rows_written_total": 50,
        "epoch_duration_seconds_sum": 2, "epoch_duration_seconds_count": 1,
    }  # fmt: skip
    assert of(found, "epoch_phase_duration_seconds_sum", phase="run") == 1.5
    assert of(found, "epoch_duration_seconds_bucket", le="1.0") == 0
    assert of(found, "epoch_duration_seconds_bucket", le="2.5") == 1
    assert of(found, "event_time_lag_seconds", source="in") == -1.5
    assert of(found, "watermark_timestamp_seconds") == 60.5
    of_function = partial(of, found, operator="totals")
    assert of_function("function_counter_total", metric="rejected") == 3
    gauge = partial(of_function, "function_gauge")
    assert [gauge(metric="size", of=each) for each in ("least", "largest", "sum")] == [3, 4, 7]
    assert gauge(metric="unset", of="sum") is None
    assert [of_function(f"function_values_{each}", metric="cents") for each in ("sum", "count")] == [9.5, 4]
    bucket = partial(of_function, "function_values_bucket", metric="cents")
    assert [bucket(le=each) for each in ("0.0", "2.0", "8.0", "+Inf")] == [1, 2, 4, 4]
    # A source without a record has no watermark, which is not the same as zero.
    assert [of(found, "source_watermark_timestamp_seconds", source=each) for each in ("in", "new")] == [90.5, None]
    assert [of(found, "source_idle", source=each) for each in ("in", "quiet", "new")] == [0, 1, 0]
    assert of(found, "backlog_records", source="in") == 500
    assert of(found, "backlog_partition_records", source="in", partition="orders-1") == 500
    assert of(found, "backlog_age_seconds", source="in") == 2.5
    # At 100 rows in some two seconds.
    assert 5 < (of(found, "backlog_duration_seconds") or 0) < 60
    states = {dict(labels)["state"]: value for (name, labels), value in found.items() if "driver_state" in name}
    assert states["running"] == 1 and sum(states.values()) == 1 and "never_started" in states
    assert of(found, "alert_firing", alert="workers_missing", severity="warning") == 1
    assert of(found, "alert_firing", alert="crash_loop", severity="critical") == 0
    assert of(found, "rescale_runs", outcome="failed") == 1 and of(found, "rescale_runs", outcome="done") == 0
    supervisor = {name: value for (name, _), value in found.items() if name.startswith("statecore_supervisor_")}
    assert time.time() - supervisor.pop("statecore_supervisor_sample_timestamp_seconds") < PATIENCE_S
    assert supervisor == {
        "statecore_supervisor_jobs": 1,
        "statecore_supervisor_pass_duration_seconds": 0.25,
        "statecore_supervisor_pass_timestamp_seconds": 7,
    }


def test_a_query_shows_the_state_of_each_operator(catalog: Catalog, telemetry: Telemetry) -> None:
    counted, joined = StateFigures("0 stateStoreSave", 40, 1_024), StateFigures("1 symmetricHashJoin", 7, 512, 2_048)
    commit(catalog, 8, state=(counted, joined))
    Watch(catalog, telemetry.take, acts=lambda: True).step()
    found = scrape(telemetry.port)
    for state in (counted, joined):
        assert of(found, "operator_state_rows", operator=state.operator) == state.rows
        assert of(found, "operator_state_memory_bytes", operator=state.operator) == state.memory_bytes
        assert of(found, "operator_state_disk_bytes", operator=state.operator) == state.disk_bytes


def test_an_unknown_figure_is_not_zero(catalog: Catalog, telemetry: Telemetry) -> None:
    Watch(catalog, telemetry.take, acts=lambda: True).step()
    found = scrape(telemetry.port)
    for name in ("epoch", "savepoint_timestamp_seconds", "backlog_rows", "backlog_duration_seconds", "state_rows"):
        assert of(found, name) is None, name
    # But a counter begins with it, so that a rate is known from the first epoch on.
    assert of(found, "rows_read_total") == 0


def test_each_epoch_is_counted_once_from_the_start_of_the_supervisor(catalog: Catalog, telemetry: Telemetry) -> None:
    commit(catalog, 1)
    watch = Watch(catalog, telemetry.take, acts=lambda: True)
    watch.step()
    assert of(scrape(telemetry.port), "rows_read_total") == 0
    for number in (2, 3):
        commit(catalog, number)
    watch.step()
    watch.step()
    assert of(scrape(telemetry.port), "rows_read_total") == 200
    # In the millisecond of the one before.
    catalog.epochs.record(dataclasses.replace(catalog.epochs.of("orders")[-1], epoch=4))
    watch.step()
    found = scrape(telemetry.port)
    assert (of(found, "rows_read_total"), of(found, "epoch_duration_seconds_count")) == (300, 3)


def test_the_backlog_of_files_is_estimated_in_rows(catalog: Catalog, telemetry: Telemetry) -> None:
    watch = Watch(catalog, telemetry.take, acts=lambda: True)
    for number, read in ((1, 10), (2, 12)):
        commit(catalog, number, backlog=(SourceBacklog("in", files=4, bytes=9, files_read=read),))
    watch.step()
    found = scrape(telemetry.port)
    assert of(found, "backlog_files", source="in") == 4 and of(found, "backlog_size_bytes", source="in") == 9
    # Two files had the 100 rows of the second epoch.
    assert of(found, "backlog_rows") == 200


def test_figures_that_nobody_has_read_for_a_minute_are_not_shown_as_present(
    catalog: Catalog, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    Watch(catalog, telemetry.take, acts=lambda: True).step()
    assert of(scrape(telemetry.port), "parallelism") == 2
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms + STALE_MS)
    found = scrape(telemetry.port)
    assert of(found, "parallelism") is None
    assert any(name == "statecore_supervisor_sample_timestamp_seconds" for name, _ in found)


def test_a_metric_with_thousands_of_series_is_whole(catalog: Catalog, telemetry: Telemetry) -> None:
    kept: list[Sample] = []
    Watch(catalog, kept.append, acts=lambda: True).step()
    (job,) = kept[0].jobs.values()
    telemetry.take(Sample(kept[0].at_ms, {f"job-{number}": job for number in range(250)}))
    found = scrape(telemetry.port)
    assert sum(name == "statecore_job_alert_firing" for name, _ in found) == 250 * (len(Alert) - 1) > 2_000


def test_a_port_that_is_taken_is_refused(telemetry: Telemetry) -> None:
    with pytest.raises(ConfigurationError, match=rf"in use for the metrics at 127\.0\.0\.1:{telemetry.port}; expected"):
        Telemetry("127.0.0.1", telemetry.port, lambda: None)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportMetricsServiceRequest]]:
    """What a collector gets, known by the environment."""
    requests: list[ExportMetricsServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            requests.append(
                ExportMetricsServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield requests
        server.shutdown()
        thread.join()


def test_the_same_figures_are_pushed_by_otlp(
    catalog: Catalog, received: list[ExportMetricsServiceRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "streams")
    both = Telemetry("127.0.0.1", 0, lambda: Pass(7_000, 0.25), is_pushed=True)
    commit(catalog, 8)
    Watch(catalog, both.take, acts=lambda: True).step()
    scraped = scrape(both.port)
    both.close()
    (resource,) = received[-1].resource_metrics
    assert "streams" in {each.value.string_value for each in resource.resource.attributes}
    metrics = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    (parallelism,) = metrics["statecore.job.parallelism"].gauge.data_points
    assert parallelism.as_int == 2 and parallelism.attributes[0].value.string_value == "orders"
    assert metrics["statecore.job.driver.starts"].sum.is_monotonic
    # One set of instruments: each pushed metric is scraped, too.
    names = {name for name, _ in scraped}
    for name, metric in metrics.items():
        unit = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
        stem = name.replace(".", "_") + unit
        assert names & {stem, f"{stem}_total", f"{stem}_count"}, name
    assert len(metrics) > 20


def supervisor(catalog_url: str, logs: Path, *options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "statecore", "supervisor", "--catalog", catalog_url, "--logs", logs, *options]
    return subprocess.Popen([*map(str, command)], cwd=REPO)


def test_a_supervisor_serves_metrics_to_its_own_host_if_asked(catalog_url: str, tmp_path: Path) -> None:
    with Catalog(catalog_url) as catalog:
        catalog.jobs.register("orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16)
    (port,) = free_ports(1)
    running = supervisor(catalog_url, tmp_path, "--metrics-port", port)
    try:

        def sampled() -> Series:
            try:
                found = scrape(port)
            except httpx.TransportError:
                return {}
            passed = any(name == "statecore_supervisor_pass_timestamp_seconds" for name, _ in found)
            return found if passed and of(found, "parallelism") else {}

        assert of(wait(sampled, "the first sample"), "desired_running") == 0
        assert {each.laddr.ip for each in listening(running.pid)} == {"127.0.0.1"}
        running.terminate()
        assert running.wait(PATIENCE_S) == 0
    finally:
        running.kill()
        running.wait()


def listening(pid: int) -> list[Any]:
    return [each for each in psutil.Process(pid).net_connections() if each.status == psutil.CONN_LISTEN]


def test_a_supervisor_that_was_not_asked_listens_nowhere(catalog_url: str, tmp_path: Path) -> None:
    with Catalog(catalog_url) as catalog:
        catalog.clusters.register("here", "nosuch", {}, 0)
        running = supervisor(catalog_url, tmp_path)
        try:
            # By then a pass has been made.
            wait(lambda: catalog.clusters.get("here").message, "the first pass")
            assert listening(running.pid) == []
        finally:
            running.kill()
            running.wait()


def test_of_two_supervisors_the_one_that_acts_shows_the_jobs(catalog_url: str, tmp_path: Path) -> None:
    with Catalog(catalog_url) as catalog:
        catalog.jobs.register("orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16)

        def act_elsewhere() -> None:
            catalog.supervisors.lead("other", host="elsewhere", pid=1, process_started_ms=0, version="0.1.0")

        act_elsewhere()
        (port,) = free_ports(1)
        running = supervisor(catalog_url, tmp_path, "--metrics-port", port)

        def answer() -> list[Series]:
            act_elsewhere()
            try:
                return [scrape(port)]
            except httpx.TransportError:
                return []

        try:
            assert wait(answer, "its metrics") == [{}]
            catalog.supervisors.resign("other")
            wait(lambda: of(scrape(port), "parallelism"), "the jobs")
        finally:
            running.kill()
            running.wait()
