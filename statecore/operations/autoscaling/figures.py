"""Reads the figures that a job's policy needs from the catalog."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile, zip_longest
from statistics import median
from typing import TypeVar

from statecore.catalog import (
    HISTORY,
    RUNS,
    BacklogRecord,
    Catalog,
    EpochRecord,
    Epochs,
    GenerationRecord,
    JobRecord,
    OperatorFigures,
    PolicyRecord,
    RescaleMethod,
    RescaleRunRecord,
    SourceBacklog,
    SubtasksRecord,
    over_all,
)
from statecore.operations.backlog import backlog_rows, rows_per_file
from statecore.operations.downtime import expected_downtime
from statecore.operations.restarts import failures_in_a_row
from statecore.policy import (
    EpochCost,
    Figures,
    HeavyKey,
    HeavyKeyGroup,
    SlowSink,
    arriving,
)
from statecore.policy.arrivals import HISTORY_MS, STEP_MS, WINDOW_MS, history
from statecore.policy.busy import busy_share, epoch_limit
from statecore.policy.cost import FEWEST
from statecore.policy.figures import FIRST_DOWNTIME_MS

_Item = TypeVar("_Item")
# For the recent arrival rate; the records are wide, so more of them would be slow to read.
_EPOCHS = 600
# For the cost of an epoch: enough to include epochs of different sizes.
_COSTS = 2_000
# Newest epochs that show whether something limits their rows, and how these spread over subtasks and keys.
_LEFT, _SUBTASKS = 60, 20
_RECENT = 60
# Newest epochs that show the slowest sink: when a sink has been slow for as many epochs as prove a changed cost, it was
# slow in most of these.
_PUBLISHED = 2 * FEWEST - 1
_HEAVY_KEYS = 8
_RESCALES = 5
_DAY_MS = 86_400_000
# Assumed of a job's first rescale that also writes its state anew.
_FIRST_REWRITE_MS = 60_000

UNDER_WAY_MS = 3_600_000
"""A policy makes no decision while another one is carried out, unless that one has made no progress for this time."""


def figures_of(catalog: Catalog, job: str, now_ms: int) -> Figures:
    """Return the figures that a job's policy needs.

    Raises:
        UnknownJobError: The job is not registered.

    """
    record = catalog.jobs.get(job)
    cluster = None if record.cluster is None else catalog.clusters.get(record.cluster)
    epochs = catalog.epochs.of(job, limit=_EPOCHS)
    until_ms = epochs[-1].committed_ms if epochs else 0
    # An epoch may have been committed since the query before.
    costs = [_cost(*cost) for cost in catalog.epochs.costs(job, limit=_COSTS) if cost[0] <= until_ms]
    generations = catalog.generations.of(job, limit=HISTORY)
    per_file = rows_per_file(epochs)
    newest = catalog.overviews.figures(job)
    policy = catalog.policies.find(job)
    runs = catalog.runs.of(job, limit=RUNS)
    failed = [] if policy is None else failed_rescales(runs, lambda: _decided(catalog, policy))
    sources = () if newest.backlog is None else newest.backlog.sources
    waiting = backlog_rows(sources, per_file)
    arrived = _arrived(catalog, epochs, costs, per_file, now_ms)
    lately = arriving(arrived, costs, waiting, now_ms)
    running = [each for each in epochs if generations and each.generation == generations[0].generation]
    slowest = _slowest_operator(catalog.epochs.subtasks(job, limit=_SUBTASKS), epochs)
    left = [(each.rows, backlog_rows(each.backlog, per_file)) for each in running[-_LEFT:]]
    crashed = failures_in_a_row(generations)
    return Figures(
        job=job,
        at_ms=now_ms,
        parallelism=epochs[-1].parallelism if epochs else record.parallelism,
        max_parallelism=record.max_parallelism,
        workers=None if cluster is None else cluster.desired_workers,
        max_workers=None if cluster is None else cluster.max_workers,
        hindrance=_hindrance(catalog, record, epochs, now_ms),
        started_ms=generations[0].started_ms if generations else None,
        settled_ms=_settled_ms(catalog, job, epochs),
        epochs=tuple(costs),
        arriving=lately.rate,
        rising=lately.rising,
        arriving_noise=lately.noise,
        arrived=history(arrived, now_ms),
        processed=newest.rows_per_second,
        waiting=waiting,
        left=left[-1][1] if left else _waited_at_start(catalog.epochs, generations, per_file),
        lag_ms=_lag_ms(sources),
        busy=busy_share([(each.started_ms, each.duration_ms) for each in running], now_ms, waiting=bool(waiting)),
        rescale_ms=_rescale_ms(runs),
        downtime_ms=None if policy is None else _downtime_ms(runs, policy.settings.get("method", "live")),
        ended_ms=runs[0].ended_ms if runs else None,
        failures=len(failed),
        failure=str(failed[0].error) if failed else "",
        made_in_a_day=catalog.policies.decisions_made(job, now_ms - _DAY_MS),
        epoch_limit=epoch_limit(left),
        # A starting driver reports it late.
        trigger_ms=next((each.trigger_ms for each in generations if each.trigger_ms is not None), None),
        busiest_share=_busiest_share(slowest),
        heavy_keys=_heavy_keys(slowest),
        heavy_key_group=_heavy_key_group(slowest),
        # A source with fewer of them, such as one of rules, has fewer rows to read.
        source_partitions=max((each.partitions for each in sources if each.partitions is not None), default=None),
        slowest_sink=_slowest_sink(epochs[-_RECENT:]),
        memory_share=None if newest.epoch is None else newest.epoch.memory_share,
        crashes=len(crashed),
        crash=(crashed[0].error or "").partition("\n")[0] if crashed else "",
        version=f"{record.artifact_sha256 or record.artifact} {0 if policy is None else policy.updated_ms}",
    )


def _waited_at_start(epochs: Epochs, generations: Sequence[GenerationRecord], per_file: float | None) -> int | None:
    """Return the backlog in rows when the newest driver first measured it; its first epoch reads them."""
    if not generations:
        return None
    newest = generations[0]
    measured = epochs.backlogs(newest.job, since_ms=newest.started_ms)
    first = next((each for each in measured if each.generation == newest.generation), None)
    return None if first is None else backlog_rows(first.sources, per_file)


def _downtime_ms(runs: Sequence[RescaleRunRecord], method: RescaleMethod) -> int | None:
    """Return the downtime to expect of a rescale; None for a live one."""
    if method == "live":
        return None
    expected = expected_downtime(runs, method)
    if expected is None:
        return _FIRST_REWRITE_MS if method == "rewrite" else FIRST_DOWNTIME_MS
    return expected.median_ms


def failed_rescales(runs: Iterable[RescaleRunRecord], decided: Callable[[], Collection[str]]) -> list[RescaleRunRecord]:
    """Return the rescales of a policy that failed in a row, newest first; a successful rescale ends the row.

    Args:
        runs: The job's rescale runs, newest first.
        decided: Returns the runs that carried out the policy's decisions; called only if a run failed.

    """
    failed = [run for run in takewhile(lambda run: run.state != "done", runs) if run.state == "failed"]
    own = decided() if failed else ()
    return [run for run in failed if run.run_id in own]


def _decided(catalog: Catalog, policy: PolicyRecord) -> set[str]:
    made = catalog.policies.decisions(policy.job, limit=RUNS, since_ms=policy.updated_ms)
    return {each.run_id for each in made if each.run_id is not None}


@dataclass(frozen=True, slots=True)
class CurrentBacklog:
    """Rows that wait in all sources, estimated for sources with files, and how late the latest are, if known."""

    rows: int | None
    lag_ms: int | None
    measured_ms: int


def current_backlog(catalog: Catalog, job: str) -> CurrentBacklog | None:
    """Return the newest measurement; None before the newest generation's first one.

    A part of ``figures_of``, cheap enough to call every second.
    """
    newest, backlog = catalog.generations.newest(job), catalog.overviews.figures(job).backlog
    if newest is None or backlog is None or backlog.generation != newest.generation:
        return None
    per_file = rows_per_file(catalog.epochs.of(job, limit=_RECENT))
    return CurrentBacklog(backlog_rows(backlog.sources, per_file), _lag_ms(backlog.sources), backlog.measured_ms)


def _lag_ms(sources: Sequence[SourceBacklog]) -> int | None:
    """Return the longest event-time lag or age of a waiting record."""
    total = over_all(sources)
    return max((ms for ms in (total.event_time_lag_ms, total.oldest_age_ms) if ms is not None), default=None)


def _cost(at_ms: int, parallelism: int, rows: int, duration_ms: int, phases: Mapping[str, float]) -> EpochCost:
    if not phases.keys() >= {"run", "read", "publish"}:
        return EpochCost(at_ms, parallelism, rows, duration_ms)
    work_ms = phases["run"] - phases["read"]
    return EpochCost(at_ms, parallelism, rows, duration_ms, phases["read"], work_ms, phases["publish"])


def _arrived(
    catalog: Catalog, epochs: Sequence[EpochRecord], costs: Sequence[EpochCost], per_file: float | None, now_ms: int
) -> list[tuple[int, float]]:
    """Return (time in ms, rows that had arrived): rows read plus rows waiting.

    Where no source reports its backlog, only the rows read are known.
    """
    if not epochs:
        return []
    job, from_ms = epochs[-1].job, now_ms - HISTORY_MS
    times = [cost.committed_ms for cost in costs]
    # Before these, one measurement per step is enough.
    older = catalog.epochs.of(job, since_ms=from_ms, until_ms=epochs[0].committed_ms, step_ms=STEP_MS)
    epochs = [*_since_restore(older, epochs[0].rows_total), *epochs]
    points = [(each.committed_ms, each.rows_total, backlog_rows(each.backlog, per_file)) for each in epochs]
    if all(waiting is None for _, _, waiting in points):
        return [(at_ms, float(rows)) for at_ms, rows, _ in points]
    read = list(accumulate((cost.rows for cost in costs), initial=epochs[-1].rows_total - sum(c.rows for c in costs)))
    for backlog in _backlogs(catalog.epochs, job, max(from_ms, times[0]), now_ms) if times else ():
        rows = read[bisect_right(times, backlog.measured_ms)]
        points.append((backlog.measured_ms, rows, backlog_rows(backlog.sources, per_file)))
    known = sorted((at_ms, float(rows + waiting)) for at_ms, rows, waiting in points if waiting is not None)
    # A listing may miss what an epoch has just read.
    return list(zip((at_ms for at_ms, _ in known), accumulate((rows for _, rows in known), max), strict=True))


def _since_restore(epochs: Sequence[EpochRecord], rows_total: int) -> list[EpochRecord]:
    """Return the epochs since the job was last restored with a smaller row total, which then counts anew.

    Args:
        epochs: Epochs in order.
        rows_total: Row total of the epoch after them.

    """
    since: list[EpochRecord] = []
    for each in reversed(epochs):
        if each.rows_total > rows_total:
            break
        since.append(each)
        rows_total = each.rows_total
    return since[::-1]


def _backlogs(epochs: Epochs, job: str, since_ms: int, now_ms: int) -> Iterator[BacklogRecord]:
    """Yield the measurements of a job's backlog; before the last minutes, one per step."""
    lately_ms = max(since_ms, now_ms - WINDOW_MS)
    yield from epochs.backlogs(job, since_ms=since_ms, until_ms=lately_ms, step_ms=STEP_MS)
    yield from epochs.backlogs(job, since_ms=lately_ms)


