"""``status``: everything about one job, on one screen, for the person on call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.filesize import decimal
from rich.markup import escape

from statecore.catalog import Catalog, RescaleRunRecord, SourceTopics, StateFigures
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import NOTHING, console, facts, lag, print_json, utc, waiting
from statecore.operations.status.advice import advice, span
from statecore.operations.status.job_status import Standing, standing, summary
from statecore.topics.lag import oldest_age_ms, records, skew

_COLOURS = {"running": "green", "failed": "red", "lost": "red", "launching": "yellow"}


def show_status(name: JobName, catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print how a job runs, what is changing it, the last error, and what to do."""
    with Catalog(catalog) as opened:
        found = standing(opened, opened.jobs.get(name))
    if as_json:
        print_json(_contents(found))
        return
    made = facts()
    for label, value in _lines(found):
        made.add_row(label, value)
    screen = console()
    screen.print(_headline(found))
    screen.print(made)


def _contents(found: Standing) -> dict[str, Any]:
    """Return the contents for programs; the configuration is left out, because it may hold secrets."""
    return {
        **msgspec.to_builtins(summary(found)),
        "heartbeat_ms": None if found.generation is None else found.generation.heartbeat_ms,
        "workers": None
        if found.cluster is None
        else {"ready": found.cluster.ready_workers, "desired": found.cluster.desired_workers},
        "newest_epoch": found.figures.epoch,
        "savepoint": found.savepoint,
        "lease": found.lease,
        "rescale": found.rescale,
        "policy": found.policy,
        "topics": found.topics,
        "advice": advice(found),
        "now_ms": found.now_ms,
    }


def _headline(found: Standing) -> str:
    state, colour = found.driver.upper(), _COLOURS.get(found.driver, "default")
    generation = found.generation
    if found.crash_loops:
        state, colour = f"CRASH LOOP: {len(found.failures)} failures in a row", "red"
        state += "" if found.driver == "failed" else f", {found.driver} again"
    parts = [f"[bold]{escape(found.job.name)}[/]", f"[bold {colour}]{state}[/]"]
    if found.job.desired_state == "stopped" or found.driver in ("stopped", "never started"):
        parts.append(f"(it should be {found.job.desired_state})")
    if generation is not None:
        since_ms = generation.started_ms if generation.ended_ms is None else generation.ended_ms
        parts.append(f"generation {generation.generation}, since {_when(found, since_ms)}")
    return "  ".join(parts)


def _lines(found: Standing) -> Iterator[tuple[str, str]]:
    job, figures, cluster = found.job, found.figures, found.cluster
    if job.is_query:
        yield "query of Spark", f"{_parallelism(found)} state partitions, in {escape(job.checkpoint or NOTHING)}"
    else:
        yield "parallelism", f"{_parallelism(found)} of at most {job.max_parallelism}"
    if cluster is not None:
        yield "workers", f"{cluster.ready_workers} ready of {cluster.desired_workers} (cluster {escape(cluster.name)})"
    else:
        yield "workers", f"of {escape(job.master_url)}, not managed by statecore"
    # Measurements of a driver that no longer runs are out of date.
    runs, rate = found.driver == "running", figures.rows_per_second
    yield "rows/s", f"{rate:,.0f}" if runs and rate is not None else NOTHING
    measured = "" if figures.backlog is None else f", measured {_ago(found, figures.backlog.measured_ms)}"
    yield "backlog", f"{waiting(found.waiting)}{measured}"
    for source in () if found.topics is None else found.topics.sources:
        yield f"topics of {escape(source.name)}", escape(_topics(source, found.now_ms))
    yield "lag", lag(found.waiting) if runs else NOTHING
    if job.is_query and figures.epoch is not None:
        yield "watermark", NOTHING if figures.epoch.watermark_ms is None else f"{utc(figures.epoch.watermark_ms)} UTC"
        for each in figures.epoch.state:
            yield f"state of {escape(each.operator)}", _state(each)
    yield "newest epoch", _epoch(found)
    yield "newest savepoint", _savepoint(found)
    yield "lease", _lease(found)
    yield "last rescale", NOTHING if found.rescale is None else escape(_rescale(found, found.rescale))
    yield "policy", escape(_policy(found))
    yield "last error", escape(_error(found))
    if found.generation is not None:
        yield "log", escape(found.generation.log_path) or NOTHING
    todo = advice(found) or ["nothing"]
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


