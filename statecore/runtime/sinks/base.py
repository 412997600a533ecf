"""What a sink is, and what it is given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from statecore.errors import SinkError
from statecore.model import Field, arrow_schema, parse_row
from statecore.runtime.sinks.frames import rows_of
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import FileRef, StagedOutput
from statecore.storage import FileStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """The rows of a committed epoch for one sink, as its workers staged them.

    Attributes:
        job: Name of the job.
        sink: Name of the sink in the job.
        schema: Of the rows, as Spark DDL.
        store: Where the staged files are.
        outputs: The staged files that the epoch's manifest names.
        spark: The driver's session.

    """

    job: str
    sink: str
    lineage: int
    epoch: int
    schema: str
    store: FileStore
    outputs: tuple[StagedOutput, ...]
    spark: SparkSession

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the rows."""
        return parse_row(self.schema)

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, over the files: another run of the job may have an epoch of this number, but not these."""
        lines = sorted(f"{output.file.path} {output.file.sha256}\n" for output in self.outputs)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows file by file, each checked against size and checksum.

        Raises:
            MissingFileError: A file is not there.
            CorruptFileError: Its size or checksum differs.
            SinkError: The job has given its output other columns since the epoch was committed.

        """
        for output in self.outputs:
            yield _read(self.store, output.file, arrow_schema(self.fields))

    def dataframe(self) -> DataFrame:
        """Return the rows as a DataFrame, read by the workers and checked as by ``tables``.

        It is lazy, and the files go once the epoch is published: cache or copy what is needed for longer.
        """
        store, schema = self.store, arrow_schema(self.fields)

        def read(file: FileRef) -> pa.Table:
            return _read(store, file, schema)

        return rows_of(self.spark, [output.file for output in self.outputs], read, self.fields)


class Sink(Protocol):
    """Takes the rows of committed epochs."""

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the store in which workers stage this sink's rows: the job's own, or one that suits publishing."""

    def publish(self, staged: StagedEpoch) -> None:
        """Make an epoch's rows visible.

        It is called once per (lineage, epoch), in order; and again for the newest one when a driver died before it
        noted that the sink has it. Then the rows must not be visible twice.
        """


def _read(store: FileStore, file: FileRef, schema: pa.Schema) -> pa.Table:
    table = pq.read_table(pa.BufferReader(CheckpointStore(store).read_file(file)))
    if _columns(table.schema) != _columns(schema):
        raise SinkError(
            f"found rows with the columns {_listed(table.schema)} in {store.url}/{file.path}; expected "
            f"{_listed(schema)}, as the job says now; give the output its former columns back until the epoch is "
            "published"
        )
    return table


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    # As text, types would differ in the name that Parquet gives to the elements of a list.
    return [(field.name, field.type) for field in schema]


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
