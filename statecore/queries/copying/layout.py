"""Lays out a checkpoint for another number of state partitions: everything but the rows of state.

Query id, batch numbers, the sources' files and a batch that is logged but not committed stay unchanged. The newest
committed batch and the logged one get the new number of partitions; Spark does not use the logs before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statecore.queries.copying.transfer import bring
from statecore.queries.reading.checkpoint import COMMITS, OFFSETS, STATE, SparkCheckpoint
from statecore.queries.reading.files import checksum_paths, files_below
from statecore.queries.reading.operators import operator_metadata
from statecore.queries.reading.origin import ORIGIN

if TYPE_CHECKING:
    from statecore.queries.copying.staging import Staging
    from statecore.queries.reading.logs import UniqueIds


def lay_out(source: SparkCheckpoint, staging: Staging, partitions: int) -> None:
    """Write the logs, sources, schemas and metadata of a checkpoint into the new one.

    Args:
        source: The checkpoint, which is only read.
        staging: Where the new one is made.
        partitions: Its number of state partitions.

    Raises:
        CheckpointDamagedError: A file of the source is not whole.
        StorageError: The storage fails.

    """
    written = {f"{OFFSETS}/{batch}": log.with_partitions(partitions).encode() for batch, log in source.offsets.items()}
    for operator in source.operators:
        written |= operator_metadata(source.store, operator, partitions, staging.url)
    schemas = {schema for operator in source.operators for schema in operator.schemas}
    # Beside another file, a checksum would be wrong.
    replaced = {path for each in written for path in (each, *checksum_paths(each))} | {ORIGIN}
    kept = [
        entry
        for entry in files_below(source.url)
        if entry.path not in replaced and (not entry.path.startswith(f"{STATE}/") or entry.path in schemas)
    ]
    bring(source.url, staging.url, kept)
    for path, data in written.items():
        staging.store.write(path, data)


def commit(source: SparkCheckpoint, staging: Staging, ids: UniqueIds | None) -> None:
    """Write the newest commit with the ids of the new state files (state checkpoint format 2)."""
    if source.commit.unique_ids is None:
        return
    path = f"{COMMITS}/{source.batch}"
    staging.store.delete_all(checksum_paths(path))
    staging.store.write(path, source.commit.with_unique_ids(ids).encode())
