"""Savepoints of a job."""

from __future__ import annotations

import dataclasses

from sqlalchemy import delete, insert, select

from statecore.catalog import tables
from statecore.catalog.queries import one
from statecore.catalog.records import SavepointRecord
from statecore.catalog.transactions import Transactions

savepoints = tables.savepoints


class SavepointRecords:
    """Records of savepoints; the savepoints themselves are in the job's store."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def record(
        self,
        path: str,
        *,
        job: str,
        lineage: int,
        epoch: int,
        parallelism: int,
        reason: str,
        created_ms: int | None = None,
        bytes: int | None = None,
        asked_ms: int | None = None,
    ) -> SavepointRecord:
        """Record a savepoint; idempotent.

        A later savepoint at the same path replaces the record: stores never overwrite a savepoint, so the first one was
        dropped.
        ``path`` is its manifest or folder. ``created_ms`` defaults to the current time; ``asked_ms`` is when it was
        requested, by the catalog's clock.
        """
        with self._transactions.write_job(job) as connection:
            known = one(connection, savepoints, savepoints.c.path == path, kind=SavepointRecord)
            if known is not None and (known.job, known.lineage, known.epoch) == (job, lineage, epoch):
                return known
            created_ms = self._transactions.now_ms_in(connection) if created_ms is None else created_ms
            took_ms = None if asked_ms is None else max(0, created_ms - asked_ms)
            made = SavepointRecord(path, job, lineage, epoch, parallelism, created_ms, reason, bytes, took_ms)
            connection.execute(delete(savepoints).where(savepoints.c.path == path))
            connection.execute(insert(savepoints).values(**dataclasses.asdict(made)))
            return made

    def forget(self, *paths: str) -> bool:
        """Remove the record of a dropped savepoint under any spelling of its path; return whether there was one."""
        with self._transactions.write() as connection:
            return connection.execute(delete(savepoints).where(savepoints.c.path.in_(paths))).rowcount > 0

    def of(self, job: str, *, limit: int | None = None) -> list[SavepointRecord]:
        """Return the job's savepoints, newest first."""
        query = select(savepoints).where(savepoints.c.job == job)
        order = (savepoints.c.created_ms.desc(), savepoints.c.epoch.desc())
        return self._transactions.all(query.order_by(*order).limit(limit), SavepointRecord)
