"""A sink that writes a folder of Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from statecore.arguments import require_path
from statecore.errors import ConfigurationError, CorruptFileError, MissingFileError, SinkError
from statecore.model import Field, arrow_schema, parse_row, parse_type
from statecore.runtime.sinks.base import StagedEpoch, Threaded
from statecore.runtime.sinks.frames import rows_of
from statecore.runtime.sinks.markers import Markers
from statecore.runtime.worker.outputs import published_name
from statecore.snapshot.manifest import StagedOutput
from statecore.snapshot.published import MARKERS
from statecore.storage import FileStore, open_store
from statecore.storage.parallel import all_in_parallel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PUBLISHED = re.compile(r"lineage=(\d+)/epoch=(\d+)/[^/]+\.parquet")
_POSITION = (Field("lineage", parse_type("int")), Field("epoch", parse_type("bigint")))


class ParquetSink(Threaded):
    """Writes a folder of Parquet files, ``lineage=<n>/epoch=<n>/<file>``, which any engine reads as a table.

    Workers stage files under ``_staged/``; the driver moves them once their epoch is committed. A reader that skips
    names beginning with ``_``, as engines do, sees only committed epochs. It may see part of the newest epoch while
    the driver moves its files; ``read`` returns only whole epochs.

    Args:
        path: Path or URL of the folder. Driver and workers must reach it, and no other sink may use it.

    Raises:
        JobDefinitionError: The path is no path or URL.

    """

    def __init__(self, path: str | Path) -> None:
        require_path("path", path)
        self.path = str(path)

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the store of the sink's own folder, so that publishing is a rename."""
        return open_store(self.path)

    def publish(self, staged: StagedEpoch) -> None:
        """Move the staged files to their epoch's partition.

        Raises:
            MissingFileError: A file is neither staged nor published.
            SinkError: Another run published a later epoch here, or this epoch with other rows.

        """
        store = staged.store
        markers = Markers(store, MARKERS)
        if markers.hold(staged):
            # The files are not checked: a consumer of the folder may have moved them since.
            return

        def move(output: StagedOutput) -> None:
            name = published_name(output.file.path)
            target = f"lineage={staged.lineage}/epoch={staged.epoch}/{name}"
            try:
                store.move(output.file.path, target)
            except MissingFileError:
                # A killed driver already moved it. The name contains the attempt token, so it is the same file.
                if store.size(target) != output.file.size:
                    raise

        all_in_parallel(move, staged.outputs)
        markers.put(staged)

    def read(self, spark: SparkSession, lineage: int | None = None) -> DataFrame:
        """Return the published rows of whole epochs.

        Resuming from an older savepoint opens a new lineage and deletes nothing: the rows of the undone epochs stay
        here, under the previous lineage.

        Args:
            spark: A session whose workers reach the folder.
            lineage: Return only this lineage; None returns all.

        Returns:
            The columns of the newest epoch, null where an older epoch lacks one, then ``lineage int`` and
            ``epoch bigint``.

        Raises:
            MissingFileError: No rows are published there, or none of that lineage.
            ConfigurationError: The rows already have a column ``lineage`` or ``epoch``.

        """
        store = open_store(self.path)
        markers = Markers(store, MARKERS)
        if markers.newest is None:
            raise MissingFileError(
                f"found no published epoch in {store.url}; expected the folder of a ParquetSink; correct the path, or "
                "wait for the first epoch with rows"
            )
        fields = [replace(field, nullable=True) for field in parse_row(markers.read(*markers.newest).schema)]
        _refuse_taken(fields, store.url)
        # List after reading the marker: every epoch up to it is whole.
        files = [file for file in _published(store, markers.newest) if lineage in (None, file[0])]
        if not files:
            asked = "any lineage" if lineage is None else f"lineage {lineage}"
            raise MissingFileError(
                f"found no rows of {asked} in {store.url}; expected some up to lineage {markers.newest[0]}, the "
                "newest; correct the lineage, or find out what moved the files away"
            )
        schema = arrow_schema(fields)

        def read_file(file: tuple[int, int, str]) -> pa.Table:
            return _with_position(_read(store, file[2], schema), *file[:2])

        return rows_of(spark, files, read_file, [*fields, *_POSITION])


def _refuse_taken(fields: Sequence[Field], url: str) -> None:
    taken = sorted({field.name for field in fields} & {field.name for field in _POSITION})
    if taken:
        raise ConfigurationError(
            f"found the columns {taken} in the rows of {url}; expected other names, because read() adds these "
            "columns; rename them in the output of the job, or read the files with Spark"
        )


def _published(store: FileStore, newest: tuple[int, int]) -> Iterator[tuple[int, int, str]]:
    for lineage in range(1, newest[0] + 1):
        for entry in store.list(f"lineage={lineage}"):
            match = _PUBLISHED.fullmatch(entry.path)
            if match and (lineage, int(match[2])) <= newest:
                yield lineage, int(match[2]), entry.path


def _read(store: FileStore, path: str, schema: pa.Schema) -> pa.Table:
    try:
        with store.open_input(path) as source:
            table = pq.ParquetFile(source, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(
            f"found an unreadable file {store.url}/{path} ({error}); expected the Parquet file that was published; "
            "restore it from a backup"
        ) from error
    try:
        columns = [_column(table, field) for field in schema]
    except pa.ArrowException as error:
        raise SinkError(
            f"found rows in {store.url}/{path} that do not fit the newest schema ({error}); expected columns that can "
            f"be cast to {', '.join(f'{field.name} {field.type}' for field in schema)}; read the files from before and "
            "after the schema change separately"
        ) from error
    return pa.table(columns, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.nulls(table.num_rows, field.type)
    return table.column(field.name).cast(field.type)


def _with_position(table: pa.Table, lineage: int, epoch: int) -> pa.Table:
    for field, value in zip(_POSITION, (lineage, epoch), strict=True):
        table = table.append_column(field.arrow(), pa.repeat(pa.scalar(value, field.type.arrow()), table.num_rows))
    return table
