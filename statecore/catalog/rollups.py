"""Roll-ups of a job's epochs and measurements, by the minute and by the quarter of an hour.

A chart over hours reads a few hundred of them instead of thousands of epochs, and reaches back further than epochs do.
A span without a row, or in which no driver ran, is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace

from sqlalchemy import Connection, and_, delete, insert, or_, select

from statecore.catalog import tables
from statecore.catalog.figures import (
    EpochRecord,
    MetricPoint,
    RollUpRecord,
    SourceBacklog,
    over_all,
)
from statecore.catalog.queries import records

rollups = tables.rollups

MINUTE_MS, QUARTER_MS = 60_000, 900_000
_DAY_MS = 24 * 3_600_000
KEPT_MS = {MINUTE_MS: 2 * _DAY_MS, QUARTER_MS: 90 * _DAY_MS}
"""How long roll-ups of each length are kept."""


def level_for(step_ms: int) -> int | None:
    """Return the longest roll-up that fills steps of this length; None if they are too short for any."""
    return max((level_ms for level_ms in KEPT_MS if step_ms % level_ms == 0), default=None)


def add_epoch(connection: Connection, epoch: EpochRecord) -> None:
    """Add a committed epoch: its rows to all spans that it took, the rest to the span of its commit."""
    # A clock that jumped while the epoch ran must not spread its rows over years.
    began_ms = max(epoch.started_ms, epoch.committed_ms - epoch.duration_ms)
    spread = replace(epoch, started_ms=began_ms)
    made: list[RollUpRecord] = []
    for level_ms in KEPT_MS:
        committed = RollUpRecord(
            epoch.job,
            level_ms,
            epoch.committed_ms // level_ms * level_ms,
            ran=True,
            epochs=1,
            duration_ms=epoch.duration_ms,
            phases=epoch.phases,
            parallelism=epoch.parallelism,
            backlog=over_all(epoch.backlog) if epoch.backlog else None,
        )
        parts = {
            number * level_ms: RollUpRecord(epoch.job, level_ms, number * level_ms, ran=True, rows=rows)
            for number, rows in rows_in_steps([spread], 0, level_ms).items()
        }
        before = parts.get(committed.at_ms)
        made += (parts | {committed.at_ms: committed if before is None else before.plus(committed)}).values()
    _add(connection, made)


def add_backlog(
    connection: Connection, job: str, at_ms: int, sources: Sequence[SourceBacklog], *, by_driver: bool
) -> None:
    """Add a measurement of the backlog; the last one of a span counts."""
    total = over_all(sources)
    made = [RollUpRecord(job, ms, at_ms // ms * ms, ran=by_driver, backlog=total) for ms in KEPT_MS]
    _add(connection, made)


def points(
    connection: Connection, job: str, level_ms: int, *, since_ms: int, until_ms: int, step_ms: int
) -> list[MetricPoint]:
    """Return a job's figures for a chart, one point per time step, from roll-ups of this length."""
    of = rollups.c
    where = (of.job == job, of.level_ms == level_ms, of.at_ms >= since_ms, of.at_ms < until_ms)
    found = records(connection.execute(select(rollups).where(*where).order_by(of.at_ms)).all(), RollUpRecord)
    in_step: dict[int, list[RollUpRecord]] = defaultdict(list)
    for each in found:
        in_step[(each.at_ms - since_ms) // step_ms].append(each)
    steps = range(-(-(until_ms - since_ms) // step_ms))
    return [_point(since_ms + step * step_ms, step_ms, in_step[step]) for step in steps]


def rows_in_steps(committed: Sequence[EpochRecord], since_ms: int, step_ms: int) -> dict[int, float]:
    """Return the rows of each step; an epoch's rows are spread over its duration, so long epochs leave no gaps."""
    rows: dict[int, float] = defaultdict(float)
    for epoch in committed:
        end_ms = epoch.committed_ms - since_ms
        took_ms = epoch.committed_ms - epoch.started_ms
        if took_ms <= 0:
            rows[end_ms // step_ms] += epoch.rows
            continue
        began_ms = max(0, end_ms - took_ms)
        for step in range(began_ms // step_ms, -(-end_ms // step_ms)):
            shared_ms = min(end_ms, (step + 1) * step_ms) - max(began_ms, step * step_ms)
            rows[step] += epoch.rows * shared_ms / took_ms
    return rows


def _add(connection: Connection, made: Sequence[RollUpRecord]) -> None:
    """Add to a job's roll-ups, in three statements however many they are."""
    of, job = rollups.c, made[0].job
    starts = {ms: [each.at_ms for each in made if each.level_ms == ms] for ms in KEPT_MS}
    where = and_(of.job == job, or_(*(and_(of.level_ms == ms, of.at_ms.in_(at)) for ms, at in starts.items())))
    rows = records(connection.execute(select(rollups).where(where)).all(), RollUpRecord)
    before = {(each.level_ms, each.at_ms): each for each in rows}
    if before:
        # A driver may add figures and remove them, and change none.
        connection.execute(delete(rollups).where(where))
    keys = [(each.level_ms, each.at_ms) for each in made]
    added = [before[key].plus(each) if key in before else each for key, each in zip(keys, made, strict=True)]
    connection.execute(insert(rollups), [asdict(each) for each in added])
    if any(level_ms == QUARTER_MS and (level_ms, at_ms) not in before for level_ms, at_ms in keys):
        _forget(connection, job, made[-1].at_ms)


def _forget(connection: Connection, job: str, now_ms: int) -> None:
    """Remove a job's roll-ups that are older than they are kept; called with each new quarter of an hour."""
    of = rollups.c
    old = [and_(of.level_ms == level_ms, of.at_ms < now_ms - kept_ms) for level_ms, kept_ms in KEPT_MS.items()]
    connection.execute(delete(rollups).where(of.job == job, or_(*old)))


def _point(at_ms: int, step_ms: int, found: Sequence[RollUpRecord]) -> MetricPoint:
    epochs = sum(each.epochs for each in found)
    phases: dict[str, float] = defaultdict(float)
    for each in found:
        for phase, ms in each.phases.items():
            phases[phase] += ms
    return MetricPoint(
        at_ms=at_ms,
        rows_per_second=sum(each.rows for each in found) * 1000 / step_ms if any(each.ran for each in found) else None,
        epoch_ms=sum(each.duration_ms for each in found) / epochs if epochs else None,
        parallelism=next((each.parallelism for each in reversed(found) if each.parallelism is not None), None),
        backlog=next((each.backlog for each in reversed(found) if each.backlog is not None), None),
        phases={phase: ms / epochs for phase, ms in phases.items()},
    )
