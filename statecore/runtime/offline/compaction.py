"""Compacts state files on Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merge, Merged, carry_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MERGE = msgspec.json.Decoder(Merge)
_MERGED = msgspec.json.Decoder(Merged)


def carry_out_all(spark: SparkSession, store: CheckpointStore, merges: Sequence[Merge], folder: str) -> list[Merged]:
    """Carry out merges into ``state/<uid>/<folder>/``, one task each; return their results in no particular order.

    Raises:
        MissingFileError, CorruptFileError: An input file is missing or differs from the manifest.

    """
    if not merges:
        return []
    store_url = store.files.url

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            merged = [_carried_out(encoded, store_url, folder) for encoded in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"merged": merged})

    rows = [(msgspec.json.encode(merge).decode(),) for merge in merges]
    todo = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), "merge string")
    return [_MERGED.decode(row["merged"]) for row in todo.mapInArrow(run, "merged string").collect()]


def _carried_out(encoded: str, store_url: str, folder: str) -> str:
    merge = _MERGE.decode(encoded)
    done = carry_out(CheckpointStore.at(store_url), merge, f"state/{merge.uid}/{folder}")
    return msgspec.json.encode(done).decode()