def _slowest_operator(records: Sequence[SubtasksRecord], epochs: Sequence[EpochRecord]) -> list[OperatorFigures]:
    """Return the figures of the slowest operator, for epochs at the current parallelism."""
    parallelism = epochs[-1].parallelism if epochs else 0
    by_uid: dict[str, list[OperatorFigures]] = defaultdict(list)
    for operator in (operator for record in records for operator in record.operators):
        if len(operator.rows) == parallelism:
            by_uid[operator.uid].append(operator)
    return max(by_uid.values(), key=lambda each: sum(max(_took_ms(epoch)) for epoch in each), default=[])


def _took_ms(operator: OperatorFigures) -> list[int]:
    """Return how long each subtask ran its function and waited for rows; earlier releases recorded only the sum."""
    return [sum(both) for both in zip_longest(operator.process_ms, operator.read_ms, fillvalue=0)]


def _busiest_share(slowest: Sequence[OperatorFigures]) -> float | None:
    """Return the recent share of rows of the busiest subtask."""
    rows = [sum(subtask) for subtask in zip(*(epoch.rows for epoch in slowest), strict=True)]
    return max(rows) / sum(rows) if any(rows) else None


def _heavy_keys(slowest: Sequence[OperatorFigures]) -> tuple[HeavyKey, ...]:
    """Return the keys with the most recent work."""
    heaviest = _heaviest(slowest, lambda epoch: ((heavy.key, heavy.share) for heavy in epoch.heavy_keys))
    return tuple(HeavyKey(key, share) for key, share in heaviest[:_HEAVY_KEYS])


