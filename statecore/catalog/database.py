"""Connections and transactions of SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from statecore.catalog import roles, schema
from statecore.catalog.clock import SystemClock
from statecore.errors import CatalogError, ConfigurationError
from statecore.extras import require
from statecore.private_files import create_private, make_private_folder
from statecore.redaction import redacted

_BUSY_TIMEOUT_S = 30
# By default libpq blocks its caller for many minutes after a server vanishes.
# In seconds, except the last one, which is in milliseconds.
_LIBPQ_PATIENCE = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 10, "tcp_user_timeout": 30_000}
# A client stopped in a transaction holds its row locks: others give up waiting, and the server ends its session. Until
# then the driver of the locked job sends no heartbeat, so both times must be shorter than ``Liveness.running_ms``.
_LOCK_TIMEOUT_S, _IDLE_TIMEOUT_S = 5.0, 10.0
# The time of this statement, not that of the transaction's beginning.
_NOW_MS = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
FAILOVER_S = 10.0
"""Programs wait this long for a server to answer again. Shorter than the silence that a driver may keep."""
_RECONNECT_S = 0.2
_CHECKED_FOR_S = 10.0
_SCHEMA_LOCK = 7_371_613  # arbitrary, but the same in every process


class Database:
    """Read and write transactions of one catalog; usable from several threads.

    A write transaction on SQLite begins with ``BEGIN IMMEDIATE``: it holds the only write lock from its first statement
    on, so the rows it reads cannot change before it writes. On PostgreSQL, a transaction first locks the row that a
    change belongs to (``SELECT … FOR UPDATE``) and then reads committed rows, with the same effect.
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
        self._reading = self._engine.execution_options(statecore_begin="BEGIN")
        self._writing = self._engine.execution_options(statecore_begin="BEGIN IMMEDIATE")
        self._checked_s: float | None = None
        self._away_since_s: float | None = None

    @property
    def name(self) -> str:
        """The catalog's URL without its password."""
        return self._url.render_as_string(hide_password=True)

    def read(self) -> AbstractContextManager[Connection]:
        """Open a connection for reads; SQLite reads one snapshot, PostgreSQL committed rows."""
        return self._begin(self._reading)

    def write(self) -> AbstractContextManager[Connection]:
        """Open a connection whose changes are committed together, or not at all if the block raises."""
        return self._begin(self._writing)

    @contextmanager
    def _begin(self, engine: Engine) -> Iterator[Connection]:
        """Begin a transaction; CatalogSchemaError when the tables are missing or belong to another release."""
        with self._named():
            if self._checked_s is None:
                with self._reading.begin() as connection:
                    self._require_head(connection)
            with self._connect(engine) as connection, connection.begin():
                # A program that runs for weeks must notice an upgrade, too.
                if time.monotonic() - (self._checked_s or 0) >= _CHECKED_FOR_S:
                    self._require_head(connection)
                yield connection

    def _connect(self, engine: Engine) -> Connection:
        """Return a connection; wait out a failover of at most ``FAILOVER_S``.

        During a longer outage calls fail at once: a stream goes on without the catalog.
        """
        while True:
            try:
                connection = engine.connect()
            except OperationalError:
                now_s = time.monotonic()
                # Read once: another thread may find the server back, and clear it.
                since_s = self._away_since_s or now_s
                self._away_since_s = since_s
                if engine.dialect.name == "sqlite" or now_s - since_s >= FAILOVER_S:
                    raise
                time.sleep(_RECONNECT_S)
            else:
                self._away_since_s = None
                return connection

    def now_ms(self, connection: Connection) -> int:
        """Return the database's time in milliseconds since the epoch, UTC.

        One clock stamps the records of all hosts, because the clocks of hosts differ. SQLite has none, and only one
        host: its clock is used.
        """
        if self._engine.dialect.name == "sqlite":
            return SystemClock().now_ms()
        return int(connection.execute(_NOW_MS).scalar_one())

    def create_schema(self, *, only_if_new: bool = False) -> None:
        """Upgrade the tables to the newest revision; any number of processes may do so at once."""
        with self._named():
            with self._reading.begin() as connection:
                is_new, revision = schema.is_new(connection), schema.revision(connection)
                if not is_new and (only_if_new or str(revision) >= schema.head()):
                    schema.require_head(connection, self.name)
                    return
            if self._engine.dialect.name == "sqlite":
                self._write_ahead()
                self._upgrade_sqlite()
            else:
                with self._writing.begin() as connection:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
                    schema.upgrade(connection)

    def grant_roles(self) -> list[str]:
        """Grant rights as ``roles`` says; SQLite has no roles."""
        if self._engine.dialect.name == "sqlite":
            return []
        with self.write() as connection:
            return roles.grant_roles(connection)

    def revision(self) -> str | None:
        """Return the revision of the tables; None when there are none."""
        with self._named(), self._reading.begin() as connection:
            return schema.revision(connection)

    def _require_head(self, connection: Connection) -> None:
        schema.require_head(connection, self.name)
        self._checked_s = time.monotonic()

    def _upgrade_sqlite(self) -> None:
        """Upgrade on a separate connection that does not enforce foreign keys.

        Alembic drops and recreates a changed table, which would delete the rows that refer to it.
        """
        engine = create_engine(self._url, poolclass=NullPool, connect_args={"timeout": _BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _without_implicit_transactions)
        event.listen(engine, "begin", _on_sqlite_begin)
        with engine.execution_options(statecore_begin="BEGIN IMMEDIATE").begin() as connection:
            schema.upgrade(connection)
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
            if broken:
                raise CatalogError(
                    f"catalog {self.name}: found rows with dangling references after the upgrade: {broken}; expected "
                    "none; nothing was changed; report it, and continue with the previous release"
                )

    @retry(
        retry=retry_if_exception(lambda error: getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY),
        wait=wait_random(0.01, 0.1),
        stop=stop_after_delay(_BUSY_TIMEOUT_S),
        reraise=True,
    )
    def _write_ahead(self) -> None:
        """Switch the file to write-ahead logging, permanently.

        Retried, because SQLite ignores its timeout when two connections switch at once.
        """
        # Without SQLAlchemy, which would begin a transaction: the mode cannot be changed inside one.
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
            raise  # the query that provoked it handles it
        except (SQLAlchemyError, sqlite3.Error) as error:
            # On one line: some drivers write several.
            cause = " ".join(str(getattr(error, "orig", None) or error).split())
            raise CatalogError(
                f"catalog {self.name}: {cause}; expected a reachable database with the catalog's tables; "
                "check that it is up, then try again"
            ) from error


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # A port that is not a number is a ValueError. Even a URL that cannot be parsed may contain a password.
        raise ConfigurationError(
            f"catalog URL {redacted(url)!r} is not a database URL; expected sqlite:///path/to/file or "
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
        if url.get_driver_name() == "psycopg":
            require("psycopg", extra="postgres")
        # Overrides the server's default: the locks are designed for this level, so no transaction needs a retry.
        patience: dict[str, int] = {}
        if url.get_driver_name() in ("psycopg", "psycopg2"):
            patience = {name: value for name, value in _LIBPQ_PATIENCE.items() if name not in url.query}
        engine = create_engine(url, pool_pre_ping=True, isolation_level="READ COMMITTED", connect_args=patience)
        event.listen(engine, "connect", _on_postgres_connect)
        return engine
    file = Path(str(url.database))
    make_private_folder(file.parent)
    # SQLite would create it readable by everybody; the files beside it get its mode.
    # An existing file must not be opened: by POSIX, closing it would release the locks of all connections of this
    # process. Another process that exits would then remove the log that this one still writes to.
    create_private(file)
    engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _on_postgres_connect(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT_S:g}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_TIMEOUT_S:g}s'")
    connection.commit()


def _on_sqlite_connect(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    _without_implicit_transactions(connection, entry)
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _without_implicit_transactions(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # Otherwise the driver begins transactions implicitly, and only after the first read.
    connection.isolation_level = None


def _on_sqlite_begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("statecore_begin", "BEGIN"))
