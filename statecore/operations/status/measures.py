"""The metrics of each job, under their public names; pure.

Names and units are OpenTelemetry's; Prometheus sees ``statecore.job.epoch.age`` in ``s`` as
``statecore_job_epoch_age_seconds``. An unknown figure has no point, which is not the same as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from statecore.catalog import EpochRecord, RescaleState, SourceBacklog, SourceTime, StateFigures
from statecore.model.metrics import MetricFigure, MetricKind, upper_bound
from statecore.operations.status.alerts import RULES, job_alerts
from statecore.operations.status.finding import Alert
from statecore.operations.status.job_status import DriverState, JobStatus

Point = tuple[float, Mapping[str, str]]
"""A value and its labels, beside ``job_name``."""


@dataclass(frozen=True, slots=True)
class JobSample:
    """The figures of a job at one time.

    Attributes:
        status: Status of the job.
        waiting_rows: Backlog in rows, estimated for sources that count files; None when unknown.
        rescales: Its rescale runs in the catalog, by state.
        epochs: Epochs committed since the last sample, in order.

    """

    status: JobStatus
    waiting_rows: int | None
    rescales: Mapping[RescaleState, int]
    epochs: Sequence[EpochRecord]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a job.

    Attributes:
        unit: UCUM; empty for a plain number.
        text: Its description.
        read: Returns its points.
        is_counter: Whether it only grows.

    """

    name: str
    unit: str
    text: str
    read: Callable[[JobSample], Iterable[Point]]
    is_counter: bool = False


def _driver_state(job: JobSample) -> Iterator[Point]:
    for state in get_args(DriverState):
        yield float(job.status.driver == state), {"state": state.replace(" ", "_")}


def _alerts(job: JobSample) -> Iterator[Point]:
    firing = {each.alert for each in job_alerts(job.status) if not each.only_keeps}
    for alert in Alert:
        if alert is not Alert.SUPERVISOR_DEAD:
            yield float(alert in firing), {"alert": alert.value, "severity": RULES[alert].severity.value}


def _rescales(job: JobSample) -> Iterator[Point]:
    for state in get_args(RescaleState):
        yield float(job.rescales.get(state, 0)), {"outcome": state}


def _one(read: Callable[[JobStatus], float | None]) -> Callable[[JobSample], Iterator[Point]]:
    def points(job: JobSample) -> Iterator[Point]:
        value = read(job.status)
        if value is not None:
            yield value, {}

    return points


def _of_epoch(read: Callable[[EpochRecord], float | None]) -> Callable[[JobSample], Iterator[Point]]:
    return _one(lambda status: None if status.figures.epoch is None else read(status.figures.epoch))


def _per_source(read: Callable[[SourceBacklog], float | None]) -> Callable[[JobSample], Iterator[Point]]:
    def points(job: JobSample) -> Iterator[Point]:
        backlog = job.status.figures.backlog
        for source in () if backlog is None else backlog.sources:
            value = read(source)
            if value is not None:
                yield value, {"source": source.name}

    return points


def _per_operator(read: Callable[[StateFigures], float | None]) -> Callable[[JobSample], Iterator[Point]]:
    def points(job: JobSample) -> Iterator[Point]:
        epoch = job.status.figures.epoch
        for state in () if epoch is None else epoch.state:
            value = read(state)
            if value is not None:
                yield value, {"operator": state.operator}

    return points


def _per_source_time(read: Callable[[SourceTime], float | None]) -> Callable[[JobSample], Iterator[Point]]:
    def points(job: JobSample) -> Iterator[Point]:
        epoch = job.status.figures.epoch
        for name, time in () if epoch is None else epoch.source_times.items():
            value = read(time)
            if value is not None:
                yield value, {"source": name}

    return points


def _of_functions(kind: MetricKind, read: Callable[[MetricFigure], float]) -> Callable[[JobSample], Iterator[Point]]:
    def points(job: JobSample) -> Iterator[Point]:
        for metric, labels in _metrics(job, kind):
            yield read(metric), labels

    return points


