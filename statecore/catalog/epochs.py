"""Epochs of a job, with the metrics of their subtasks and key groups, and measurements of the job's backlog.

The catalog retains only the newest figures of each kind, fewer of those with wide rows: it must not grow forever.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, func, insert, select

from statecore.catalog import rollups, tables
from statecore.catalog.figures import (
    ArrivalsRecord,
    BacklogRecord,
    DataflowRecord,
    EpochRecord,
    KeyGroupsRecord,
    MetricPoint,
    OperatorFigures,
    SourceBacklog,
    SourceTopics,
    SubtasksRecord,
    TopicsRecord,
    over_all,
    some_wait,
)
from statecore.catalog.queries import one, records, settle_generation
from statecore.catalog.transactions import Transactions

epochs, subtasks, key_groups, backlogs = tables.epochs, tables.subtasks, tables.key_groups, tables.backlogs
topics, arrivals, dataflows = tables.topics, tables.arrivals, tables.dataflows

KEPT_EPOCHS = 10_000
"""Epochs per job, with their backlog."""
KEPT_SUBTASKS = 1_000
"""Epochs per job with metrics of their subtasks."""
KEPT_KEY_GROUPS = 100
"""Samples per job; a sample has one row per operator."""
KEPT_BACKLOGS_MS = 24 * 3_600_000

# Finding old rows costs more than writing a row.
_EPOCHS_BETWEEN_CLEANUPS = 100
# A driver measures more often than that.
_SEEN_MS = 60_000


class Epochs:
    """Committed epochs and other figures of jobs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def record(
        self,
        epoch: EpochRecord,
        *,
        operators: Sequence[OperatorFigures] = (),
        key_groups: Sequence[KeyGroupsRecord] = (),
    ) -> None:
        """Record a committed epoch, its subtasks and its sampled keyed state; a recorded epoch stays unchanged.

        Its driver has settled.
        """
        with self._transactions.write_job(epoch.job) as connection:
            known = (epochs.c.job == epoch.job, epochs.c.lineage == epoch.lineage, epochs.c.epoch == epoch.epoch)
            if one(connection, epochs, *known, kind=EpochRecord) is not None:
                return
            connection.execute(insert(epochs).values(**dataclasses.asdict(epoch)))
            settle_generation(connection, epoch.job, epoch.generation, self._transactions.now_ms_in(connection))
            rollups.add_epoch(connection, epoch)
            if epoch.rows:
                _note_arrival(connection, epoch)
            if operators:
                made = SubtasksRecord(epoch.job, epoch.lineage, epoch.epoch, epoch.committed_ms, tuple(operators))
                connection.execute(insert(subtasks).values(**dataclasses.asdict(made)))
            for each in key_groups:
                connection.execute(insert(tables.key_groups).values(**dataclasses.asdict(each)))
            if epoch.epoch % _EPOCHS_BETWEEN_CLEANUPS == 0:
                _keep_newest(connection, epochs, epoch.job, KEPT_EPOCHS)
                _keep_newest(connection, subtasks, epoch.job, KEPT_SUBTASKS)
                _keep_newest(connection, tables.key_groups, epoch.job, KEPT_KEY_GROUPS)

    def of(
        self,
        job: str,
        *,
        limit: int | None = None,
        since_ms: int = 0,
        until_ms: int | None = None,
        step_ms: int | None = None,
    ) -> list[EpochRecord]:
        """Return the job's newest epochs in the order of their commits.

        Args:
            job: Name of the job.
            limit: Most epochs.
            since_ms: Earliest commit.
            until_ms: End of their commits, exclusive.
            step_ms: Only the last of each time step.

        """
        where = _between(epochs, epochs.c.committed_ms, job, since_ms, until_ms, step_ms)
        query = select(epochs).where(where)
        order = (epochs.c.committed_ms.desc(), epochs.c.epoch.desc())
        return self._transactions.all(query.order_by(*order).limit(limit), EpochRecord)[::-1]

    def has_all_since(self, job: str, since_ms: int) -> bool:
        """Return whether every epoch of a job since a time is still recorded, and not only rolled up."""
        rolled, oldest = tables.rollups.c, select(func.min(epochs.c.committed_ms)).where(epochs.c.job == job)
        with self._transactions.read() as connection:
            oldest_ms = connection.execute(oldest).scalar()
            if oldest_ms is None or since_ms >= oldest_ms:
                return True
            before = select(rolled.at_ms).where(
                rolled.job == job,
                rolled.level_ms == rollups.MINUTE_MS,
                rolled.epochs > 0,
                rolled.at_ms > since_ms - rollups.MINUTE_MS,
                rolled.at_ms <= oldest_ms - rollups.MINUTE_MS,
            )
            return connection.execute(before.limit(1)).first() is None

    def subtasks(self, job: str, *, limit: int = 1) -> list[SubtasksRecord]:
        """Return the metrics of the job's subtasks in its newest epochs, in commit order."""
        query = select(subtasks).where(subtasks.c.job == job)
        order = (subtasks.c.committed_ms.desc(), subtasks.c.epoch.desc())
        return self._transactions.all(query.order_by(*order).limit(limit), SubtasksRecord)[::-1]

    def subtasks_of(self, job: str, lineage: int, epoch: int) -> SubtasksRecord | None:
        """Return the metrics of the subtasks in one epoch; None if there are none, or no more."""
        of_epoch = (subtasks.c.job == job, subtasks.c.lineage == lineage, subtasks.c.epoch == epoch)
        return next(iter(self._transactions.all(select(subtasks).where(*of_epoch), SubtasksRecord)), None)

    def key_groups(self, job: str) -> list[KeyGroupsRecord]:
        """Return the newest sample of keyed state per key group, for each keyed operator, by uid."""
        where = (key_groups.c.job == job,)
        newest = select(key_groups.c.lineage, key_groups.c.epoch).where(*where)
        order = (key_groups.c.committed_ms.desc(), key_groups.c.epoch.desc())
        with self._transactions.read() as connection:
            epoch = connection.execute(newest.order_by(*order).limit(1)).one_or_none()
            if epoch is None:
                return []
            sample = select(key_groups).where(
                *where, key_groups.c.lineage == epoch.lineage, key_groups.c.epoch == epoch.epoch
            )
            return records(connection.execute(sample.order_by(key_groups.c.uid)).all(), KeyGroupsRecord)

    def record_backlog(
        self, job: str, generation: int, sources: Sequence[SourceBacklog], *, by_driver: bool = True
    ) -> None:
        """Record a measurement of the backlog; it is kept for a day.

        If nothing waits, the driver has settled; if no source says what waits, once it has run for a minute. While none
        runs (not ``by_driver``), the supervisor measures.
        """
        with self._transactions.write_job(job) as connection:
            now_ms, waits = self._transactions.now_ms_in(connection), some_wait(sources)
            since_ms = _waiting_since_ms(connection, job, now_ms) if waits else None
            made = BacklogRecord(job, now_ms, generation, tuple(sources), since_ms, by_driver)
            if waits is not True:
                # A driver that is still launching may have rows of its last epoch to publish. One whose sources do not
                # say what waits has a minute to fail.
                runs_since_ms = tables.generations.c.running_ms
                has_run_ms = 0 if waits is False else _SEEN_MS
                settle_generation(connection, job, generation, now_ms, runs_since_ms <= now_ms - has_run_ms)
            of_job, at = backlogs.c.job == job, backlogs.c.measured_ms
            connection.execute(delete(backlogs).where(of_job, at < made.measured_ms - KEPT_BACKLOGS_MS))
            connection.execute(delete(backlogs).where(of_job, at == made.measured_ms))
            connection.execute(insert(backlogs).values(**dataclasses.asdict(made)))
            rollups.add_backlog(connection, job, now_ms, sources, by_driver=by_driver)

    def record_topics(self, job: str, generation: int, sources: Sequence[SourceTopics]) -> None:
        """Replace the record of the rows that wait in the topics of a job's sources."""
        with self._transactions.write_job(job) as connection:
            made = TopicsRecord(job, generation, self._transactions.now_ms_in(connection), tuple(sources))
            _replace(connection, topics, made)

    def record_dataflow(self, dataflow: DataflowRecord) -> None:
        """Replace the record of a job's dataflow."""
        with self._transactions.write_job(dataflow.job) as connection:
            _replace(connection, dataflows, dataflow)

    def dataflow(self, job: str) -> DataflowRecord | None:
        """Return a job's dataflow, as its newest driver has built it; None before the first."""
        query = select(dataflows).where(dataflows.c.job == job)
        return next(iter(self._transactions.all(query, DataflowRecord)), None)

    def topics(self, job: str) -> TopicsRecord | None:
        """Return the last measurement of the topics of a job's sources; None without one."""
        return next(iter(self._transactions.all(select(topics).where(topics.c.job == job), TopicsRecord)), None)

    def backlogs(
        self, job: str, *, since_ms: int = 0, until_ms: int | None = None, step_ms: int | None = None
    ) -> list[BacklogRecord]:
        """Return the measurements of a job's backlog in time order.

        Args:
            job: Name of the job.
            since_ms: Earliest measurement.
            until_ms: End of the measurements, exclusive.
            step_ms: Only the last of each time step.

        """
        where = _between(backlogs, backlogs.c.measured_ms, job, since_ms, until_ms, step_ms)
        return self._transactions.all(select(backlogs).where(where).order_by(backlogs.c.measured_ms), BacklogRecord)

    def series(self, job: str, *, since_ms: int, until_ms: int, step_ms: int) -> list[MetricPoint]:
        """Return a job's figures for a chart, one point per time step; the last step may be shorter.

        Steps of whole minutes come from roll-ups, which reach back further than epochs.
        """
        if step_ms < 1:
            raise ValueError(f"found a step of {step_ms} ms; expected at least 1 ms; give a longer one")
        level_ms = rollups.level_for(step_ms)
        if level_ms is not None:
            with self._transactions.read() as connection:
                return rollups.points(connection, job, level_ms, since_ms=since_ms, until_ms=until_ms, step_ms=step_ms)
        # A little earlier, to know whether a driver ran at the beginning.
        committed = self.of(job, since_ms=since_ms - _SEEN_MS, until_ms=until_ms)
        measured = [(epoch.committed_ms, epoch.backlog) for epoch in committed if epoch.backlog]
        between = self.backlogs(job, since_ms=since_ms - _SEEN_MS, until_ms=until_ms)
        measured += [(each.measured_ms, each.sources) for each in between]
        in_step: dict[int, list[EpochRecord]] = defaultdict(list)
        for epoch in committed:
            in_step[(epoch.committed_ms - since_ms) // step_ms].append(epoch)
        # The last measurement of a step wins.
        waited = {(at_ms - since_ms) // step_ms: sources for at_ms, sources in sorted(measured, key=itemgetter(0))}
        rows = rollups.rows_in_steps(committed, since_ms, step_ms)
        seen = [(epoch.started_ms, epoch.committed_ms) for epoch in committed]
        seen += [(each.measured_ms, each.measured_ms) for each in between if each.by_driver]
        known = _known_steps(seen, since_ms, step_ms)
        return [
            _point(
                since_ms + step * step_ms,
                rows[step] * 1000 / step_ms if step in known else None,
                in_step[step],
                waited.get(step),
            )
            for step in range(-(-(until_ms - since_ms) // step_ms))
        ]

    def costs(self, job: str, *, limit: int) -> list[tuple[int, int, int, int, dict[str, float]]]:
        """Return commit time, parallelism, rows, duration (ms) and phases of a job's newest epochs, in commit order.

        Cheaper than whole records: a policy reads thousands of them every few seconds. Epochs without rows are omitted:
        an outage would leave no others.
        """
        of = epochs.c
        columns = select(of.committed_ms, of.parallelism, of.rows, of.duration_ms, of.phases)
        order = (of.committed_ms.desc(), of.epoch.desc())
        with self._transactions.read() as connection:
            rows = connection.execute(columns.where(of.job == job, of.rows > 0).order_by(*order).limit(limit)).all()
            return [(at_ms, parallelism, count, ms, phases) for at_ms, parallelism, count, ms, phases in reversed(rows)]

    def settled_ms(self, job: str, parallelism: int) -> int | None:
        """Return the start of the first epoch since the job's last change of parallelism; None without one."""
        others = (epochs.c.job == job, epochs.c.parallelism != parallelism)
        changed_ms = select(func.coalesce(func.max(epochs.c.committed_ms), 0)).where(*others).scalar_subquery()
        began_ms = select(func.min(epochs.c.started_ms)).where(epochs.c.job == job, epochs.c.committed_ms > changed_ms)
        with self._transactions.read() as connection:
            return connection.execute(began_ms).scalar()


def _replace(connection: Connection, table: Table, made: TopicsRecord | DataflowRecord) -> None:
    """Replace a job's only row, unless a newer driver has written it: what an older one says is out of date."""
    of_job = table.c.job == made.job
    written_by = connection.execute(select(table.c.generation).where(of_job)).scalar()
    if written_by is None or written_by <= made.generation:
        connection.execute(delete(table).where(of_job))
        connection.execute(insert(table).values(**dataclasses.asdict(made)))


def _note_arrival(connection: Connection, epoch: EpochRecord) -> None:
    """Note that an epoch had rows; a time in which no driver ran is no silence."""
    of_job, at_ms = arrivals.c.job == epoch.job, epoch.committed_ms
    before = one(connection, arrivals, of_job, kind=ArrivalsRecord)
    made = ArrivalsRecord(epoch.job, epoch.generation, at_ms, at_ms, 0)
    if before is not None:
        silent_ms, usual_ms = epoch.started_ms - before.newest_ms, before.usual_silence_ms
        counts = before.generation == epoch.generation and (usual_ms is None or silent_ms <= usual_ms)
        longest_ms = max(before.longest_ms, silent_ms) if counts else before.longest_ms
        made = dataclasses.replace(made, first_ms=before.first_ms, longest_ms=longest_ms)
        connection.execute(delete(arrivals).where(of_job))
    connection.execute(insert(arrivals).values(**dataclasses.asdict(made)))


def _waiting_since_ms(connection: Connection, job: str, now_ms: int) -> int:
    """Return since when the measurements up to now have found that something waits."""
    since = select(backlogs.c.waiting_since_ms).where(backlogs.c.job == job)
    before_ms = connection.execute(since.order_by(backlogs.c.measured_ms.desc()).limit(1)).scalar()
    return now_ms if before_ms is None else before_ms


def _keep_newest(connection: Connection, table: Table, job: str, count: int) -> None:
    """Remove a job's rows older than the newest ``count``; rows of the same time are treated alike."""
    at, of_job = table.c.committed_ms, table.c.job == job
    # With fewer rows it is null, and no row is older than null.
    oldest = select(at).where(of_job).order_by(at.desc()).offset(count - 1).limit(1).scalar_subquery()
    connection.execute(delete(table).where(of_job, at < oldest))


def _known_steps(seen: Sequence[tuple[int, int]], since_ms: int, step_ms: int) -> set[int]:
    """Return the steps in which a driver ran: those near an epoch or a measurement."""
    return {
        step
        for start_ms, end_ms in seen
        for step in range((start_ms - _SEEN_MS - since_ms) // step_ms, (end_ms + _SEEN_MS - since_ms) // step_ms + 1)
    }


def _point(
    at_ms: int, rows_per_second: float | None, committed: Sequence[EpochRecord], waited: Sequence[SourceBacklog] | None
) -> MetricPoint:
    return MetricPoint(
        at_ms=at_ms,
        rows_per_second=rows_per_second,
        epoch_ms=sum(epoch.duration_ms for epoch in committed) / len(committed) if committed else None,
        parallelism=committed[-1].parallelism if committed else None,
        backlog=None if waited is None else over_all(waited),
        phases={
            phase: sum(epoch.phases.get(phase, 0.0) for epoch in committed) / len(committed)
            for phase in dict.fromkeys(phase for epoch in committed for phase in epoch.phases)
        },
    )


def _between(
    table: Table, at: Column[int], job: str, since_ms: int, until_ms: int | None, step_ms: int | None
) -> ColumnElement[bool]:
    """Return the condition for a job's rows between two times; with ``step_ms``, the last of each time step."""
    where = and_(table.c.job == job, at >= since_ms)
    if until_ms is not None:
        where = and_(where, at < until_ms)
    if step_ms is None:
        return where
    return and_(where, at.in_(select(func.max(at)).where(where).group_by(at // step_ms)))
