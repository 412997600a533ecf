"""How jobs stand: the newest records of many jobs at once.

A page of 200 jobs asks a dozen questions this way, and not thousands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Float, Row, Select, Table, case, cast, func, select

from statecore.catalog import tables
from statecore.catalog.figures import (
    ArrivalsRecord,
    BacklogRecord,
    EpochRecord,
    JobFigures,
    TopicsRecord,
)
from statecore.catalog.queries import record, records
from statecore.catalog.records import (
    ClusterRecord,
    GenerationRecord,
    JobRecord,
    LeaseRecord,
    Liveness,
    PolicyRecord,
    RescaleRunRecord,
    SavepointRecord,
    TakenBackRecord,
)
from statecore.catalog.transactions import Transactions

HISTORY = 10
"""Newest generations of a job: more failures than it takes to reach the longest back-off."""
RUNS = 50
"""Newest rescale runs, and decisions, of a job whose policy is on."""
RATE_MS = 60_000
RATE_EPOCHS = 3
"""Rates are those of the last minute, or of three epochs if these took longer."""
_FIGURES = (tables.epochs, tables.backlogs, tables.arrivals)


@dataclass(frozen=True, slots=True)
class Overview:
    """The newest records of a job, newest first where there are several.

    Attributes:
        alive: Whether the newest generation runs.
        rescales: The newest rescale run; ``RUNS`` of them if the job's policy is on.
        topics: The backlog of each Kafka partition that the job reads, if any.
        decided: Runs that carried out a decision of its policy since the policy was changed, if it is on.
        now_ms: Time of the read.

    """

    job: JobRecord
    generations: Sequence[GenerationRecord]
    alive: bool
    figures: JobFigures
    cluster: ClusterRecord | None
    lease: LeaseRecord | None
    taken_back: TakenBackRecord | None
    savepoint: SavepointRecord | None
    rescales: Sequence[RescaleRunRecord]
    policy: PolicyRecord | None
    decided: Collection[str]
    topics: TopicsRecord | None
    now_ms: int


@dataclass(slots=True)
class JobRows:
    """The rows of a job, as the database has them."""

    job: Row[Any]
    now_ms: int
    liveness: Liveness
    cluster: Row[Any] | None = None
    rate: float | None = None
    of: dict[str, list[Row[Any]]] = field(default_factory=lambda: defaultdict(list))

    def overview(self) -> Overview:
        """Return the records; raise msgspec.ValidationError for an invalid value, which hides no other job."""
        job = record(self.job, JobRecord)
        generations = records(self.of["generations"], GenerationRecord)
        return Overview(
            job=job,
            generations=generations,
            alive=bool(generations) and self.liveness.is_alive(generations[0], self.now_ms),
            figures=self.figures(),
            cluster=None if self.cluster is None else record(self.cluster, ClusterRecord),
            lease=self._one("leases", LeaseRecord),
            taken_back=self._one("taken_back", TakenBackRecord),
            savepoint=self._one("savepoints", SavepointRecord),
            rescales=records(self.of["rescale_runs"], RescaleRunRecord),
            policy=self._one("policies", PolicyRecord),
            decided={row.run_id for row in self.of["decisions"]},
            topics=self._one("topics", TopicsRecord),
            now_ms=self.now_ms,
        )

    def figures(self) -> JobFigures:
        """Return the current figures; raise msgspec.ValidationError for an invalid value."""
        job = self.job.name
        epoch = self._one("epochs", EpochRecord)
        backlog = self._one("backlogs", BacklogRecord)
        if epoch is not None and epoch.backlog and (backlog is None or backlog.measured_ms <= epoch.committed_ms):
            backlog = BacklogRecord(job, epoch.committed_ms, epoch.generation, epoch.backlog)
        return JobFigures(job, self.rate, epoch, backlog, self._one("arrivals", ArrivalsRecord))

    def _one(self, table: str, kind: Any) -> Any:
        rows = self.of[table]
        return record(rows[0], kind) if rows else None


class Overviews:
    """How jobs stand."""

    def __init__(self, transactions: Transactions, liveness: Liveness) -> None:
        self._transactions = transactions
        self._liveness = liveness

    def of(self, names: Collection[str] | None = None) -> dict[str, JobRows]:
        """Return the rows of these jobs, or of all, by name and in its order; unknown names are omitted."""
        return self._read(names, None)

    def figures(self, job: str) -> JobFigures:
        """Return the current figures of a job; an unknown job has none."""
        rows = self._read([job], _FIGURES).get(job)
        return JobFigures(job, None, None, None) if rows is None else rows.figures()

    def _read(self, names: Collection[str] | None, only: Collection[Table] | None) -> dict[str, JobRows]:
        jobs = tables.jobs
        chosen = [] if names is None else [jobs.c.name.in_(names)]
        with self._transactions.read() as connection:
            now_ms = self._transactions.now_ms_in(connection)
            rows = connection.execute(select(jobs).where(*chosen).order_by(jobs.c.name)).all()
            found = {row.name: JobRows(row, now_ms, self._liveness) for row in rows}
            if only is None:
                clusters = {row.name: row for row in connection.execute(select(tables.clusters))}
                for each in found.values():
                    each.cluster = clusters.get(each.job.cluster)
            for table, query in _queries(chosen):
                if only is None or table in only:
                    for row in connection.execute(query):
                        # A job may have been registered in between.
                        if row.job in found:
                            found[row.job].of[table.name].append(row)
            for name, rate in _rates(connection, chosen, now_ms).items():
                if name in found:
                    found[name].rate = rate
        return found


def _queries(chosen: Sequence[ColumnElement[bool]]) -> Iterator[tuple[Table, Select[Any]]]:
    of = tables
    for table in (of.arrivals, of.leases, of.taken_back, of.policies, of.topics):
        yield table, _all(table).where(*chosen)
    yield of.generations, _newest(of.generations, of.generations.c.generation, HISTORY).where(*chosen)
    yield of.epochs, _newest(of.epochs, of.epochs.c.committed_ms, 1, of.epochs.c.epoch).where(*chosen)
    yield of.backlogs, _newest(of.backlogs, of.backlogs.c.measured_ms, 1).where(*chosen)
    yield of.savepoints, _newest(of.savepoints, of.savepoints.c.created_ms, 1, of.savepoints.c.epoch).where(*chosen)
    is_on = of.jobs.c.name.in_(select(of.policies.c.job).where(of.policies.c.enabled))
    for count, where in ((1, ~is_on), (RUNS, is_on)):
        yield of.rescale_runs, _newest(of.rescale_runs, of.rescale_runs.c.created_ms, count).where(*chosen, where)
    changed_ms = select(of.policies.c.updated_ms).where(of.policies.c.job == of.jobs.c.name).scalar_subquery()
    # Their figures are wide, and nobody here asks for them.
    newest = _newest(of.decisions, of.decisions.c.decided_ms, RUNS)
    decided: Select[Any] = newest.with_only_columns(of.decisions.c.job, of.decisions.c.run_id)
    yield of.decisions, decided.where(*chosen, is_on, of.decisions.c.decided_ms >= changed_ms)


def _all(table: Table) -> Select[Any]:
    return select(table).select_from(table.join(tables.jobs, table.c.job == tables.jobs.c.name))


def _newest(table: Table, at: Column[int], count: int, *then: Column[int]) -> Select[Any]:
    """Return the query of each job's newest rows, which an index of ``job`` and ``at`` finds; more of the same time."""
    other = table.alias()
    oldest = select(other.c[at.name]).where(other.c.job == tables.jobs.c.name).order_by(other.c[at.name].desc())
    # With fewer rows, all of them.
    from_ms = func.coalesce(oldest.offset(count - 1).limit(1).correlate(tables.jobs).scalar_subquery(), 0)
    order = (table.c.job, at.desc(), *(each.desc() for each in then))
    return _all(table).where(at >= from_ms).order_by(*order)