def _heavy_key_group(slowest: Sequence[OperatorFigures]) -> HeavyKeyGroup | None:
    """Return the key group with the most recent work."""
    heaviest = _heaviest(slowest, lambda epoch: ((heavy.key_group, heavy.share) for heavy in epoch.heavy_key_groups))
    return HeavyKeyGroup(*heaviest[0]) if heaviest else None


def _heaviest(
    slowest: Sequence[OperatorFigures], of: Callable[[OperatorFigures], Iterable[tuple[_Item, float]]]
) -> list[tuple[_Item, float]]:
    """Return items with their shares, weighted by the time of each epoch; an item missing from an epoch counts as 0."""
    took_ms = [sum(_took_ms(epoch)) for epoch in slowest]
    whole_ms = max(1, sum(took_ms))
    shares: dict[_Item, float] = defaultdict(float)
    for epoch, epoch_ms in zip(slowest, took_ms, strict=True):
        for item, share in of(epoch):
            shares[item] += share * epoch_ms / whole_ms
    return sorted(shares.items(), key=lambda each: -each[1])


def _slowest_sink(epochs: Sequence[EpochRecord]) -> SlowSink | None:
    """Return the sink with the largest median share of publishing."""
    published = [each for each in epochs if each.publish_ms][-_PUBLISHED:]
    shares = {
        sink: median(each.publish_ms.get(sink, 0.0) / max(each.phases["publish"], 1.0) for each in published)
        for sink in {sink for each in published for sink in each.publish_ms}
    }
    sink = max(sorted(shares), key=lambda each: shares[each], default=None)
    return None if sink is None else SlowSink(sink, min(1.0, shares[sink]))