def _state(state: StateFigures) -> str:
    disk = "" if state.disk_bytes is None else f", {decimal(state.disk_bytes)} on disk"
    return f"{state.rows:,} rows, {decimal(state.memory_bytes)} of memory{disk}"


def _parallelism(found: Standing) -> str:
    wanted, newest = found.job.parallelism, found.generation
    if found.alive and newest is not None and newest.parallelism != wanted:
        return f"{newest.parallelism} ({wanted} from the next start on)"
    return str(wanted)


def _epoch(found: Standing) -> str:
    newest, generation = found.figures.epoch, found.generation
    if newest is not None:
        took = f"{newest.rows:,} rows in {newest.duration_ms / 1000:.2f} s at parallelism {newest.parallelism}"
        return f"{newest.epoch} of lineage {newest.lineage}, {_ago(found, newest.committed_ms)}: {took}"
    if generation is not None and generation.epoch is not None:
        # A rebuilt catalog has the generations, but not the figures of their epochs.
        return f"{generation.epoch} of lineage {generation.lineage}"
    return "none committed yet"


def _savepoint(found: Standing) -> str:
    newest = found.savepoint
    if newest is None:
        return "none"
    reason = f" ({newest.reason})" if newest.reason else ""
    return escape(f"epoch {newest.epoch}, {_ago(found, newest.created_ms)}{reason}: {newest.path}")


def _lease(found: Standing) -> str:
    lease = found.lease
    if lease is None:
        return "none"
    left_ms = lease.expires_ms - found.now_ms
    expiry = f"expires in {span(left_ms)} unless renewed" if left_ms > 0 else f"expired {span(-left_ms)} ago"
    return escape(f"{lease.owner}, since {_ago(found, lease.acquired_ms)}; {expiry}")


def _error(found: Standing) -> str:
    failed = found.last_failure
    if found.driver == "lost":
        return f"no heartbeat since {_ago(found, found.generations[0].heartbeat_ms)}"
    if failed is None:
        return NOTHING
    at_ms = failed.started_ms if failed.ended_ms is None else failed.ended_ms
    return f"generation {failed.generation}, {_ago(found, at_ms)}: {failed.error} (log: {failed.log_path})"


def _rescale(found: Standing, run: RescaleRunRecord) -> str:
    sizes = f"parallelism {run.from_parallelism} -> {run.to_parallelism}"
    if run.to_workers is not None and run.to_workers != run.from_workers:
        sizes += f", workers {run.from_workers} -> {run.to_workers}"
    under_way = [name for name, times in run.steps.items() if times.started_ms is not None and times.ended_ms is None]
    if run.state == "running":
        how = f"under way{', at ' + under_way[-1] if under_way else ''}, started {_ago(found, run.created_ms)}"
    else:
        ended_ms = run.updated_ms if run.ended_ms is None else run.ended_ms
        how = f"{run.state} {_ago(found, ended_ms)}, after {span(ended_ms - run.created_ms)}"
    reason = f" ({run.reason})" if run.reason else ""
    error = f": {run.error}" if run.error else ""
    return f"{run.run_id}: {sizes}, {run.method}, {how}{reason}{error}"


def _policy(found: Standing) -> str:
    policy = found.policy
    if policy is None:
        return "none"
    if policy.looked_ms is None:
        return f"{policy.state}, not evaluated yet"
    return f"{policy.state}, evaluated {_ago(found, policy.looked_ms)}: {policy.finding or NOTHING}"


def _when(found: Standing, ms: int) -> str:
    return f"{utc(ms)} UTC, {_ago(found, ms)}"


def _ago(found: Standing, ms: int) -> str:
    return f"{span(found.now_ms - ms)} ago"
