"""A sink that appends to a table in PostgreSQL."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from statecore.arguments import require
from statecore.errors import JobDefinitionError, SinkError
from statecore.model import Field
from statecore.model.arrow_values import from_arrow
from statecore.runtime.sinks.base import StagedEpoch, Threaded
from statecore.runtime.sinks.dsn import Dsn
from statecore.runtime.sinks.postgres_types import column_type, converter
from statecore.storage import FileStore

log = logging.getLogger(__name__)

PUBLISHED = "statecore_published"

_RETRY_S = 30.0
# A publisher on a host that died may leave its transaction open, with the row that its successor has to insert.
_LOCK_TIMEOUT, _IDLE_TIMEOUT = "30s", "60s"
_SCHEMA_LOCK = 7_371_614  # an arbitrary advisory lock, the same in every process
_LONGEST_NAME = 63  # bytes; PostgreSQL silently truncates longer identifiers

_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_CREATE_PUBLISHED = """
    CREATE TABLE IF NOT EXISTS {} (
        job text, sink text, lineage bigint, epoch bigint, outputs text NOT NULL,
        PRIMARY KEY (job, sink, lineage, epoch)
    )
"""
_INSERT_PUBLISHED = """
    INSERT INTO {} (job, sink, lineage, epoch, outputs) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
_LATER = """
    SELECT lineage, epoch FROM {} WHERE job = %s AND sink = %s AND (lineage, epoch) > (%s, %s)
    ORDER BY lineage DESC, epoch DESC LIMIT 1
"""
_FORGET = "DELETE FROM {} WHERE job = %s AND sink = %s AND (lineage, epoch) < (%s, %s)"


class PostgresSink(Threaded):
    """Appends each epoch's rows to a PostgreSQL table, in one transaction.

    The same transaction records the epoch in the table ``statecore_published`` of the same schema: job, sink, lineage,
    epoch and a checksum of the rows' files. It holds the newest epoch of each sink; an earlier one is refused. The sink
    creates both tables when they are missing.
    ``statecore.runtime.sinks.postgres_types`` lists the column types.

    Args:
        dsn: ``host=… dbname=…`` or ``postgresql://user@host/database``. libpq fills missing parts from ``PG*``
            variables and ``~/.pgpass``; ``""`` takes everything from there.
        table: ``table`` or ``schema.table``, case-sensitive; the schema must exist.

    Raises:
        JobDefinitionError: The dsn or the table name is invalid.

    """

    def __init__(self, dsn: str, table: str) -> None:
        if not isinstance(dsn, str):
            # Without its content, which may have a password.
            raise JobDefinitionError(
                f"found a dsn of type {type(dsn).__name__}; expected a connection string; write it as "
                "postgresql://user@host/database"
            )
        require("table", table, str, "'table' or 'schema.table'")
        names = tuple(table.split("."))
        if len(names) > 2 or not all(0 < len(name.encode()) <= _LONGEST_NAME for name in names) or "\0" in table:
            raise JobDefinitionError(
                f"found the table name {table!r}; expected 'table' or 'schema.table', each part of at most "
                f"{_LONGEST_NAME} bytes; correct the name"
            )
        self._dsn = Dsn.parse(dsn)
        self._table = names

    def __repr__(self) -> str:
        return f"PostgresSink(table {'.'.join(self._table)!r} in {self._dsn})"

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the job's own store."""
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        """Append an epoch's rows unless the table has them; retry transient failures for 30 seconds.

        Raises:
            SinkError: The database cannot be reached or refuses the rows, or the table has other columns.

        """
        try:
            for attempt in Retrying(
                retry=retry_if_exception(_is_transient),
                wait=wait_random_exponential(multiplier=0.2, max=5),
                stop=stop_after_delay(_RETRY_S),
                before_sleep=self._log_failure,
                reraise=True,
            ):
                with attempt:
                    self._publish(staged)
        except psycopg.errors.LockNotAvailable as error:
            raise SinkError(
                f"found a lock in {self._dsn} that another session holds, when publishing epoch {staged.epoch} of "
                f"sink {staged.sink!r}: {_said(error)}; expected it to be released; end that session "
                "(pg_stat_activity, pg_locks): the epoch stays committed, and the next driver publishes it"
            ) from error
        except psycopg.OperationalError as error:
            raise SinkError(
                f"found no connection to publish epoch {staged.epoch} of sink {staged.sink!r} in {self._dsn}: "
                f"{_said(error)}; expected a reachable server with free space that accepts this user; check server, "
                "host, user and password, then restart the job: the epoch stays committed and is published then"
            ) from error
        except (psycopg.Error, UnicodeError) as error:
            raise SinkError(
                f"found that {self!r} refuses epoch {staged.epoch} of sink {staged.sink!r}: {_said(error)}; expected "
                f"to append rows of {staged.schema!r}; correct the table or the user's rights, then restart the job: "
                "it publishes the epoch; for rows that the table can never take, use a FunctionSink of the same name"
            ) from error

    def _log_failure(self, state: RetryCallState) -> None:
        assert state.outcome is not None
        log.warning("%s: %s; retrying", self._dsn, state.outcome.exception())

    def _publish(self, staged: StagedEpoch) -> None:
        with self._dsn.connect() as connection, connection.cursor() as cursor:
            transaction = _Transaction(cursor, staged, _schema(cursor, self._table, self._dsn), self._table[-1])
            transaction.bound_waits()
            transaction.create_tables()
            # Another sink that creates tables does not wait for this one's rows.
            connection.commit()
            transaction.make_durable()
            transaction.bound_waits()
            if transaction.claim():
                transaction.check_table()
                transaction.copy()
                transaction.forget_older()