def _hindrance(catalog: Catalog, job: JobRecord, epochs: Sequence[EpochRecord], now_ms: int) -> str | None:
    if job.desired_state != "running":
        return "the job should not run"
    if not catalog.generations.is_alive(catalog.generations.newest(job.name)):
        return "the job has no live driver"
    lease = catalog.leases.find(job.name)
    if lease is not None and now_ms < lease.expires_ms:
        return f"{lease.owner} holds the lease on the job"
    for decision in catalog.policies.decisions(job.name, limit=1):
        if decision.state in ("open", "triggered") and now_ms - decision.updated_ms < UNDER_WAY_MS:
            return f"decision {decision.id} is {decision.state}: parallelism {decision.to_parallelism}"
    if not epochs:
        return "the job has committed no epoch yet"
    if epochs[-1].parallelism != job.parallelism:
        return f"no epoch has been committed yet at the desired parallelism {job.parallelism}"
    return None


def _settled_ms(catalog: Catalog, job: str, epochs: Sequence[EpochRecord]) -> int | None:
    settled_ms = None
    for epoch in reversed(epochs):
        if epoch.parallelism != epochs[-1].parallelism:
            return settled_ms
        settled_ms = epoch.started_ms
    # Short epochs may not reach back as far as the cooldown, which would then never end.
    return settled_ms if len(epochs) < _EPOCHS else catalog.epochs.settled_ms(job, epochs[-1].parallelism)


def _rescale_ms(runs: Iterable[RescaleRunRecord]) -> int | None:
    took_ms = [
        run.ended_ms - run.created_ms
        for run in runs
        if run.state == "done" and run.ended_ms is not None and run.to_parallelism > run.from_parallelism
    ]
    return int(median(took_ms[:_RESCALES])) if took_ms else None
