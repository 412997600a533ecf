"""A checkpoint of a query of Spark's own, as its logs and metadata describe it.

::

    metadata                id of the query
    offsets/0 … N [N+1]     what each batch reads; N+1 is logged, and not committed
    commits/0 … N           batch N is the newest committed one
    sources/                state of the sources, such as the files they have read
    state/<operator>/<partition>[/<store>]/      state; batch N leaves version N+1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError, MissingFileError
from statecore.queries.reading.files import INCOMPLETE, checksum_paths, read_checked
from statecore.queries.reading.logs import (
    SHUFFLE_PARTITIONS,
    CommitLog,
    OffsetLog,
    json_object,
    lacks_sources,
    parse_commit,
    parse_offsets,
)
from statecore.queries.reading.operators import StatefulOperator, read_operators
from statecore.storage import FileStore, open_store
from statecore.storage.urls import normal_url

PROVIDER_CLASS = "spark.sql.streaming.stateStore.providerClass"
HDFS, ROCKSDB = "hdfs", "rocksdb"
PROVIDERS: Mapping[str, str] = {
    "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider": HDFS,
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider": ROCKSDB,
}

COMMITS, OFFSETS, SOURCES, STATE, METADATA = "commits", "offsets", "sources", "state", "metadata"

ATTEMPTS = 3
"""How often a checkpoint is read whose query writes to it meanwhile, and removes files that it needs no more."""


class _Metadata(msgspec.Struct):
    id: str


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """A checkpoint at its newest committed batch.

    Attributes:
        url: Where it lies: an absolute path, or ``s3://bucket/prefix``.
        store: Its files.
        query_id: Id of the query, the same for its whole life.
        batch: The newest committed batch, N.
        pending: N+1, when it is logged and not committed; else None.
        offsets: What batch N reads, and the pending one.
        commit: The commit of batch N.
        operators: The stateful operators; none for a query without state.

    """

    url: str
    store: FileStore
    query_id: str
    batch: int
    pending: int | None
    offsets: Mapping[int, OffsetLog]
    commit: CommitLog
    operators: tuple[StatefulOperator, ...]

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings that the query keeps for life, as batch N logged them."""
        return self.offsets[self.batch].conf

    @property
    def version(self) -> int:
        """Version of the state after batch N."""
        return self.batch + 1

    @property
    def provider(self) -> str:
        """``hdfs`` or ``rocksdb``; the name of its class for another one."""
        name = self.conf.get(PROVIDER_CLASS)
        return "hdfs" if name is None else PROVIDERS.get(name, name)

    @property
    def partitions(self) -> int:
        """Number of state partitions; without operator metadata, that of the settings, or 0."""
        known = max((operator.partitions for operator in self.operators), default=0)
        return known or int(self.conf.get(SHUFFLE_PARTITIONS, 0))

    @property
    def checkpoint_format(self) -> int:
        """State checkpoint format: 2 where the commit names the files of the state, else 1."""
        return 1 if self.commit.unique_ids is None else 2


def open_checkpoint(url: str) -> SparkCheckpoint:
    """Read the logs and metadata of a checkpoint; again, from its newest batch, if the query goes on meanwhile.

    Args:
        url: A local path, ``s3://bucket/prefix`` or ``s3a://bucket/prefix``: a query's ``checkpointLocation``.

    Raises:
        CheckpointRefusedError: There is no checkpoint, no batch is committed, or a file's version is unknown.
        CheckpointDamagedError: Files are missing or not whole.
        StorageError: The storage fails.

    """
    store = open_store(normal_url(url))
    if store.size(INCOMPLETE) is not None:
        raise CheckpointRefusedError(
            f"found a copy in {store.url} that is not whole; expected a checkpoint; wait for the attempt that writes "
            "it, or repeat an interrupted one"
        )
    for left in reversed(range(ATTEMPTS)):
        listed = _listed(store)
        try:
            return _opened(store, *listed)
        except CheckpointDamagedError:
            # A running query commits batches between two reads, and removes the logs of old ones.
            if not left or _listed(store) == listed:
                raise
    raise AssertionError("the last attempt returns or raises")


def newest_batches(store: FileStore) -> tuple[int | None, int | None]:
    """Return the newest committed and the newest logged batch, None where there is none.

    Raises:
        CheckpointDamagedError: The logs contradict each other.

    """
    committed, logged = _listed(store)
    _require_consistent(store, committed, logged)
    return committed, logged


def has_changed(checkpoint: SparkCheckpoint) -> bool:
    """Return whether its query has logged or committed a batch since a checkpoint was opened.

    Raises:
        StorageError: The storage fails.

    """
    return _listed(checkpoint.store) != _newest_of(checkpoint)


