"""The sink Protocol, and the committed epoch that a sink publishes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from statecore.errors import SinkError
from statecore.model import Field, arrow_schema, parse_row
from statecore.runtime.sinks.frames import rows_of
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import FileRef, StagedOutput
from statecore.storage import FileStore
from statecore.storage.parallel import in_parallel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Read ahead of the sink, which is slower than storage; each takes memory of the driver, compressed as it is staged.
_FILES_AHEAD = 4
_BATCH_ROWS, _BATCH_BYTES, _FIRST_ROWS = 16 * 1024, 16 * 1024 * 1024, 64


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """The rows of a committed epoch that workers staged for one sink.

    Attributes:
        job: Name of the job.
        sink: Name of the sink in the job.
        lineage: Lineage of the epoch.
        epoch: Number of the epoch.
        schema: Schema of the rows as Spark DDL.
        store: Store of the staged files.
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
        """SHA-256 in hex over the files: it differs for the same epoch in another run of the job."""
        lines = sorted(f"{output.file.path} {output.file.sha256}\n" for output in self.outputs)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most 16,384 and about 16 MiB at a time, file by file; size and checksum are verified.

        Files are decoded batch by batch: however large an epoch is, its rows take little memory.

        Raises:
            MissingFileError: A file is missing.
            CorruptFileError: A file's size or checksum differs from the manifest's.
            SinkError: The job changed the columns of its output after the epoch was committed.

        """
        store, schema = self.store, arrow_schema(self.fields)

        def read(output: StagedOutput) -> pq.ParquetFile:
            return _opened(store, output.file, schema)

        for file in in_parallel(read, self.outputs, threads=_FILES_AHEAD):
            for batch in file.iter_batches(_rows_at_a_time(file)):
                # The file's schema differs in the name of list elements.
                yield batch.cast(schema)

    def dataframe(self) -> DataFrame:
        """Return the rows as a lazy DataFrame; workers read and verify the files as ``batches`` does.

        The files are deleted once the epoch is published: write or cache the rows before ``publish`` returns.
        """
        store, schema = self.store, arrow_schema(self.fields)

        def read(file: FileRef) -> pa.Table:
            return _opened(store, file, schema).read()

        return rows_of(self.spark, [output.file for output in self.outputs], read, self.fields)


@runtime_checkable
class Sink(Protocol):
    """Publishes the rows of committed epochs."""

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the store where workers stage this sink's rows: the job's, unless publishing is cheaper elsewhere."""

    def publish(self, staged: StagedEpoch) -> None:
        """Make an epoch's rows visible.

        The driver calls this once per (lineage, epoch), in order. After a driver died in between, its successor calls
        it again for the newest epoch; the rows must not become visible twice. If one sink of an epoch fails, the others
        still publish it.

        Raises:
            SinkError: The sink cannot take the rows. The driver stops; the epoch stays committed and staged.

        """


@runtime_checkable
class ChecksColumns(Protocol):
    """A sink that cannot publish every column; a job with other columns is refused before its first commit."""

    def check_columns(self, fields: Sequence[Field]) -> None:
        """Check the columns of its rows.

        Raises:
            JobDefinitionError: It cannot publish them.

        """


class Threaded:
    """Marks a sink that is published in a thread of its own: it needs neither Spark nor code of the job."""


def _opened(store: FileStore, file: FileRef, schema: pa.Schema) -> pq.ParquetFile:
    opened = pq.ParquetFile(pa.BufferReader(CheckpointStore(store).read_file(file)))
    if _columns(opened.schema_arrow) != _columns(schema):
        raise SinkError(
            f"found rows with the columns {_listed(opened.schema_arrow)} in {store.url}/{file.path}; expected "
            f"{_listed(schema)}, the job's current output schema; restore the former output schema until this epoch is "
            "published"
        )
    return opened


def _rows_at_a_time(file: pq.ParquetFile) -> int:
    """Judge by the file, which counts a value that repeats only once, and by its first rows."""
    groups = (file.metadata.row_group(index).total_byte_size for index in range(file.num_row_groups))
    on_file = sum(groups) / max(1, file.metadata.num_rows)
    first = max((batch.nbytes / len(batch) for batch in islice(file.iter_batches(_FIRST_ROWS), 1)), default=0)
    return int(min(_BATCH_ROWS, max(1, _BATCH_BYTES / max(1, on_file, first))))


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    # Types are compared as objects: as text they differ in the name that Parquet gives to list elements.
    return [(field.name, field.type) for field in schema]


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
