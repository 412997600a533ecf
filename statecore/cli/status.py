"""``status``: everything about one job, on one screen, for the person on call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.filesize import decimal
from rich.markup import escape

from statecore.catalog import Catalog, EpochRecord, RescaleRunRecord, SourceTopics, StateFigures
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import NOTHING, console, facts, lag, print_json, utc, waiting
from statecore.model.metrics import MetricFigure, MetricKind
from statecore.operations.kinds import kind_of
from statecore.operations.status.advice import advice
from statecore.operations.status.finding import span
from statecore.operations.status.job_status import JobStatus, job_status, summary
from statecore.topics.lag import oldest_age_ms, records, skew

# The rest, the job as it was, has its configuration.
_LEASE = ("owner", "acquired_ms", "heartbeat_ms", "expires_ms")
_COLOURS = {"running": "green", "failed": "red", "lost": "red", "launching": "yellow"}


def show_status(name: JobName, catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print how a job runs, which run changes it, the last error, and what to do."""
    with Catalog(catalog) as opened:
        status = job_status(opened, opened.jobs.get(name))
    if as_json:
        print_json(_contents(status))
        return
    made = facts()
    for label, value in _lines(status):
        made.add_row(label, value)
    screen = console()
    screen.print(_headline(status))
    screen.print(made)


def _contents(status: JobStatus) -> dict[str, Any]:
    """Return the contents for programs; the configuration is left out, because it may hold secrets."""
    return {
        **msgspec.to_builtins(summary(status)),
        "heartbeat_ms": None if status.generation is None else status.generation.heartbeat_ms,
        "workers": None
        if status.cluster is None
        else {"ready": status.cluster.ready_workers, "desired": status.cluster.desired_workers},
        "newest_epoch": status.figures.epoch,
        "savepoint": status.savepoint,
        "lease": None if status.lease is None else {name: getattr(status.lease, name) for name in _LEASE},
        "rescale": status.rescale,
        "policy": status.policy,
        "topics": status.topics,
        "advice": advice(status),
        "now_ms": status.now_ms,
    }


def _headline(status: JobStatus) -> str:
    state, colour = status.driver.upper(), _COLOURS.get(status.driver, "default")
    generation = status.generation
    if status.crash_loops:
        state, colour = f"CRASH LOOP: {len(status.failures)} failures in a row", "red"
        state += "" if status.driver == "failed" else f", {status.driver} again"
    parts = [f"[bold]{escape(status.job.name)}[/]", f"[bold {colour}]{state}[/]"]
    if status.job.desired_state == "stopped" or status.driver in ("stopped", "never started"):
        parts.append(f"(it should be {status.job.desired_state})")
    if generation is not None:
        since_ms = generation.started_ms if generation.ended_ms is None else generation.ended_ms
        parts.append(f"generation {generation.generation}, since {_when(status, since_ms)}")
    return "  ".join(parts)


def _lines(status: JobStatus) -> Iterator[tuple[str, str]]:
    job, figures, cluster = status.job, status.figures, status.cluster
    yield "size", escape(kind_of(job).size(_parallelism(status)))
    if cluster is not None:
        yield "workers", f"{cluster.ready_workers} ready of {cluster.desired_workers} (cluster {escape(cluster.name)})"
    else:
        yield "workers", f"of {escape(job.master_url)}, not managed by statecore"
    # Measurements of a driver that no longer runs are out of date.
    runs, rate = status.driver == "running", figures.rows_per_second
    yield "rows/s", f"{rate:,.0f}" if runs and rate is not None else NOTHING
    measured = "" if figures.backlog is None else f", measured {_ago(status, figures.backlog.measured_ms)}"
    yield "backlog", f"{waiting(status.waiting)}{measured}"
    for source in () if status.topics is None else status.topics.sources:
        yield f"topics of {escape(source.name)}", escape(_topics(source, status.now_ms))
    yield "lag", lag(status.waiting) if runs else NOTHING
    if figures.epoch is not None and (figures.epoch.watermark_ms is not None or figures.epoch.source_times):
        yield "watermark", escape(_watermark(status, figures.epoch))
    for each in () if figures.epoch is None else figures.epoch.state:
        yield f"state of {escape(each.operator)}", _state(each)
    for uid, metrics in () if figures.epoch is None else figures.epoch.metrics.items():
        for metric in metrics:
            yield f"{escape(uid)} {escape(metric.name)}", _metric(metric)
    yield "newest epoch", _epoch(status)
    yield "newest savepoint", _savepoint(status)
    yield "lease", _lease(status)
    yield "last rescale", NOTHING if status.rescale is None else escape(_rescale(status, status.rescale))
    yield "policy", escape(_policy(status))
    yield "last error", escape(_error(status))
    if status.generation is not None:
        yield "log", escape(status.generation.log_path) or NOTHING
    todo = advice(status) or ["nothing"]
    for index, line in enumerate(todo):
        yield "what to do" if index == 0 else "", escape(line)


def _topics(source: SourceTopics, now_ms: int) -> str:
    partitions = source.partitions
    waiting, times = records(partitions), skew(partitions)
    if waiting is None:
        return f"{len(partitions)} partitions; the brokers do not say what waits"
    if times is None:
        return f"nothing waits in {len(partitions)} partitions"
    fullest = max(partitions, key=lambda each: each.records or 0)
    age_ms = oldest_age_ms(partitions, now_ms)
    oldest = "" if age_ms is None else f", the oldest for {span(age_ms)}"
    return (
        f"{waiting:,} records wait in {len(partitions)} partitions{oldest}; most, {fullest.records:,}, in "
        f"{fullest.topic}-{fullest.partition}: {times:.1f} times the average"
    )