class _Transaction:
    """The statements that publish one epoch; the caller commits."""

    def __init__(self, cursor: psycopg.Cursor, staged: StagedEpoch, schema: str, table: str) -> None:
        self._cursor = cursor
        self._staged = staged
        self._fields = staged.fields
        self._table = sql.Identifier(schema, table)
        self._published = sql.Identifier(schema, PUBLISHED)

    def make_durable(self) -> None:
        """Make the commit wait for the disk even with ``synchronous_commit`` off: staged files are deleted next."""
        self._cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    def bound_waits(self) -> None:
        """Give up waiting for locks, and have the server end this transaction if its client falls silent.

        Limits that the server, the user or the connection string sets are kept.
        """
        self._cursor.execute(
            "SELECT set_config(name, value, true) FROM pg_settings JOIN (VALUES "
            "('lock_timeout', %s), ('idle_in_transaction_session_timeout', %s)) AS ours (name, value) USING (name) "
            "WHERE setting = '0'",
            (_LOCK_TIMEOUT, _IDLE_TIMEOUT),
        )

    def claim(self) -> bool:
        """Record the epoch as published; return False when it already is.

        Raises:
            SinkError: The epoch is recorded with other rows, or a later one is recorded.

        """
        staged = self._staged
        key = (staged.job, staged.sink, staged.lineage, staged.epoch)
        self._cursor.execute(
            sql.SQL(_INSERT_PUBLISHED).format(self._published),
            (*key, staged.fingerprint),
        )
        if self._cursor.rowcount == 1:
            self._check_newest(key)
            return True
        self._cursor.execute(
            sql.SQL("SELECT outputs FROM {} WHERE (job, sink, lineage, epoch) = (%s, %s, %s, %s)").format(
                self._published
            ),
            key,
        )
        if self._cursor.fetchall() != [(staged.fingerprint,)]:
            raise SinkError(
                f"found epoch {staged.epoch} of lineage {staged.lineage} of job {staged.job!r} and sink "
                f"{staged.sink!r} already in {_name(self._published)}, with other rows; expected a new epoch; another "
                "run of a job of this name published it: choose another job name or schema, or delete that run's rows "
                "from both tables"
            )
        return False

    def _check_newest(self, key: tuple[str, str, int, int]) -> None:
        # After the insert, which waits for a transaction that forgets a record of this epoch.
        later = self._cursor.execute(sql.SQL(_LATER).format(self._published), key).fetchone()
        if later is not None:
            raise SinkError(
                f"found epoch {later[1]} of lineage {later[0]} of job {key[0]!r} and sink {key[1]!r} already in "
                f"{_name(self._published)}; expected epoch {key[3]} of lineage {key[2]} to be later; if another driver "
                "has taken over, let this one stop; if another run of a job of this name published it, choose another "
                "job name or schema, or delete that run's rows from both tables"
            )

    def forget_older(self) -> None:
        """Remove the records of earlier epochs, if this user may; only the newest is read."""
        may = "SELECT has_table_privilege(%s, 'DELETE')"
        if self._cursor.execute(may, (self._published.as_string(self._cursor),)).fetchone() == (True,):
            staged = self._staged
            key = (staged.job, staged.sink, staged.lineage, staged.epoch)
            self._cursor.execute(sql.SQL(_FORGET).format(self._published), key)

    def create_tables(self) -> None:
        """Create the tables that are missing.

        Raises:
            SinkError: A name is too long for PostgreSQL; or the table has other columns, and nothing is created.

        """
        is_known, is_there = bool(self._columns(self._published)), bool(self._columns(self._table))
        if is_known and is_there:
            return
        if is_there:
            self.check_table()
        too_long = [field.name for field in self._fields if len(field.name.encode()) > _LONGEST_NAME]
        if too_long:
            raise SinkError(
                f"found the columns {too_long}; expected names of at most {_LONGEST_NAME} bytes, PostgreSQL's limit; "
                "rename them in the output of the job"
            )
        # Without the lock, one of two concurrent CREATE TABLE IF NOT EXISTS would fail.
        self._cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        self._cursor.execute(sql.SQL(_CREATE_PUBLISHED).format(self._published))
        # Safe as plain SQL: column_type() produces these texts, not a user.
        parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(text)) for n, text in self._expected().items()]
        columns = sql.SQL(", ").join(parts)
        self._cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self._table, columns))

    def check_table(self) -> None:
        """Check that the table has exactly the columns of the rows.

        Raises:
            SinkError: The columns differ.

        """
        columns, expected = self._columns(self._table), self._expected()
        if columns != expected:
            raise SinkError(
                f"found the columns {_listed(columns)} in the table {_name(self._table)}; expected {_listed(expected)}"
                ", the output of the job; alter the table, or give the sink another one"
            )

    def copy(self) -> None:
        """Append the rows."""
        names = sql.SQL(", ").join(sql.Identifier(field.name) for field in self._fields)
        with self._cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(self._table, names)) as copy:
            for batch in self._staged.batches():
                for row in zip(*_values(batch, self._fields), strict=True):
                    copy.write_row(row)

    def _expected(self) -> dict[str, str]:
        return {field.name: column_type(field.type) for field in self._fields}

    def _columns(self, table: sql.Identifier) -> dict[str, str]:
        """Return the columns of a table with their types; an empty dict when there is no such table."""
        return dict(self._cursor.execute(_COLUMNS, (table.as_string(self._cursor),)).fetchall())


