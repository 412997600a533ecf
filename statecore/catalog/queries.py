"""Queries that several parts of the catalog share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Table, select, update

from statecore.catalog import tables
from statecore.catalog.records import ClusterRecord, GenerationRecord, JobRecord, RequestKind
from statecore.errors import ConfigurationError, UnknownClusterError, UnknownJobError

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


def one(connection: Connection, table: Table, *where: ColumnElement[bool], kind: type[T]) -> T | None:
    """Return the one record that meets the conditions, or None."""
    row = connection.execute(select(table).where(*where)).one_or_none()
    return None if row is None else record(row, kind)


def record(row: Row[Any], kind: type[T]) -> T:
    """Convert a row to its record; raise msgspec.ValidationError for an invalid value."""
    return msgspec.convert({str(name): value for name, value in row._mapping.items()}, kind)


def records(rows: Sequence[Row[Any]], kind: type[T]) -> list[T]:
    """Convert rows to their records."""
    return [record(row, kind) for row in rows]


def get_job(connection: Connection, name: str) -> JobRecord:
    """Return a job, or raise the error that lists the registered ones."""
    job = one(connection, tables.jobs, tables.jobs.c.name == name, kind=JobRecord)
    if job is None:
        raise unknown_job(connection, name)
    return job


def get_cluster(connection: Connection, name: str) -> ClusterRecord:
    """Return a cluster, or raise the error that lists the registered ones."""
    cluster = one(connection, tables.clusters, tables.clusters.c.name == name, kind=ClusterRecord)
    if cluster is None:
        raise UnknownClusterError(
            f"cluster {name!r} is not registered; known clusters: {_names(connection, tables.clusters)}; "
            "register it or correct the name"
        )
    return cluster


def lock_cluster(connection: Connection, name: str) -> ClusterRecord:
    """Lock a cluster until the transaction ends, and return it."""
    lock = select(tables.clusters.c.name).where(tables.clusters.c.name == name).with_for_update()
    connection.execute(lock)
    return get_cluster(connection, name)


def newest_generation(connection: Connection, job: str) -> GenerationRecord | None:
    """Return the newest generation of a job, or None before the first."""
    generations = tables.generations
    query = select(generations).where(generations.c.job == job).order_by(generations.c.generation.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else record(row, GenerationRecord)


def end_generation(
    connection: Connection, found: GenerationRecord, *, now_ms: int, state: str, error: str | None
) -> None:
    """Record the end of a generation."""
    generations = tables.generations
    connection.execute(
        update(generations)
        .where(generations.c.job == found.job, generations.c.generation == found.generation)
        .values(state=state, error=error, ended_ms=now_ms)
    )


def settle_generation(connection: Connection, job: str, number: int, now_ms: int, *where: ColumnElement[bool]) -> None:
    """Record that a generation's driver has settled, if it meets the conditions; the first time stays."""
    of = tables.generations.c
    unsettled = (of.job == job, of.generation == number, of.settled_ms.is_(None))
    connection.execute(update(tables.generations).where(*unsettled, *where).values(settled_ms=now_ms))


def fail_requests(connection: Connection, job: str, error: str, now_ms: int, *only: RequestKind) -> None:
    """Fail the unfinished requests of a job, of all kinds or only some."""
    requests = tables.requests
    unfinished = [requests.c.job == job, requests.c.state.in_(["pending", "taken"])]
    if only:
        unfinished.append(requests.c.kind.in_(only))
    connection.execute(update(requests).where(*unfinished).values(state="failed", error=error, updated_ms=now_ms))


def check_name(what: str, name: str) -> None:
    """Raise ConfigurationError for a name that cannot be part of a file name."""
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


def _names(connection: Connection, table: Table) -> str:
    names = connection.execute(select(table.c.name).order_by(table.c.name)).scalars().all()
    return ", ".join(names) or "none"