def _rates(connection: Connection, chosen: Sequence[ColumnElement[bool]], now_ms: int) -> dict[str, float]:
    """Return the rows per second of jobs with epochs: over the last minute or three epochs, whichever is longer."""
    epochs, jobs = tables.epochs, tables.jobs
    newest = epochs.alias()
    duration = (
        select(newest.c.duration_ms)
        .where(newest.c.job == jobs.c.name)
        .order_by(newest.c.committed_ms.desc(), newest.c.epoch.desc())
        .limit(1)
        .correlate(jobs)
        .scalar_subquery()
    )
    since = (
        select(
            jobs.c.name,
            (now_ms - case((RATE_EPOCHS * duration > RATE_MS, RATE_EPOCHS * duration), else_=RATE_MS)).label("ms"),
        )
        .where(*chosen, duration.is_not(None))
        .subquery()
    )
    of = epochs.c
    # The share of an epoch after that time.
    share = case(
        (of.started_ms >= since.c.ms, 1.0),
        else_=cast(of.committed_ms - since.c.ms, Float) / (of.committed_ms - of.started_ms),
    )
    is_counted = (of.job == since.c.name) & (of.committed_ms >= since.c.ms)
    query = (
        select(since.c.name, since.c.ms, func.sum(of.rows * share), func.min(of.started_ms))
        .select_from(since.outerjoin(epochs, is_counted))
        .group_by(since.c.name, since.c.ms)
    )
    made = {}
    for name, since_ms, rows, first_ms in connection.execute(query):
        span_ms = now_ms - max(since_ms, since_ms if first_ms is None else first_ms)
        made[name] = float(rows or 0) * 1000 / span_ms if span_ms > 0 else 0.0
    return made
