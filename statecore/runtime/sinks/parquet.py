"""A folder of Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from statecore.errors import ConfigurationError, CorruptFileError, MissingFileError, SinkError
from statecore.model import Field, arrow_schema, parse_row, parse_type
from statecore.runtime.sinks.base import StagedEpoch
from statecore.runtime.sinks.frames import rows_of
from statecore.runtime.sinks.markers import MARKERS, Markers
from statecore.runtime.worker.outputs import published_name
from statecore.storage import FileStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PUBLISHED = re.compile(r"lineage=(\d+)/epoch=(\d+)/[^/]+\.parquet")
_POSITION = (Field("lineage", parse_type("int")), Field("epoch", parse_type("bigint")))


class ParquetSink:
    """A folder of Parquet files: ``lineage=<n>/epoch=<n>/<file>``, read as a table by any engine.

    Files are staged under ``_staged/`` and moved once their epoch is committed. Any reader that skips names beginning
    with ``_``, as engines do, sees committed epochs only, the newest perhaps in part while it is being published;
    ``read`` sees whole epochs.

    Args:
        path: The folder, a path or any URL of a store, for this sink alone; driver and workers must reach it.

    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the sink's own folder, so that publishing is a rename."""
        return open_store(self.path)

    def publish(self, staged: StagedEpoch) -> None:
        """Move the staged files to their epoch's partition.

        Raises:
            MissingFileError: A file is neither staged nor published.
            SinkError: Another run published a later epoch here, or this one with other rows.

        """
        store = staged.store
        markers = Markers(store, MARKERS)
        if markers.hold(staged):
            # All of it was visible once; whoever reads the folder may have moved the files on since.
            return
        for output in staged.outputs:
            name = published_name(output.file.path)
            target = f"lineage={staged.lineage}/epoch={staged.epoch}/{name}"
            try:
                store.move(output.file.path, target)
            except MissingFileError:
                # A driver that was killed had come this far: the file's name holds the attempt, so it is this very one.
                if store.size(target) != output.file.size:
                    raise
        markers.put(staged)

    def read(self, spark: SparkSession, lineage: int | None = None) -> DataFrame:
        """Return the published rows, whole epochs only.

        A roll-back to an older savepoint opens a new lineage and withdraws nothing: the epochs that it undid are still
        here, under the lineage before.

        Args:
            spark: A session whose workers reach the folder.
            lineage: Only this one; None for all.

        Returns:
            The columns of the newest epoch's rows, with null where an older epoch has no such column, then ``lineage``
            and ``epoch``.

        Raises:
            MissingFileError: Nothing is published there, or nothing of that lineage.
            ConfigurationError: The rows have a column ``lineage`` or ``epoch`` themselves.

        """
        store = open_store(self.path)
        markers = Markers(store, MARKERS)
        if markers.newest is None:
            raise MissingFileError(
                f"found no published epoch in {store.url}; expected the folder of a ParquetSink; check the path, or "
                "wait for the first epoch with rows"
            )
        fields = [replace(field, nullable=True) for field in parse_row(markers.read(*markers.newest).schema)]
        _refuse_taken(fields, store.url)
        # Listed after the marker was read: epochs up to it are whole.
        files = [file for file in _published(store, markers.newest) if lineage in (None, file[0])]
        if not files:
            asked = "any lineage" if lineage is None else f"lineage {lineage}"
            raise MissingFileError(
                f"found no rows of {asked} in {store.url}; expected some up to lineage {markers.newest[0]}, the "
                "newest; check the lineage, and who moved files away"
            )
        schema = arrow_schema(fields)

        def read_file(file: tuple[int, int, str]) -> pa.Table:
            return _with_position(_read(store, file[2], schema), *file[:2])

        return rows_of(spark, files, read_file, [*fields, *_POSITION])


def _refuse_taken(fields: Sequence[Field], url: str) -> None:
    taken = sorted({field.name for field in fields} & {field.name for field in _POSITION})
    if taken:
        raise ConfigurationError(
            f"found the columns {taken} in the rows of {url}; expected others, because these say where a row was "
            "published; rename them in the output of the job"
        )


def _published(store: FileStore, newest: tuple[int, int]) -> Iterator[tuple[int, int, str]]:
    for lineage in range(1, newest[0] + 1):
        for entry in store.list(f"lineage={lineage}"):
            found = _PUBLISHED.fullmatch(entry.path)
            if found and (lineage, int(found[2])) <= newest:
                yield lineage, int(found[2]), entry.path


def _read(store: FileStore, path: str, schema: pa.Schema) -> pa.Table:
    try:
        with store.open_input(path) as source:
            table = pq.ParquetFile(source, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(
            f"found {store.url}/{path}, which does not read ({error}); expected a Parquet file as it was published; "
            "restore it from a backup"
        ) from error
    try:
        columns = [_column(table, field) for field in schema]
    except pa.ArrowException as error:
        raise SinkError(
            f"found rows in {store.url}/{path} that do not fit the newest ones ({error}); expected columns that can be "
            f"cast to {', '.join(f'{field.name} {field.type}' for field in schema)}; read the files of before "
            "and after the change by themselves"
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
