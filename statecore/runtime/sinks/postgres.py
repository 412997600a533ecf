"""A table in PostgreSQL."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from statecore.errors import JobDefinitionError, SinkError
from statecore.model import Field
from statecore.model.arrow_values import from_arrow
from statecore.runtime.sinks.base import StagedEpoch
from statecore.runtime.sinks.dsn import Dsn
from statecore.runtime.sinks.postgres_types import column_type, converter
from statecore.storage import FileStore

log = logging.getLogger(__name__)

PUBLISHED = "statecore_published"

_PATIENCE_S = 30.0
_BATCH_ROWS = 16 * 1024
_SCHEMA_LOCK = 7_371_614  # any number, the same in every process
_LONGEST_NAME = 63  # bytes; PostgreSQL cuts off the rest of an identifier in silence

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


class PostgresSink:
    """A table in PostgreSQL, to which an epoch's rows are appended in one transaction.

    The table ``statecore_published`` in the same schema remembers, in the same transaction, what was published: job,
    sink, lineage, epoch, and a checksum of what the epoch consisted of. Both tables are created when they are missing.

    Args:
        dsn: ``host=… dbname=…`` or ``postgresql://user@host/database``. What is left out comes from ``PG*`` variables
            and ``~/.pgpass``, as for any libpq program; ``""`` leaves out everything.
        table: ``table`` or ``schema.table``, in the case it has; the schema must exist.

    Raises:
        JobDefinitionError: The dsn or the table's name does not read.

    """

    def __init__(self, dsn: str, table: str) -> None:
        names = tuple(table.split("."))
        if len(names) > 2 or not all(0 < len(name.encode()) <= _LONGEST_NAME for name in names) or "\0" in table:
            raise JobDefinitionError(
                f"found the table {table!r}; expected 'table' or 'schema.table', each of at most {_LONGEST_NAME} "
                "bytes; correct it"
            )
        self._dsn = Dsn.parse(dsn)
        self._table = names

    def __repr__(self) -> str:
        return f"PostgresSink(table {'.'.join(self._table)!r} in {self._dsn})"

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the job's own store."""
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        """Append an epoch's rows, unless the table has them; what fails for a while is tried again for half a minute.

        Raises:
            SinkError: The database cannot be reached or refuses the rows, or the table has other columns.

        """
        try:
            for attempt in Retrying(
                retry=retry_if_exception(_may_pass),
                wait=wait_random_exponential(multiplier=0.2, max=5),
                stop=stop_after_delay(_PATIENCE_S),
                before_sleep=self._log_failure,
                reraise=True,
            ):
                with attempt:
                    self._publish(staged)
        except psycopg.OperationalError as error:
            raise SinkError(
                f"found no way to publish epoch {staged.epoch} of sink {staged.sink!r} in {self._dsn}: {_said(error)}; "
                "expected a server that can be reached, lets this user in and has room; check it, and host, user and "
                "password; the epoch stays committed and is published when the job is back"
            ) from error
        except (psycopg.Error, UnicodeError) as error:
            raise SinkError(
                f"found that {self!r} refuses epoch {staged.epoch} of sink {staged.sink!r}: {_said(error)}; expected "
                f"to append rows of {staged.schema!r}; correct the table or the user's rights, and the epoch is "
                "published when the job is back; rows that it can never take go through a FunctionSink of the same name"
            ) from error

    def _log_failure(self, state: RetryCallState) -> None:
        assert state.outcome is not None
        log.warning("%s: %s; trying again", self._dsn, state.outcome.exception())

    def _publish(self, staged: StagedEpoch) -> None:
        with self._dsn.connect() as connection, connection.cursor() as cursor:
            transaction = _Transaction(cursor, staged, _schema(cursor, self._table, self._dsn), self._table[-1])
            transaction.make_durable()
            if transaction.claim():
                transaction.prepare_table()
                transaction.copy()


