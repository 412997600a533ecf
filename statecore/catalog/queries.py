"""Base of all groups of catalog queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Table, select

from statecore.catalog import tables
from statecore.catalog.clock import Clock
from statecore.catalog.database import Database
from statecore.catalog.records import Liveness
from statecore.errors import ConfigurationError, UnknownClusterError, UnknownJobError

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


class Queries:
    """A group of queries on one catalog."""

    def __init__(self, database: Database, clock: Clock, liveness: Liveness) -> None:
        self._database = database
        self._clock = clock
        self._liveness = liveness

    @contextmanager
    def _write_job(self, job: str) -> Iterator[Connection]:
        """Begin a write that excludes other writes to the same job.

        Raises:
            UnknownJobError: The job is not registered.

        """
        with self._database.write() as connection:
            lock = select(tables.jobs.c.name).where(tables.jobs.c.name == job).with_for_update()
            if connection.execute(lock).first() is None:
                raise unknown_job(connection, job)
            yield connection


def one(connection: Connection, table: Table, *where: ColumnElement[bool], kind: type[T]) -> T | None:
    """Return the one record that fulfils the conditions, or None."""
    row = connection.execute(select(table).where(*where)).one_or_none()
    return None if row is None else record(row, kind)


def record(row: Row[Any], kind: type[T]) -> T:
    """Convert a row to its record; an invalid value is refused."""
    return msgspec.convert({str(name): value for name, value in row._mapping.items()}, kind)


def records(rows: Sequence[Row[Any]], kind: type[T]) -> list[T]:
    """Convert rows to their records."""
    return [record(row, kind) for row in rows]


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be part of a file name.

    Raises:
        ConfigurationError: The name has other characters than letters, digits and ``_.-``.

    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} name {name!r} cannot be used; expected at most 200 letters, digits, '_', '.' or '-', "
            "beginning with a letter or digit; choose another name"
        )


def unknown_job(connection: Connection, job: str) -> UnknownJobError:
    """Return the error that lists the registered jobs."""
    return UnknownJobError(
        f"job {job!r} is not registered; known jobs: {_names(connection, tables.jobs)}; register it or correct the name"
    )


def unknown_cluster(connection: Connection, cluster: str) -> UnknownClusterError:
    """Return the error that lists the registered clusters."""
    return UnknownClusterError(
        f"cluster {cluster!r} is not registered; known clusters: {_names(connection, tables.clusters)}; "
        "register it or correct the name"
    )


def _names(connection: Connection, table: Table) -> str:
    names = connection.execute(select(table.c.name).order_by(table.c.name)).scalars().all()
    return ", ".join(names) or "none"
