"""Evaluates policies: reads figures from the catalog, decides, and records the decision in the catalog.

The evaluation keeps no memory: the catalog holds the decisions and the time since which more was needed. Several
processes may evaluate the same job; each decision is recorded once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Any

import msgspec

from statecore.catalog import (
    BacklogRecord,
    Catalog,
    DecisionRecord,
    EpochRecord,
    JobRecord,
    PolicyRecord,
    RescaleRunRecord,
    over_all,
)
from statecore.operations.backlog import backlog_rows, rows_per_file
from statecore.policy import EpochCost, Figures, PolicyMemory, arriving, decide, policy_settings
from statecore.policy.arrivals import WINDOW_MS

# For the recent arrival rate; the records are wide, so more of them would be slow to read.
_EPOCHS = 600
# For the cost of an epoch: enough to include epochs of different sizes.
_COSTS = 5_000
_BUSY_MS = 60_000
_BUSY_EPOCHS = 3
_RECENT = 60
_RESCALES = 5
# Runs are never deleted, and this query runs every few seconds.
_RUNS = 50
# After a longer gap between evaluations the memory says nothing about the time in between.
_MEMORY_VALID_MS = 300_000

ANNOUNCE_EVERY_MS = 120_000
"""An open decision is announced again after this time: the process that announced it may have died."""
LAPSES_AFTER_MS = 600_000
"""An open decision with figures older than this fails."""
UNDER_WAY_MS = 3_600_000
"""A policy makes no decision while another is carried out, unless that one made no progress for this time."""


def figures_of(catalog: Catalog, job: str, now_ms: int) -> Figures:
    """Return the figures by which a job's policy decides.

    Raises:
        UnknownJobError: The job is not registered.

    """
    found = catalog.job(job)
    cluster = None if found.cluster is None else catalog.cluster(found.cluster)
    epochs = catalog.epochs(job, limit=_EPOCHS)
    backlogs = catalog.backlogs(job, since_ms=max(epochs[0].committed_ms, now_ms - WINDOW_MS)) if epochs else []
    per_file = rows_per_file(epochs)
    newest = catalog.figures(job)
    policy = catalog.policy(job)
    failed = [] if policy is None else failed_rescales(catalog, policy)
    sources = () if newest.backlog is None else newest.backlog.sources
    waiting = backlog_rows(sources, per_file)
    costs = [EpochCost(*cost) for cost in catalog.epoch_costs(job, limit=_COSTS)]
    return Figures(
        job=job,
        at_ms=now_ms,
        parallelism=epochs[-1].parallelism if epochs else found.parallelism,
        max_parallelism=found.max_parallelism,
        workers=None if cluster is None else cluster.desired_workers,
        max_workers=None if cluster is None else cluster.max_workers,
        hindrance=_hindrance(catalog, found, epochs, now_ms),
        settled_ms=_settled_ms(catalog, job, epochs),
        epochs=tuple(costs),
        arriving=arriving(_arrived(epochs, backlogs, per_file), costs, waiting, now_ms),
        processed=newest.rows_per_second,
        waiting=waiting,
        lag_ms=over_all(sources).event_time_lag_ms,
        busy=_busy(epochs, now_ms),
        rescale_ms=_rescale_ms(catalog, job),
        ended_ms=next((run.ended_ms for run in catalog.rescale_runs(job, limit=1)), None),
        failures=len(failed),
        failure=str(failed[0].error) if failed else "",
    )


def failed_rescales(catalog: Catalog, policy: PolicyRecord) -> list[RescaleRunRecord]:
    """Return the rescales of a policy that failed in a row, newest first.

    A rescale of the job that was done ends the row, and so does a person who sets the policy.
    """
    since = takewhile(lambda run: run.state != "done", catalog.rescale_runs(policy.job, limit=_RUNS))
    failed = [run for run in since if run.state == "failed"]
    if not failed:
        return []
    decisions = catalog.decisions(policy.job, limit=_RUNS, since_ms=policy.updated_ms)
    own = {decision.run_id for decision in decisions}
    return [run for run in failed if run.run_id in own]


@dataclass(frozen=True, slots=True)
class CurrentBacklog:
    """Rows that wait in all sources, estimated for sources with files, and the longest event-time lag, if known."""

    rows: int | None
    lag_ms: int | None
    measured_ms: int


def current_backlog(catalog: Catalog, job: str) -> CurrentBacklog | None:
    """Return the newest measurement; None when the newest generation has not measured yet.

    A part of ``figures_of``, cheap enough to call every second.
    """
    newest, backlog = catalog.newest_generation(job), catalog.figures(job).backlog
    if newest is None or backlog is None or backlog.generation != newest.generation:
        return None
    per_file = rows_per_file(catalog.epochs(job, limit=_RECENT))
    lag_ms = over_all(backlog.sources).event_time_lag_ms
    return CurrentBacklog(backlog_rows(backlog.sources, per_file), lag_ms, backlog.measured_ms)


def evaluate(catalog: Catalog, policy: PolicyRecord, now_ms: int) -> DecisionRecord | None:
    """Evaluate a policy that was just read; return the decision if this call recorded one.

    Raises:
        ConfigurationError: The policy's settings do not fit.
        UnknownJobError: The job is not registered.

    """
    settings = policy_settings(policy.settings)
    figures = figures_of(catalog, policy.job, now_ms)
    made = decide(figures, settings, _memory(policy, now_ms))
    memory = dataclasses.asdict(made.memory)
    if made.action == "stay":
        catalog.save_memory(policy, memory, made.reason)
        return None
    return catalog.record_decision(
        policy,
        memory,
        from_parallelism=figures.parallelism,
        to_parallelism=made.parallelism,
        from_workers=figures.workers,
        to_workers=made.workers,
        method=settings.method,
        reason=f"scale {made.action}: {made.reason}",
        figures=_summary(figures),
    )


def _memory(policy: PolicyRecord, now_ms: int) -> PolicyMemory:
    try:
        memory = msgspec.convert(policy.memory, PolicyMemory)
    except msgspec.ValidationError:
        # Another release wrote it; start a new one.
        return PolicyMemory()
    if policy.looked_ms is not None and now_ms - policy.looked_ms > _MEMORY_VALID_MS:
        return PolicyMemory(decided_ms=memory.decided_ms)
    return memory


def decisions_to_announce(catalog: Catalog, now_ms: int) -> Iterator[DecisionRecord]:
    """Yield the open decisions to announce again, each to one caller; fail those that are too old."""
    for decision in catalog.open_decisions():
        if now_ms - decision.decided_ms >= LAPSES_AFTER_MS:
            catalog.end_decision(
                decision.id,
                "failed",
                f"no run carried it out within {LAPSES_AFTER_MS // 60_000} minutes; expected the DAG autoscale to; "
                "check whether it is paused, and whether Airflow's scheduler runs",
            )
        elif now_ms - decision.announced_ms >= ANNOUNCE_EVERY_MS and catalog.reannounce(decision):
            yield decision


def _arrived(
    epochs: Sequence[EpochRecord], backlogs: Sequence[BacklogRecord], per_file: float | None
) -> list[tuple[int, float]]:
    """Return (time in ms, rows that had arrived): rows read plus rows waiting.

    Where no source reports its backlog, only the rows read are known.
    """
    known = [(epoch.committed_ms, epoch.rows_total, backlog_rows(epoch.backlog, per_file)) for epoch in epochs]
    if all(waiting is None for _, _, waiting in known):
        return [(at_ms, float(rows)) for at_ms, rows, _ in known]
    index = 0
    between = []
    for backlog in backlogs:
        while index + 1 < len(known) and known[index + 1][0] <= backlog.measured_ms:
            index += 1
        between.append((backlog.measured_ms, known[index][1], backlog_rows(backlog.sources, per_file)))
    points = [(at_ms, rows, waiting) for at_ms, rows, waiting in known + between if waiting is not None]
    return [(at_ms, float(rows + waiting)) for at_ms, rows, waiting in sorted(points)]


def _hindrance(catalog: Catalog, job: JobRecord, epochs: Sequence[EpochRecord], now_ms: int) -> str | None:
    if job.desired_state != "running":
        return "the job should not run"
    if not catalog.is_alive(catalog.newest_generation(job.name)):
        return "the job has no live driver"
    lease = catalog.lease(job.name)
    if lease is not None and now_ms < lease.expires_ms:
        return f"{lease.owner} holds the lease on the job"
    for decision in catalog.decisions(job.name, limit=1):
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
    return settled_ms if len(epochs) < _EPOCHS else catalog.settled_ms(job, epochs[-1].parallelism)


def _busy(epochs: Sequence[EpochRecord], now_ms: int) -> float | None:
    if not epochs:
        return None
    since_ms = min(now_ms - _BUSY_MS, *(epoch.started_ms for epoch in epochs[-_BUSY_EPOCHS:]))
    since_ms = max(since_ms, epochs[0].started_ms)
    ran_ms = 0
    for epoch in epochs:
        ran_ms += max(0, epoch.started_ms + epoch.duration_ms - max(epoch.started_ms, since_ms))
    return min(1.0, ran_ms / max(1, now_ms - since_ms))


def _rescale_ms(catalog: Catalog, job: str) -> int | None:
    runs = catalog.rescale_runs(job, limit=_RUNS)
    took_ms = [run.ended_ms - run.created_ms for run in runs if run.state == "done" and run.ended_ms is not None]
    return int(median(took_ms[:_RESCALES])) if took_ms else None


def _summary(figures: Figures) -> dict[str, Any]:
    """Return the figures without the epochs behind them."""
    left_out = {"job", "hindrance", "epochs"}
    return {name: value for name, value in dataclasses.asdict(figures).items() if name not in left_out}