def require_unchanged(checkpoint: SparkCheckpoint) -> None:
    """Refuse a checkpoint that its query has written to since it was opened.

    An idle query cannot be detected.

    Raises:
        CheckpointRefusedError: The newest batch has changed.
        StorageError: The storage fails.

    """
    expected, (committed, logged) = _newest_of(checkpoint), _listed(checkpoint.store)
    if (committed, logged) != expected:
        raise CheckpointRefusedError(
            f"found batch {committed} committed and batch {logged} logged in {checkpoint.url}, and {expected[0]} and "
            f"{expected[1]} a moment ago; expected a query that is stopped; stop the query, then try again"
        )


def read_offsets(store: FileStore, batch: int) -> OffsetLog:
    """Read the offset log of a batch; errors as of ``open_checkpoint``."""
    path = f"{OFFSETS}/{batch}"
    return parse_offsets(read_checked(store, path), f"{path} in the checkpoint {store.url}")


def read_commit(store: FileStore, batch: int) -> CommitLog:
    """Read the commit of a batch; errors as of ``open_checkpoint``."""
    path = f"{COMMITS}/{batch}"
    return parse_commit(read_checked(store, path), f"{path} in the checkpoint {store.url}")


def _opened(store: FileStore, batch: int | None, newest: int | None) -> SparkCheckpoint:
    _require_consistent(store, batch, newest)
    if batch is None:
        # Distinguish a query that has just begun from an unrelated folder.
        began = newest is not None or store.size(METADATA) is not None
        raise CheckpointRefusedError(
            f"found {'no committed batch' if began else 'no checkpoint'} in {store.url}; expected the "
            "checkpointLocation of a query of Spark, with at least one committed batch; "
            + ("let the query complete a batch first" if began else "give the folder that contains offsets and commits")
        )
    pending = newest if newest is not None and newest > batch else None
    offsets = {batch: read_offsets(store, batch)}
    return SparkCheckpoint(
        url=store.url,
        store=store,
        query_id=query_id(store),
        batch=batch,
        pending=pending,
        offsets=offsets if pending is None else {**offsets, pending: _read_pending(store, pending, offsets[batch])},
        commit=read_commit(store, batch),
        operators=read_operators(store, batch),
    )


def _read_pending(store: FileStore, batch: int, committed: OffsetLog) -> OffsetLog:
    """Read the offset log of a batch that is not committed; without a cut one, Spark plans the batch anew."""
    path, problem = f"{OFFSETS}/{batch}", None
    try:
        pending = read_offsets(store, batch)
        if not lacks_sources(pending, committed):
            return pending
    except CheckpointDamagedError as error:
        problem = error
        # A whole file beside a wrong checksum is another matter.
        if _is_whole(store, path, committed):
            raise
    raise CheckpointDamagedError(
        f"found {path} in the checkpoint {store.url} not whole, the log of a batch that is not committed; expected "
        f"what batch {batch} reads, without which Spark does not start the query; if no sink has rows of batch "
        f"{batch}, remove {path} and {checksum_paths(path)[0]}: the query then plans the batch anew, maybe with other "
        "rows; otherwise restore the checkpoint from a clone or a backup"
    ) from problem


def _is_whole(store: FileStore, path: str, committed: OffsetLog) -> bool:
    try:
        return not lacks_sources(parse_offsets(store.read(path), path), committed)
    except CheckpointDamagedError:
        return False
    except MissingFileError:
        # Not cut, but gone: the query may have committed more batches.
        return True


def _require_consistent(store: FileStore, committed: int | None, logged: int | None) -> None:
    if committed is not None and (logged is None or not committed <= logged <= committed + 1):
        raise CheckpointDamagedError(
            f"found commits up to batch {committed} and offsets up to batch {logged} in {store.url}; expected offsets "
            "up to the newest committed batch or one more; stop the query if it runs; with asynchronous progress "
            "tracking, run one batch without; otherwise restore the checkpoint from a clone or a backup"
        )


def _listed(store: FileStore) -> tuple[int | None, int | None]:
    """Return the newest batch in the log of commits, and in that of offsets."""
    return max(_batches(store, COMMITS), default=None), max(_batches(store, OFFSETS), default=None)


def _newest_of(checkpoint: SparkCheckpoint) -> tuple[int, int]:
    return checkpoint.batch, checkpoint.batch if checkpoint.pending is None else checkpoint.pending


def _batches(store: FileStore, log: str) -> list[int]:
    names = (entry.path.removeprefix(f"{log}/") for entry in store.list(log))
    return [int(name) for name in names if name.isdecimal()]


def query_id(store: FileStore) -> str:
    """Return the id of the query that a checkpoint belongs to.

    Raises:
        CheckpointDamagedError: The file with it is missing or not whole.
        StorageError: The storage fails.

    """
    where = f"{METADATA} in the checkpoint {store.url}"
    try:
        text = read_checked(store, METADATA).decode()
    except UnicodeDecodeError:
        raise CheckpointDamagedError(
            f"found {where} that is not text; expected the id of the query as JSON; restore the checkpoint from a "
            "clone or a backup"
        ) from None
    return str(json_object(text, where, _Metadata)["id"])