def _watermark(status: JobStatus, epoch: EpochRecord) -> str:
    """Return the job's event time, the source that holds it back, and those that it goes on without."""
    parts = ["none yet" if epoch.watermark_ms is None else f"{utc(epoch.watermark_ms)} UTC"]
    if epoch.held_by is not None:
        time = epoch.source_times[epoch.held_by]
        moved = (
            "has not moved since the driver started"
            if time.moved_ms is None
            else f"last moved {_ago(status, time.moved_ms)}"
        )
        parts.append(
            f"waits for the first record of {epoch.held_by}"
            if time.watermark_ms is None
            else f"held back by {epoch.held_by}, which {moved}"
        )
    idle = [name for name, time in epoch.source_times.items() if time.idle]
    if idle:
        parts.append(f"without {', '.join(idle)}, idle")
    return "; ".join(parts)


def _state(state: StateFigures) -> str:
    disk = "" if state.disk_bytes is None else f", {decimal(state.disk_bytes)} on disk"
    return f"{state.rows:,} rows, {decimal(state.memory_bytes)} of memory{disk}"


def _metric(metric: MetricFigure) -> str:
    """Return what a metric of a function stands at."""
    if metric.kind is MetricKind.COUNTER:
        return f"{metric.total:,}"
    if not metric.count:
        return "no value yet"
    if metric.kind is MetricKind.GAUGE:
        value = _number(metric.largest)
        return value if metric.count == 1 else f"{_number(metric.least)} to {value} in {metric.count} subtasks"
    mean, half, most = map(_number, (metric.total / metric.count, metric.quantile(0.5), metric.quantile(0.99)))
    return f"{metric.count:,} values, mean {mean}, half at most {half}, 99 % at most {most}"


def _number(value: int | float | None) -> str:
    """Return an integer exactly, another number with six digits."""
    assert value is not None
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def _parallelism(status: JobStatus) -> str:
    wanted, newest = status.job.parallelism, status.generation
    if status.alive and newest is not None and newest.parallelism != wanted:
        return f"{newest.parallelism} ({wanted} from the next start on)"
    return str(wanted)


def _epoch(status: JobStatus) -> str:
    newest, generation = status.figures.epoch, status.generation
    if newest is not None:
        took = f"{newest.rows:,} rows in {newest.duration_ms / 1000:.2f} s at parallelism {newest.parallelism}"
        return f"{newest.epoch} of lineage {newest.lineage}, {_ago(status, newest.committed_ms)}: {took}"
    if generation is not None and generation.epoch is not None:
        # A rebuilt catalog has the generations, but not the figures of their epochs.
        return f"{generation.epoch} of lineage {generation.lineage}"
    return "none committed yet"


def _savepoint(status: JobStatus) -> str:
    newest = status.savepoint
    if newest is None:
        return "none"
    reason = f" ({newest.reason})" if newest.reason else ""
    return escape(f"epoch {newest.epoch}, {_ago(status, newest.created_ms)}{reason}: {newest.path}")


def _lease(status: JobStatus) -> str:
    lease = status.lease
    if lease is None:
        return "none"
    left_ms = lease.expires_ms - status.now_ms
    expiry = f"expires in {span(left_ms)} unless renewed" if left_ms > 0 else f"expired {span(-left_ms)} ago"
    return escape(f"{lease.owner}, since {_ago(status, lease.acquired_ms)}; {expiry}")


def _error(status: JobStatus) -> str:
    failed = status.last_failure
    if status.driver == "lost":
        return f"no heartbeat since {_ago(status, status.generations[0].heartbeat_ms)}"
    if failed is None:
        return NOTHING
    at_ms = failed.started_ms if failed.ended_ms is None else failed.ended_ms
    return f"generation {failed.generation}, {_ago(status, at_ms)}: {failed.error} (log: {failed.log_path})"


def _rescale(status: JobStatus, run: RescaleRunRecord) -> str:
    sizes = f"parallelism {run.from_parallelism} -> {run.to_parallelism}"
    if run.to_workers is not None and run.to_workers != run.from_workers:
        sizes += f", workers {run.from_workers} -> {run.to_workers}"
    under_way = [name for name, times in run.steps.items() if times.started_ms is not None and times.ended_ms is None]
    if run.state == "running":
        how = f"under way{', at ' + under_way[-1] if under_way else ''}, started {_ago(status, run.created_ms)}"
    else:
        ended_ms = run.updated_ms if run.ended_ms is None else run.ended_ms
        how = f"{run.state} {_ago(status, ended_ms)}, after {span(ended_ms - run.created_ms)}"
    reason = f" ({run.reason})" if run.reason else ""
    error = f": {run.error}" if run.error else ""
    return f"{run.run_id}: {sizes}, {run.method}, {how}{reason}{error}"


def _policy(status: JobStatus) -> str:
    policy = status.policy
    if policy is None:
        return "none"
    if policy.looked_ms is None:
        return f"{policy.state}, not evaluated yet"
    return f"{policy.state}, evaluated {_ago(status, policy.looked_ms)}: {policy.finding or NOTHING}"


def _when(status: JobStatus, ms: int) -> str:
    return f"{utc(ms)} UTC, {_ago(status, ms)}"


def _ago(status: JobStatus, ms: int) -> str:
    return f"{span(status.now_ms - ms)} ago"
