"""How many rows each state partition has, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statecore.queries.checkpoint import SparkCheckpoint
from statecore.queries.operators import StatefulOperator
from statecore.queries.state_files import partitions_with_state
from statecore.queries.stores import StateStore
from statecore.storage import FileEntry


def recorded_rows(
    checkpoint: SparkCheckpoint, operator: StatefulOperator, files: Sequence[FileEntry]
) -> tuple[int | None, ...]:
    """Return the rows of each state partition of an operator, of all its stores; None where they are not known.

    Raises:
        CheckpointDamagedError: A file is missing or not whole.
        StorageError: The storage fails.

    """
    with_state = partitions_with_state(checkpoint, operator)
    return tuple(
        _sum(_rows(checkpoint, store, partition, files) for store in operator.stores) if partition in with_state else 0
        for partition in range(operator.partitions)
    )


def _rows(checkpoint: SparkCheckpoint, store: StateStore, partition: int, files: Sequence[FileEntry]) -> int | None:
    return None


def _sum(rows: Iterable[int | None]) -> int | None:
    total = 0
    for each in rows:
        if each is None:
            return None
        total += each
    return total
