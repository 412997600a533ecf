"""Reads files of any store as a DataFrame; Spark's readers would need a Hadoop file system for each store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from statecore.model import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
_BATCH_ROWS = 64 * 1024


def rows_of(
    spark: SparkSession,
    files: Sequence[T],
    read: Callable[[T], pa.Table],
    fields: Sequence[Field],
    tasks: int | None = None,
) -> DataFrame:
    """Return a lazy DataFrame of the rows of files; workers read them one by one with the pickled ``read``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from read(files[index]).to_batches(max_chunksize=_BATCH_ROWS)

    return spark.range(0, len(files), 1, tasks).mapInArrow(run, ", ".join(field.ddl() for field in fields))
