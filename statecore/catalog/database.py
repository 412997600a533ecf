"""Connections and transactions, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from statecore.catalog.tables import metadata
from statecore.errors import CatalogError, ConfigurationError

_BUSY_TIMEOUT_S = 30
_SCHEMA_LOCK = 7_371_613  # any number, the same in every process


class Database:
    """Read and write transactions of one catalog; usable from several threads.

    A write transaction on SQLite begins with ``BEGIN IMMEDIATE``: it holds the only write lock from its first
    statement on, so what it reads cannot change before it writes. On PostgreSQL the same is reached by
    locking the row that a change belongs to (``SELECT … FOR UPDATE``).
    """

    def __init__(self, url: str) -> None:
        self._url = _parse(url)
        try:
            self._engine = _engine(self._url)
        except (SQLAlchemyError, ImportError, OSError) as error:
            raise ConfigurationError(
                f"catalog URL {self.name!r} cannot be used: {error}; expected a database whose driver is "
                "installed; install the driver or correct the URL"
            ) from error
        self._reading = self._engine.execution_options(statecore_write=False)
        self._writing = self._engine.execution_options(statecore_write=True)

    @property
    def name(self) -> str:
        """The catalog's URL without its password."""
        return self._url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection to read from; SQLite reads one snapshot, PostgreSQL what is committed."""
        with self._named(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection whose changes are all made, or none if the block raises."""
        with self._named(), self._writing.begin() as connection:
            yield connection

    def create_schema(self) -> None:
        """Create the tables that are missing; any number of processes may do so at once."""
        if self._engine.dialect.name == "sqlite":
            with self._named():
                self._write_ahead()
        with self.write() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
            metadata.create_all(connection)

    @retry(
        retry=retry_if_exception(lambda error: getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY),
        wait=wait_random(0.01, 0.1),
        stop=stop_after_delay(_BUSY_TIMEOUT_S),
        reraise=True,
    )
    def _write_ahead(self) -> None:
        """Switch the file to write-ahead logging, which stays.

        Tried again, because SQLite does not wait, whatever the timeout, when two connections switch at once.
        """
        # Below SQLAlchemy, which would begin a transaction: the mode cannot be changed inside one.
        with closing(self._engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA journal_mode=WAL")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise  # the query that provoked it knows what it means
        except (SQLAlchemyError, sqlite3.Error) as error:
            cause = getattr(error, "orig", None) or error
            raise CatalogError(
                f"catalog {self.name}: {cause}; expected a reachable database with the catalog's tables; "
                "check that it is up and that the schema was created, then try again"
            ) from error


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigurationError(
            f"catalog URL {url!r} is not a database URL; expected sqlite:///path/to/file or "
            "postgresql+driver://user@host/name; correct it"
        ) from error
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise ConfigurationError(
            f"catalog URL names the database {backend!r}; expected sqlite or postgresql; use one of them"
        )
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigurationError(
            f"catalog URL {url!r} is a database in memory; expected a file, because several processes share "
            "the catalog; use sqlite:///path/to/file"
        )
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    Path(str(url.database)).expanduser().parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _on_sqlite_connect(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver would begin transactions by itself, and late: after the first read.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _on_sqlite_begin(connection: Connection) -> None:
    write = connection.get_execution_options().get("statecore_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