class _Transaction:
    """What is done to publish one epoch; the caller commits it."""

    def __init__(self, cursor: psycopg.Cursor, staged: StagedEpoch, schema: str, table: str) -> None:
        self._cursor = cursor
        self._staged = staged
        self._fields = staged.fields
        self._table = sql.Identifier(schema, table)
        self._published = sql.Identifier(schema, PUBLISHED)

    def make_durable(self) -> None:
        """Wait for the disk at the commit also where a server does not: the staged rows go right after it."""
        self._cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    def claim(self) -> bool:
        """Note the epoch as published; False when it is already."""
        if not self._columns(self._published):
            # Of two that create a table at once, one would fail.
            self._cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            self._cursor.execute(sql.SQL(_CREATE_PUBLISHED).format(self._published))
        staged = self._staged
        key = (staged.job, staged.sink, staged.lineage, staged.epoch)
        self._cursor.execute(
            sql.SQL(_INSERT_PUBLISHED).format(self._published),
            (*key, staged.fingerprint),
        )
        if self._cursor.rowcount == 1:
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
                f"{staged.sink!r} in {_name(self._published)} already, with other rows; expected it to be new; another "
                "run of a job of this name published it: choose another name or schema, or delete what that run "
                "published from both tables"
            )
        return False

    def prepare_table(self) -> None:
        """Create the table, or check that it has the columns of the rows and no others."""
        expected = {field.name: column_type(field.type) for field in self._fields}
        too_long = [name for name in expected if len(name.encode()) > _LONGEST_NAME]
        if too_long:
            raise SinkError(
                f"found the columns {too_long}; expected names of at most {_LONGEST_NAME} bytes, as PostgreSQL has "
                "them; rename them in the output of the job"
            )
        found = self._columns(self._table)
        if not found:
            self._create(expected)
        elif found != expected:
            raise SinkError(
                f"found the columns {_listed(found)} in the table {_name(self._table)}; expected {_listed(expected)}, "
                "as the output of the job has them; alter the table, or give the sink another one"
            )

    def copy(self) -> None:
        """Append the rows."""
        names = sql.SQL(", ").join(sql.Identifier(field.name) for field in self._fields)
        with self._cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(self._table, names)) as copy:
            for table in self._staged.tables():
                for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                    for row in zip(*_values(batch, self._fields), strict=True):
                        copy.write_row(row)

    def _create(self, columns: dict[str, str]) -> None:
        # The types are words of ours, so that their text is safe.
        parts = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_text)) for name, type_text in columns.items()
        ]
        self._cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(self._table, sql.SQL(", ").join(parts)))

    def _columns(self, table: sql.Identifier) -> dict[str, str]:
        """Return the columns of a table with their types; nothing when there is no such table."""
        return dict(self._cursor.execute(_COLUMNS, (table.as_string(self._cursor),)).fetchall())


def _schema(cursor: psycopg.Cursor, table: tuple[str, ...], dsn: Dsn) -> str:
    """Return the schema of a table that may not be there yet."""
    if len(table) == 2:
        cursor.execute("SELECT nspname FROM pg_namespace WHERE nspname = %s", (table[0],))
    else:
        cursor.execute(
            "SELECT coalesce((SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE pg_class.oid = to_regclass(%s)), current_schema())",
            (sql.Identifier(*table).as_string(cursor),),
        )
    found = cursor.fetchone()
    if found is None or found[0] is None:
        raise SinkError(
            f"found no schema for the table {'.'.join(table)!r} in {dsn}; expected it to exist; create it, or correct "
            "the table's name or the user's search_path"
        )
    schema: str = found[0]
    return schema


def _values(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> list[Any]:
    return [map(converter(field.type), from_arrow(column)) for field, column in zip(fields, batch.columns, strict=True)]


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {type_text}" for name, type_text in columns.items())


def _name(table: sql.Identifier) -> str:
    return table.as_string(None)


def _said(error: Exception) -> str:
    """Return what the server or the driver says, without the statement that it points into."""
    diagnosis = error.diag if isinstance(error, psycopg.Error) else None
    if diagnosis is None or diagnosis.message_primary is None:
        return " ".join(str(error).split())
    return ", ".join(filter(None, (diagnosis.message_primary, diagnosis.message_detail, diagnosis.context)))


def _may_pass(error: BaseException) -> bool:
    """Tell whether another try may help: a server that is away or busy, but not one that has refused the password."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    refused = error.pgconn
    return refused is None or not (refused.used_password or refused.needs_password)
