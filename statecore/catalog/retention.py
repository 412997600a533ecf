"""Retention: the history that the catalog forgets, and the savepoints to drop."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, select

from statecore.catalog import tables
from statecore.catalog.records import SavepointRecord

KEPT_MS = 30 * 24 * 3_600_000
"""Ended generations, requests and rescale runs are remembered for 30 days."""
KEPT_NEWEST = 100
"""Number of the newest generations and rescale runs of a job that are remembered at any age."""


def forget_history(connection: Connection, job: str, now_ms: int) -> None:
    """Remove a job's generations, requests and rescale runs that ended long before ``now_ms``; the newest ones stay.

    The caller has locked the job.
    """
    generations, requests, runs = tables.generations.c, tables.requests.c, tables.rescale_runs.c
    before_ms = now_ms - KEPT_MS
    newest = select(generations.generation).where(generations.job == job)
    newest = newest.order_by(generations.generation.desc()).limit(KEPT_NEWEST)
    connection.execute(
        delete(tables.generations).where(
            generations.job == job,
            generations.ended_ms < before_ms,
            generations.generation.not_in(newest.scalar_subquery()),
        )
    )
    connection.execute(
        delete(tables.requests).where(
            requests.job == job, requests.state.in_(["done", "failed"]), requests.updated_ms < before_ms
        )
    )
    newest_runs = select(runs.run_id).where(runs.job == job)
    newest_runs = newest_runs.order_by(runs.created_ms.desc(), runs.run_id).limit(KEPT_NEWEST)
    connection.execute(
        delete(tables.rescale_runs).where(
            runs.job == job,
            runs.state != "running",
            runs.updated_ms < before_ms,
            runs.run_id.not_in(newest_runs.scalar_subquery()),
        )
    )


def superfluous_savepoints(
    savepoints: Sequence[SavepointRecord], *, keep: int, max_age_ms: int, now_ms: int, needed: Collection[str] = ()
) -> list[SavepointRecord]:
    """Return the savepoints beyond the newest ``keep`` and those older than ``max_age_ms``, oldest first.

    The newest one always stays, at any age. Savepoints at the paths ``needed``, which are in use, stay and count
    towards ``keep``.
    """
    newest_first = sorted(savepoints, key=lambda each: (each.created_ms, each.epoch), reverse=True)
    surplus = [
        each
        for position, each in enumerate(newest_first)
        if position >= max(keep, 1) or (position > 0 and now_ms - each.created_ms > max_age_ms)
    ]
    return [each for each in reversed(surplus) if each.path not in needed]
