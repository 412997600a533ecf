"""State of the HDFS-backed provider as tables of Spark: each task reads or writes one state partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, StructField, StructType

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.hdfs.files import StateFiles
from statecore.queries.providers.hdfs.records import Records, serialise
from statecore.queries.reading.stores import StateStore
from statecore.queries.rows.byte_columns import ByteColumn
from statecore.queries.rows.unsafe_rows import carried_type, decode
from statecore.storage import FileStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMN_FAMILY = "default"

_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 1 << 25
_WRITTEN = "partition int, rows bigint, bytes bigint"
_PARTITION, _KEY, _VALUE, _TARGET = "partition", "key_bytes", "value_bytes", "target"


@dataclass(frozen=True, slots=True)
class _Keys:
    """How to read the keys of a store.

    Attributes:
        fields: Number of all columns of a key.
        kinds: Types of the leading ones, which decide the partition.

    """

    fields: int
    kinds: tuple[DataType, ...]


def read_store(
    spark: SparkSession,
    root: str,
    store: StateStore,
    version: int,
    key_schema: StructType,
    partition_columns: int,
    conf: Mapping[str, str],
) -> DataFrame:
    """Return the rows of a state store.

    Args:
        spark: The session.
        root: URL of the checkpoint: a path or ``s3://…``, which every executor can read.
        store: The store.
        version: Version of the state: the batch, plus one.
        key_schema: Columns of the keys.
        partition_columns: Number of leading columns that decide the partition; 0 without keys.
        conf: Settings in the offset log of the batch.

    Returns:
        ``partition`` int, ``partition_key`` struct of the leading columns as ``carried_type`` gives them, ``key_bytes``
        and ``value_bytes`` binary, as stored, and ``column_family_name`` string.

    Raises:
        CheckpointRefusedError: A key has a type, or the files a codec, that is not covered.
        CheckpointDamagedError: When the rows are computed, as the cause of Spark's error: a file is missing, not whole
            or differs from a checksum.

    """
    fields = key_schema.fields[:partition_columns]
    keys = _Keys(len(key_schema), tuple(carried_type(each.dataType, each.name) for each in fields))
    files = StateFiles.of(open_store(root), "", conf)
    read = partial(_read, files.store, store, version, keys, dict(conf))
    columns = [StructField(f"key_{index}", kind) for index, kind in enumerate(keys.kinds)]
    schema = StructType(
        [
            StructField(_PARTITION, IntegerType()),
            *columns,
            StructField(_KEY, BinaryType()),
            StructField(_VALUE, BinaryType()),
        ]
    )
    rows = spark.range(0, store.partitions, 1, store.partitions).mapInArrow(read, schema)
    key = F.struct(*(F.col(column.name).alias(field.name) for column, field in zip(columns, fields, strict=True)))
    return rows.select(
        _PARTITION, key.alias("partition_key"), _KEY, _VALUE, F.lit(COLUMN_FAMILY).alias("column_family_name")
    )


def write_store(
    rows: DataFrame, root: str, store: StateStore, version: int, partitions: int, conf: Mapping[str, str]
) -> None:
    """Write a state store anew, as one snapshot for each state partition, durably.

    A store without keys gets its first partition alone, as Spark makes it.

    Args:
        rows: Rows as ``read_store`` returns them, and ``target`` int: the state partition of each.
        root: URL of the checkpoint: a path or ``s3://…``, which every executor can write to. It holds no state file of
            this store.
        store: The store.
        version: Version of the state: the batch, plus one.
        partitions: Number of state partitions to write.
        conf: Settings in the offset log of the batch.

    Raises:
        CheckpointRefusedError: The files have a codec that is not covered.
        StorageError: The storage fails; in a task, it is the cause of Spark's error.

    """
    key = rows.schema["partition_key"].dataType
    is_keyless = isinstance(key, StructType) and len(key) == 0
    placed = rows.select(_TARGET, _KEY, _VALUE)
    if is_keyless:
        partitions = 1
    root_store = open_store(root)
    write = partial(_write, root_store, store, version, dict(conf))
    written = placed.repartitionById(partitions, F.col(_TARGET)).mapInArrow(write, _WRITTEN).collect()
    # Spark runs no task for a DataFrame that it knows to be empty.
    for partition in set(range(partitions)) - {each.partition for each in written}:
        StateFiles.of(root_store, store.folder(partition), conf).save(version, [])


def _read(
    root: FileStore,
    store: StateStore,
    version: int,
    keys: _Keys,
    conf: Mapping[str, str],
    ids: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the state partitions whose numbers are in ``ids``; runs in a task."""
    for batch in ids:
        for partition in batch.column(0).to_pylist():
            files = StateFiles.of(root, store.folder(partition), conf)
            if not keys.kinds and partition and not files.exist():
                # Without keys, Spark uses the first partition alone.
                continue
            records = files.load(version)
            for part in _batches(records):
                yield _batch(partition, records[part], keys)


def _batches(records: Records) -> Iterator[slice]:
    """Yield slices of records as batches of a moderate size."""
    start = 0
    ends = np.cumsum(records.keys.sizes + records.values.sizes)
    while start < len(records):
        before = int(ends[start - 1]) if start else 0
        full = int(np.searchsorted(ends, before + _BATCH_BYTES))
        stop = min(max(full, start + 1), start + _BATCH_ROWS, len(records))
        yield slice(start, stop)
        start = stop


def _batch(partition: int, records: Records, keys: _Keys) -> pa.RecordBatch:
    key_bytes = records.keys.to_arrow()
    columns = decode(ByteColumn.of(key_bytes), keys.fields, keys.kinds)
    names = [_PARTITION, *(f"key_{index}" for index in range(len(columns))), _KEY, _VALUE]
    where = pa.array(np.full(len(records), partition, np.int32))
    return pa.RecordBatch.from_arrays([where, *columns, key_bytes, records.values.to_arrow()], names)


def _write(
    root: FileStore, store: StateStore, version: int, conf: Mapping[str, str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the snapshot of one state partition and yield its figures; runs in a task."""
    # Imported here: only a task has a context.
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    partition, count = context.partitionId(), 0
    contents = []
    for batch in batches:
        targets = batch.column(0)
        if targets.null_count or (np.asarray(targets) != partition).any():
            raise CheckpointDamagedError(
                f"found rows for other state partitions in the task of partition {partition} of {store.name}; expected "
                "its own alone; report this as a fault of statecore"
            )
        contents.append(serialise(ByteColumn.of(batch.column(1)), ByteColumn.of(batch.column(2))).data)
        count += batch.num_rows
    size = StateFiles.of(root, store.folder(partition), conf).save(version, contents)
    yield pa.RecordBatch.from_pydict(
        {"partition": pa.array([partition], pa.int32()), "rows": [count], "bytes": pa.array([size], pa.int64())}
    )
