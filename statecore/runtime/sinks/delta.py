"""A sink that appends to a Delta Lake table.

Delta's log keeps, for each application, the newest version that it has committed; a commit of rows and version is one
transaction, and of two concurrent commits of one application the second fails::

    statecore/<job>/<sink>           lineage * 10^12 + epoch
    statecore/<job>/<sink>/outputs   the first 60 bits of the SHA-256 over the epoch's staged files
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from statecore.arguments import require_path
from statecore.errors import SinkError
from statecore.model import arrow_schema
from statecore.runtime.sinks.base import StagedEpoch, Threaded
from statecore.storage import FileStore

log = logging.getLogger(__name__)

_EPOCHS = 10**12
_RETRY_S = 30.0


class DeltaSink(Threaded):
    """Appends each epoch's rows to a Delta Lake table, in one transaction with the epoch's number.

    The package ``deltalake`` writes the table; Spark needs no jars. The sink creates the table when it is missing. Any
    number of sinks, jobs and other writers may append to one table.

    Args:
        path: Path or URL of the table. Credentials of an object store come from the driver's environment.

    Raises:
        JobDefinitionError: The path is no path or URL.

    """

    def __init__(self, path: str | Path) -> None:
        require_path("path", path)
        self.path = str(path)

    def __repr__(self) -> str:
        return f"DeltaSink({self.path!r})"

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the job's own store."""
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        """Append an epoch's rows unless the table has them; retry for 30 seconds while others commit first.

        Raises:
            SinkError: The table has other columns, knows a later epoch or this one with other rows, or cannot be
                written.

        """
        try:
            for attempt in Retrying(
                retry=retry_if_exception_type(CommitFailedError),
                wait=wait_random_exponential(multiplier=0.2, max=5),
                stop=stop_after_delay(_RETRY_S),
                reraise=True,
            ):
                with attempt:
                    self._publish(staged)
        except (DeltaError, OSError) as error:
            raise SinkError(
                f"found that {self!r} refuses epoch {staged.epoch} of sink {staged.sink!r}: {_line(error)}; expected "
                f"to append rows of {staged.schema!r}; correct the table, or the driver's rights to its folder, then "
                "restart the job: the epoch stays committed and is published then"
            ) from error

    def _publish(self, staged: StagedEpoch) -> None:
        schema = arrow_schema(staged.fields)
        table = self._table(schema)
        if self._holds(table, staged):
            return
        self._check_columns(table, schema)
        version, outputs = _versions(staged)
        rows = _Rows(staged, schema)
        try:
            write_deltalake(
                table,
                rows.reader(),
                mode="append",
                commit_properties=CommitProperties(
                    app_transactions=[
                        Transaction(_application(staged), version),
                        Transaction(f"{_application(staged)}/outputs", outputs),
                    ]
                ),
            )
        except Exception:
            # The Delta library passes on an error in reading the rows only as text.
            if rows.failure is not None:
                raise rows.failure from None
            raise

    def _table(self, schema: pa.Schema) -> DeltaTable:
        """Return the table, created if it is missing."""
        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            return DeltaTable.create(self.path, schema, mode="ignore")

    def _holds(self, table: DeltaTable, staged: StagedEpoch) -> bool:
        """Return whether the epoch is already published.

        Raises:
            SinkError: A later epoch is published, or this epoch with other rows.

        """
        application, (version, outputs) = _application(staged), _versions(staged)
        newest = table.transaction_version(application)
        if newest is None or newest < version:
            return False
        has_same_rows = table.transaction_version(f"{application}/outputs") == outputs
        if newest == version and has_same_rows:
            return True
        lineage, epoch = divmod(newest, _EPOCHS)
        published = f"epoch {epoch} of lineage {lineage}{' with other rows' if newest == version else ''}"
        raise SinkError(
            f"found {published} of {application!r} already in the table {self.path}; expected epoch {staged.epoch} of "
            f"lineage {staged.lineage} to be the next; if another driver has taken over, let this one stop; if another "
            "run of a job of this name published there, choose another job name or table"
        )

    def _check_columns(self, table: DeltaTable, schema: pa.Schema) -> None:
        existing, expected = _columns(pa.schema(table.schema().to_arrow())), _columns(schema)
        if existing != expected:
            raise SinkError(
                f"found the columns {_listed(existing)} in the table {self.path}; expected {_listed(expected)}, the "
                "output of the job; alter the table (a new column: DeltaTable(path).alter.add_columns(…)), or give the "
                "sink another one, then restart the job: the epoch stays committed and is published then"
            )


class _Rows:
    """The rows of an epoch as a stream for the Delta library, and the error that reading them failed with."""

    def __init__(self, staged: StagedEpoch, schema: pa.Schema) -> None:
        self._staged = staged
        self._schema = schema
        self.failure: Exception | None = None

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._staged.batches()
        except Exception as error:
            self.failure = error
            raise


def _application(staged: StagedEpoch) -> str:
    return f"statecore/{staged.job}/{staged.sink}"


def _versions(staged: StagedEpoch) -> tuple[int, int]:
    """Return the epoch, and its rows, as numbers that fit a Delta transaction."""
    return staged.lineage * _EPOCHS + staged.epoch, int(staged.fingerprint[:15], 16)


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _listed(columns: list[tuple[str, pa.DataType]]) -> str:
    return ", ".join(f"{name} {data_type}" for name, data_type in columns)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
