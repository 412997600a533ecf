"""Routes: the list of jobs, and one job."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from fastapi import APIRouter

from statecore.catalog import Catalog, EpochRecord, TopicsRecord
from statecore.operations.status.job_status import JobStatus, job_status
from statecore_airflow.web.access import IsChangeable, IsReadable, JobName, Triggerable
from statecore_airflow.web.answers import (
    Backlog,
    Decision,
    FunctionMetric,
    Generation,
    JobAnswer,
    JobsAnswer,
    Policy,
    RescaleRun,
    Savepoint,
    SourceTime,
    StateOfOperator,
    TopicPartition,
)
from statecore_airflow.web.catalogs import CatalogDep
from statecore_airflow.web.overview import sent_alerts, summaries, summary

router = APIRouter()

_LISTED = 50
_OF_METRIC = ("name", "kind", "count", "total", "least", "largest")


@router.get("/api/jobs")
def get_jobs(catalog: CatalogDep, is_readable: IsReadable) -> JobsAnswer:
    """Return all jobs that the user may read."""
    return JobsAnswer(now_ms=catalog.now_ms(), jobs=summaries(catalog, is_readable))


@router.get("/api/job")
def get_job(name: JobName, catalog: CatalogDep, triggerable: Triggerable, is_changeable: IsChangeable) -> JobAnswer:
    """Return how a job stands, its history, and what the user may do."""
    status = job_status(catalog, catalog.jobs.get(name))
    partitions = _partitions(status.topics)
    backlog, epoch, policy = status.figures.backlog, status.figures.epoch, status.policy
    times = {} if epoch is None else epoch.source_times
    return JobAnswer(
        now_ms=status.now_ms,
        desired_state=status.job.desired_state,
        triggerable=triggerable,
        may_abort="rescale" in triggerable and is_changeable(name),
        may_set_policy="autoscale" in triggerable and is_changeable(name),
        ui_url=_ui_url(catalog, status),
        job=summary(status, sent_alerts(catalog)),
        sources=[Backlog.model_validate(each) for each in (backlog.sources if backlog else ())],
        partitions=partitions[:_LISTED],
        partitions_total=len(partitions),
        state=[StateOfOperator.model_validate(each) for each in (epoch.state if epoch else ())],
        watermark_ms=None if epoch is None else epoch.watermark_ms,
        held_by=None if epoch is None else epoch.held_by,
        source_times={name: SourceTime.model_validate(each) for name, each in times.items()},
        metrics=list(_metrics(epoch)),
        savepoints=[Savepoint.model_validate(each) for each in catalog.savepoints.of(name, limit=_LISTED)],
        rescales=[RescaleRun.model_validate(each) for each in catalog.runs.of(name, limit=_LISTED)],
        policy=None if policy is None else Policy.model_validate(policy),
        decisions=[Decision.model_validate(each) for each in catalog.policies.decisions(name, limit=_LISTED)],
        generations=[Generation.model_validate(each) for each in catalog.generations.of(name, limit=_LISTED)],
    )


def _ui_url(catalog: Catalog, status: JobStatus) -> str | None:
    """Return the address of Spark's pages about the running driver."""
    dataflow, newest = catalog.epochs.dataflow(status.job.name), status.generation
    if dataflow is None or newest is None or not status.alive or dataflow.generation != newest.generation:
        return None
    # A driver has written it: nothing that a browser would run.
    try:
        scheme = urlsplit(dataflow.ui_url or "").scheme
    except ValueError:
        return None
    return dataflow.ui_url if scheme in ("http", "https") else None


def _metrics(epoch: EpochRecord | None) -> Iterator[FunctionMetric]:
    for uid, metrics in () if epoch is None else epoch.metrics.items():
        for each in metrics:
            half, most = each.quantile(0.5), each.quantile(0.99)
            yield FunctionMetric(uid=uid, half=half, most=most, **{name: getattr(each, name) for name in _OF_METRIC})


def _partitions(topics: TopicsRecord | None) -> list[TopicPartition]:
    """Return the backlog of each partition, the largest first."""
    partitions = [
        TopicPartition(
            source=source.name,
            topic=each.topic,
            partition=each.partition,
            position=each.position,
            records=each.records,
            oldest_ms=each.oldest_ms,
        )
        for source in (() if topics is None else topics.sources)
        for each in source.partitions
    ]
    return sorted(partitions, key=lambda each: (-(each.records or 0), each.topic, each.partition))