def _metrics(job: JobSample, kind: MetricKind) -> Iterator[tuple[MetricFigure, dict[str, str]]]:
    epoch = job.status.figures.epoch
    for uid, metrics in () if epoch is None else epoch.metrics.items():
        for metric in metrics:
            if metric.kind is kind:
                yield metric, {"operator": uid, "metric": metric.name}


def _gauges(job: JobSample) -> Iterator[Point]:
    for metric, labels in _metrics(job, MetricKind.GAUGE):
        for of, value in (("least", metric.least), ("largest", metric.largest), ("sum", metric.total)):
            if metric.count and value is not None:
                yield value, {**labels, "of": of}


def _buckets(job: JobSample) -> Iterator[Point]:
    for metric, labels in _metrics(job, MetricKind.HISTOGRAM):
        seen = 0
        for exponent, count in metric.buckets:
            seen += count
            if upper_bound(exponent) < math.inf:
                yield seen, {**labels, "le": repr(upper_bound(exponent))}
        yield metric.count, {**labels, "le": "+Inf"}


def _per_partition(job: JobSample) -> Iterator[Point]:
    topics = job.status.topics
    for source in () if topics is None else topics.sources:
        for each in source.partitions:
            if each.records is None:
                continue
            yield each.records, {"source": source.name, "partition": f"{each.topic}-{each.partition}"}


def _waiting_rows(job: JobSample) -> Iterator[Point]:
    if job.waiting_rows is not None:
        yield job.waiting_rows, {}


def _backlog_s(job: JobSample) -> Iterator[Point]:
    rate = job.status.figures.rows_per_second
    if job.waiting_rows == 0:
        yield 0.0, {}
    elif job.waiting_rows is not None and rate:
        yield job.waiting_rows / rate, {}


def _lag_s(source: SourceBacklog) -> float | None:
    return None if source.event_time_lag_ms is None else source.event_time_lag_ms / 1000


