"""Transactions on the catalog's database, shared by all of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import IntegrityError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from statecore.catalog import tables
from statecore.catalog.audit import difference, record_change
from statecore.catalog.clock import Clock
from statecore.catalog.database import Database
from statecore.catalog.queries import get_job, records, unknown_job

T = TypeVar("T")


class Transactions:
    """Read and write transactions, their time and their author.

    Args:
        database: The database.
        clock: The source of all times, for tests; None for the database's clock.
        who: Author of the changes, for the audit; see ``AuditRecord.on_behalf_of``.

    """

    def __init__(self, database: Database, clock: Clock | None, who: str) -> None:
        self._database = database
        self._clock = clock
        self.who = who

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch, UTC."""
        if self._clock is not None:
            return self._clock.now_ms()
        with self._database.read() as connection:
            return self._database.now_ms(connection)

    def now_ms_in(self, connection: Connection) -> int:
        """Return the time within a transaction; call it after taking locks, because it may have waited for them."""
        return self._database.now_ms(connection) if self._clock is None else self._clock.now_ms()

    def read(self) -> AbstractContextManager[Connection]:
        """Begin a read."""
        return self._database.read()

    def write(self) -> AbstractContextManager[Connection]:
        """Begin a write; it is committed when the block ends, and rolled back when the block raises."""
        return self._database.write()

    @contextmanager
    def write_job(self, job: str) -> Iterator[Connection]:
        """Begin a write that excludes other writes to the same job.

        Raises:
            UnknownJobError: The job is not registered.

        """
        with self._database.write() as connection:
            lock = select(tables.jobs.c.name).where(tables.jobs.c.name == job).with_for_update()
            if connection.execute(lock).first() is None:
                raise unknown_job(connection, job)
            yield connection

    @contextmanager
    def change_job(self, job: str) -> Iterator[Connection]:
        """Begin a write as ``write_job`` does, and record the changes of the job in the audit."""
        with self.write_job(job) as connection:
            before = get_job(connection, job)
            yield connection
            self.record_change(connection, job, difference(before, get_job(connection, job)))

    def record_change(self, connection: Connection, job: str, change: dict[str, Any]) -> None:
        """Write a line of the audit, unless nothing changed."""
        if change:
            record_change(connection, job, change, self.who, self.now_ms_in(connection))

    def all(self, query: Select[Any], kind: type[T]) -> list[T]:
        """Return the records that a query selects."""
        with self._database.read() as connection:
            return records(connection.execute(query).all(), kind)


# Another process may insert the row after the check (PostgreSQL only); the second attempt finds it.
again_after_conflict = retry(retry=retry_if_exception_type(IntegrityError), stop=stop_after_attempt(2), reraise=True)
