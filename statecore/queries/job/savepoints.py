"""Savepoints of a job that is a query of Spark's own: clones of its checkpoint, in the job's store.

::

    <store>/savepoints/<name>/      a checkpoint, with the file that says where it came from
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from statecore.catalog import Catalog, Epochs, JobRecord, SavepointRecords
from statecore.errors import CheckpointRefusedError, StatecoreError
from statecore.queries.copying.clone import clone
from statecore.queries.job.current_checkpoint import current_checkpoint
from statecore.queries.reading.checkpoint import SparkCheckpoint, open_checkpoint
from statecore.queries.reading.files import INCOMPLETE, canonical_url
from statecore.queries.reading.origin import is_copy, read_origin
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore
from statecore.storage import open_store

SAVEPOINTS = "savepoints"


@dataclass(frozen=True, slots=True)
class QuerySavepoint:
    """A savepoint of a query.

    Attributes:
        savepoint: Its path in the job's store.
        url: Where it lies.
        lineage: Lineage of its batch, see ``lineage_of``.
        epoch: Its newest committed batch.

    """

    savepoint: str
    url: str
    lineage: int
    epoch: int

    def result(self) -> Mapping[str, Any]:
        """Return the answer to a request for this savepoint."""
        return asdict(self)


def take_savepoint(
    catalog: Catalog, job: JobRecord, name: str, reason: str, *, running: bool, asked_ms: int | None = None
) -> QuerySavepoint:
    """Clone a query's checkpoint as it is now into the job's store, and record the clone as a savepoint.

    Repeatable: an existing savepoint of this name is reused if it is of the same batch, or if the query runs.

    Args:
        catalog: Records the savepoint.
        job: The job, a query of Spark's own.
        name: Name of the savepoint.
        reason: Why, kept with it.
        running: Whether the job's own driver writes the checkpoint meanwhile.
        asked_ms: When it was requested, by the catalog's clock; None if that is not known.

    Raises:
        CheckpointError: The checkpoint cannot be cloned, no batch is committed, or the name is that of a savepoint of
            another batch or query.
        ConfigurationError: The name cannot be a folder's.
        StorageError: The storage fails.

    """
    checkpoint = open_checkpoint(current_checkpoint(job))
    path = CheckpointStore.savepoint_path(name).removesuffix(f"/{MANIFEST}")
    url = f"{open_store(job.store).url.rstrip('/')}/{path}"
    batch, bytes_ = _existing(url, checkpoint, name, running=running), None
    if batch is None:
        made = clone(checkpoint, url, running=running)
        batch, bytes_ = made.batch, made.bytes
    lineage = lineage_of(catalog.epochs, job.name, batch)
    catalog.savepoints.record(
        url, job=job.name, lineage=lineage, epoch=batch, parallelism=checkpoint.partitions, reason=reason,
        bytes=bytes_, asked_ms=asked_ms,
    )  # fmt: skip
    return QuerySavepoint(path, url, lineage, batch)


def record_kept(savepoints: SavepointRecords, job: JobRecord) -> tuple[int, list[StatecoreError]]:
    """Record the savepoints in a query's store in a catalog that has lost them.

    Returns:
        How many were recorded, and why others could not be read.

    Raises:
        StorageError: The store cannot be listed.

    """
    files, recorded, problems = open_store(job.store), 0, list[StatecoreError]()
    for path in files.folders(SAVEPOINTS):
        url = f"{files.url.rstrip('/')}/{path}"
        try:
            kept = open_store(url)
            # What a drop has begun to remove is no savepoint any more.
            origin = None if kept.size(INCOMPLETE) is not None else read_origin(kept)
        except StatecoreError as error:
            problems.append(error)
            continue
        # A folder that begins with a dot is what an interrupted attempt has left.
        if origin is not None:
            savepoints.record(
                url, job=job.name, lineage=1, epoch=origin.batch, parallelism=origin.partitions_after,
                reason="", created_ms=origin.time_ms,
            )  # fmt: skip
            recorded += 1
    return recorded, problems


def is_savepoint(url: str) -> bool:
    """Return whether a URL is that of a savepoint: of a copy of a checkpoint in a folder of savepoints.

    Raises:
        CheckpointError: The file that says that it is a copy cannot be read.
        StorageError: The storage fails.

    """
    parts = canonical_url(url).split("/")
    return parts[-2:-1] == [SAVEPOINTS] and is_copy(url)


def lineage_of(epochs: Epochs, job: str, batch: int) -> int:
    """Return the lineage of the batches that follow a query's newest committed one.

    A query's batch numbers grow for its whole life. A job that resumes from an older checkpoint repeats numbers, in the
    next lineage.
    """
    newest = next(iter(epochs.of(job, limit=1)), None)
    if newest is None:
        return 1
    return newest.lineage if newest.epoch <= batch else newest.lineage + 1


def _existing(url: str, checkpoint: SparkCheckpoint, name: str, *, running: bool) -> int | None:
    """Return the batch of an existing savepoint of this name; None without one."""
    origin = read_origin(open_store(url))
    if origin is None:
        return None
    if origin.query_id == checkpoint.query_id and (running or origin.batch == checkpoint.batch):
        return origin.batch
    raise CheckpointRefusedError(
        f"found savepoint {name!r} of batch {origin.batch} of query {origin.query_id}; expected it to be of batch "
        f"{checkpoint.batch} of query {checkpoint.query_id}; choose another name"
    )