def _schema(cursor: psycopg.Cursor, table: tuple[str, ...], dsn: Dsn) -> str:
    """Return the schema of a table, which need not exist yet.

    Raises:
        SinkError: The schema does not exist.

    """
    if len(table) == 2:
        cursor.execute("SELECT nspname FROM pg_namespace WHERE nspname = %s", (table[0],))
    else:
        cursor.execute(
            "SELECT coalesce((SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE pg_class.oid = to_regclass(%s)), current_schema())",
            (sql.Identifier(*table).as_string(cursor),),
        )
    row = cursor.fetchone()
    if row is None or row[0] is None:
        raise SinkError(
            f"found no schema for the table {'.'.join(table)!r} in {dsn}; expected an existing schema; create it, or "
            "correct the table's name or the user's search_path"
        )
    return str(row[0])


def _values(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> list[Any]:
    return [map(converter(field.type), from_arrow(column)) for field, column in zip(fields, batch.columns, strict=True)]


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {type_text}" for name, type_text in columns.items())


def _name(table: sql.Identifier) -> str:
    return table.as_string(None)


def _said(error: Exception) -> str:
    """Return the server's or the driver's message on one line, without the failing statement."""
    diagnosis = error.diag if isinstance(error, psycopg.Error) else None
    if diagnosis is None or diagnosis.message_primary is None:
        return " ".join(str(error).split())
    return ", ".join(filter(None, (diagnosis.message_primary, diagnosis.message_detail, diagnosis.context)))


def _is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: the server is unreachable or busy, but did not refuse the password."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    connection = error.pgconn
    return connection is None or not (connection.used_password or connection.needs_password)
