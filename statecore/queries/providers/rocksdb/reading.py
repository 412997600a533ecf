"""The rows of a state store, by Spark's reader of all column families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.rocksdb.damage import spark_failures
from statecore.queries.providers.rocksdb.sessions import reading_session
from statecore.queries.providers.rocksdb.wholeness import require_whole
from statecore.queries.reading.files import spark_url
from statecore.storage import FileStore, open_store
from statecore.storage.urls import normal_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from statecore.queries.reading.stores import StateStore

_ALL_FAMILIES = "_readAllColumnFamilies"


def read_store(spark: SparkSession, root: str, store: StateStore, batch: int, checkpoint_format: int) -> DataFrame:
    """Return the rows of a state store after a batch.

    A key of a list has one row for each element, in the order of the list; no other row comes between them.
    Spark reads when an action runs; wrap the action in ``spark_failures``. Nothing is written below ``root``.

    Args:
        spark: The session; its settings stay as they are.
        root: The checkpoint: a local path or ``s3://bucket/prefix``.
        store: The state store.
        batch: Number of a committed batch.
        checkpoint_format: State checkpoint format, 1 or 2.

    Returns:
        ``partition`` int, the state partition that holds the row; ``partition_key`` struct, the columns by which Spark
        distributes it; ``key_bytes`` and ``value_bytes`` binary, as in the store; ``column_family_name`` string.

    Raises:
        CheckpointDamagedError: A file is missing or not whole.
        StorageError: The storage fails.

    """
    session = reading_session(spark, checkpoint_format)
    with spark_failures(root):
        rows = (
            session.read.format("statestore")
            .option("path", spark_url(root))
            .option("batchId", batch)
            .option("operatorId", store.operator)
            .option("storeName", store.name)
            .option(_ALL_FAMILIES, "true")
            .load()
        )
    files = open_store(normal_url(root))
    partitions = require_partitions(files, store, rows)
    require_whole(spark, files, store, batch, checkpoint_format, partitions)
    return with_partition(rows)


def require_partitions(files: FileStore, store: StateStore, rows: DataFrame) -> int:
    """Check that the folder of every state partition is there: Spark reads those that are, and does not count them.

    Returns:
        Number of state partitions: 1 for an operator without keys, which Spark runs in one task.

    Raises:
        CheckpointDamagedError: Some are missing.
        StorageError: The storage fails.

    """
    partitions = 1 if is_keyless(rows) else store.partitions
    folder = f"state/{store.operator}"
    names = {path.rpartition("/")[2] for path in files.folders(folder)}
    if missing := [each for each in range(partitions) if str(each) not in names]:
        raise CheckpointDamagedError(
            f"found no folder {folder}/{missing[0]} in the checkpoint {files.url} ({len(missing)} of {partitions} "
            "state partitions are missing); expected a folder for each state partition; restore the checkpoint from a "
            "clone or a backup"
        )
    return partitions


def is_keyless(rows: DataFrame) -> bool:
    """Return whether rows of a state store have no columns by which Spark distributes them."""
    keys = rows.schema["partition_key"].dataType
    return isinstance(keys, StructType) and not keys.fields


def with_partition(rows: DataFrame) -> DataFrame:
    """Return rows as Spark reads them with the state partition of each.

    Spark's scan has one task for each folder below the operator, in the order of their numbers (``StateScan`` of
    4.3.0). They are 0, 1, 2, … once ``require_partitions`` has passed.
    """
    return rows.select(f.spark_partition_id().alias("partition"), "*")