JOB_MEASURES = (
    Measure("statecore.job.driver.state", "", "1 for the state of the newest driver, 0 for others", _driver_state),
    Measure(
        "statecore.job.desired.running", "", "1 if the job should run, else 0",
        _one(lambda status: float(status.job.desired_state == "running")),
    ),
    Measure(
        "statecore.job.driver.starts", "", "Drivers started so far: the newest generation",
        _one(lambda status: None if status.generation is None else status.generation.generation), is_counter=True,
    ),
    Measure(
        "statecore.job.driver.failures", "", "Drivers that failed in a row, 0 once one has settled",
        _one(lambda status: len(status.failures)),
    ),
    Measure(
        "statecore.job.parallelism", "", "Subtasks that the job runs with",
        _one(lambda at: at.generation.parallelism if at.generation and at.alive else at.job.parallelism),
    ),
    Measure(
        "statecore.job.max_parallelism", "", "Upper limit of the parallelism",
        _one(lambda status: status.job.max_parallelism),
    ),
    Measure(
        "statecore.job.workers.ready", "", "Workers of its cluster that are ready",
        _one(lambda status: None if status.cluster is None else status.cluster.ready_workers),
    ),
    Measure(
        "statecore.job.workers.desired", "", "Workers that its cluster should have",
        _one(lambda status: None if status.cluster is None else status.cluster.desired_workers),
    ),
    Measure("statecore.job.lineage", "", "Lineage of the newest epoch", _of_epoch(lambda epoch: epoch.lineage)),
    Measure("statecore.job.epoch", "", "Number of the newest epoch", _of_epoch(lambda epoch: epoch.epoch)),
    Measure(
        "statecore.job.epoch.commit.timestamp", "s", "When the newest epoch, the newest checkpoint, was committed",
        _of_epoch(lambda epoch: epoch.committed_ms / 1000),
    ),
    Measure(
        "statecore.job.savepoint.timestamp", "s", "When the newest savepoint was taken",
        _one(lambda status: None if status.savepoint is None else status.savepoint.created_ms / 1000),
    ),
    Measure(
        "statecore.job.state.rows", "", "Rows of keyed state after the newest epoch",
        _of_epoch(lambda epoch: epoch.state_rows),
    ),
    Measure(
        "statecore.job.state.size", "By", "Size of the state files that the newest epoch refers to",
        _of_epoch(lambda epoch: epoch.state_bytes),
    ),
    Measure(
        "statecore.job.operator.state.rows", "", "Rows of state of a query's operator",
        _per_operator(lambda state: state.rows),
    ),
    Measure(
        "statecore.job.operator.state.memory", "By", "Memory that the state of a query's operator takes",
        _per_operator(lambda state: state.memory_bytes),
    ),
    Measure(
        "statecore.job.operator.state.disk", "By", "Size of the files of a query's operator, in RocksDB",
        _per_operator(lambda state: state.disk_bytes),
    ),
    Measure(
        "statecore.job.watermark.timestamp", "s", "Event-time watermark of the job",
        _of_epoch(lambda epoch: None if epoch.watermark_ms is None else epoch.watermark_ms / 1000),
    ),
    Measure(
        "statecore.job.source.watermark.timestamp", "s", "Event-time watermark of a source",
        _per_source_time(lambda time: None if time.watermark_ms is None else time.watermark_ms / 1000),
    ),
    Measure(
        "statecore.job.source.idle", "", "1 if the job's watermark goes on without a source, else 0",
        _per_source_time(lambda time: float(time.idle)),
    ),
    Measure(
        "statecore.job.function.counter", "", "A counter of a function, since the job's start",
        _of_functions(MetricKind.COUNTER, lambda metric: metric.total), is_counter=True,
    ),
    Measure("statecore.job.function.gauge", "", "A gauge of a function, over its subtasks", _gauges),
    Measure(
        "statecore.job.function.values.count", "", "Values that a histogram of a function was given",
        _of_functions(MetricKind.HISTOGRAM, lambda metric: metric.count),
    ),
    Measure(
        "statecore.job.function.values.sum", "", "Sum of these values",
        _of_functions(MetricKind.HISTOGRAM, lambda metric: metric.total),
    ),
    Measure("statecore.job.function.values.bucket", "", "Values of at most le", _buckets),
    Measure(
        "statecore.job.memory.ratio", "", "Share of its memory that the fullest worker used in the newest epoch",
        _of_epoch(lambda epoch: epoch.memory_share),
    ),
    Measure("statecore.job.backlog.rows", "", "Rows that wait, estimated for sources that count files", _waiting_rows),
    Measure(
        "statecore.job.backlog.duration", "s", "Time to read the rows that wait at the present rate, none arriving",
        _backlog_s,
    ),
    Measure(
        "statecore.job.backlog.records", "", "Records that wait in a source", _per_source(lambda each: each.records)
    ),
    Measure(
        "statecore.job.backlog.partition.records", "", "Records that wait in a partition of a topic", _per_partition
    ),
    Measure(
        "statecore.job.backlog.age", "s", "Age of the oldest record that waits in a Kafka source",
        _per_source(lambda each: None if each.oldest_age_ms is None else each.oldest_age_ms / 1000),
    ),
    Measure("statecore.job.backlog.files", "", "Files that wait in a source", _per_source(lambda each: each.files)),
    Measure("statecore.job.backlog.size", "By", "Size of the files that wait", _per_source(lambda each: each.bytes)),
    Measure(
        "statecore.job.event_time.lag", "s", "From the newest event time read from a source to its measurement",
        _per_source(_lag_s),
    ),
    Measure("statecore.job.rescale.runs", "", "Rescale runs that the catalog has, by outcome", _rescales),
    Measure("statecore.job.alert.firing", "", "1 for an alert that fires, 0 for others", _alerts),
)  # fmt: skip
