"""Counts the rows of each state partition without Spark.

For the HDFS-backed provider, they are counted in the files. For RocksDB, Spark recorded them in each snapshot; they are
unknown where the newest version is a changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statecore.errors import CheckpointRefusedError
from statecore.queries.reading.checkpoint import SparkCheckpoint
from statecore.queries.reading.operators import StatefulOperator
from statecore.queries.reading.state_files import partitions_with_state
from statecore.queries.reading.stores import StateStore


def recorded_rows(
    checkpoint: SparkCheckpoint, operator: StatefulOperator, done: Callable[[], None]
) -> tuple[int | None, ...]:
    """Return the rows of each state partition of an operator, of all its stores; None where they are not known.

    Args:
        checkpoint: The checkpoint.
        operator: One of its operators.
        done: Called after each store.

    Raises:
        CheckpointDamagedError: A file is missing or not whole.
        StorageError: The storage fails.

    """
    if not operator.is_covered and _partitions_there(checkpoint, operator) < operator.partitions:
        for _ in operator.stores:
            done()
        return (None,) * operator.partitions
    with_state = partitions_with_state(checkpoint, operator)
    total: list[int | None] = [0] * operator.partitions
    for index, store in enumerate(operator.stores):
        for partition, rows in zip(with_state, _of_store(checkpoint, store, index, with_state), strict=True):
            before = total[partition]
            total[partition] = None if before is None or rows is None else before + rows
        done()
    return tuple(total)


def _partitions_there(checkpoint: SparkCheckpoint, operator: StatefulOperator) -> int:
    """Return in how many state partitions an operator has files: a limit has all its state in one."""
    folders = checkpoint.store.folders(f"state/{operator.number}")
    return sum(path.rpartition("/")[2].isdecimal() for path in folders)


def _of_store(checkpoint: SparkCheckpoint, store: StateStore, index: int, partitions: range) -> Sequence[int | None]:
    try:
        if checkpoint.provider == "hdfs":
            return _counted(checkpoint, store, partitions)
        if checkpoint.provider == "rocksdb":
            return _recorded(checkpoint, store, index, partitions)
    except CheckpointRefusedError:
        # An unknown codec, for example; what else there is to show does not depend on it.
        pass
    return [None] * len(partitions)


def _counted(checkpoint: SparkCheckpoint, store: StateStore, partitions: range) -> Sequence[int | None]:
    # Imported on demand: only this needs NumPy.
    from statecore.queries.providers.hdfs.files import StateFiles

    def count(partition: int) -> int:
        files = StateFiles.of(checkpoint.store, store.folder(partition), checkpoint.conf)
        return len(files.load(checkpoint.version))

    # One at a time: memory is bounded by a partition.
    return [count(partition) for partition in partitions]


def _recorded(checkpoint: SparkCheckpoint, store: StateStore, index: int, partitions: range) -> Sequence[int | None]:
    from statecore.queries.providers.rocksdb.recorded import recorded_keys

    ids = checkpoint.commit.unique_ids
    if ids is None:
        return recorded_keys(checkpoint.store, store, checkpoint.version)[: len(partitions)]
    by_partition = ids.get(store.operator, ())
    if any(len(each) <= index for each in by_partition) or len(by_partition) < len(partitions):
        # The commit names no file of this store: what Spark recorded cannot be found.
        return [None] * len(partitions)
    of_store = [each[index] for each in by_partition]
    return recorded_keys(checkpoint.store, store, checkpoint.version, of_store)[: len(partitions)]
