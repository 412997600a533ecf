"""Rewrites all state of a query into another checkpoint, with Spark's own ``StateRewriter``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from statecore.errors import NotProvenError, StatecoreError
from statecore.queries.providers.rocksdb.damage import spark_failures
from statecore.queries.providers.rocksdb.reading import is_keyless, require_partitions, with_partition
from statecore.queries.providers.rocksdb.recorded import snapshot_path
from statecore.queries.providers.rocksdb.sessions import writing_session
from statecore.queries.providers.rocksdb.shadow import readable
from statecore.queries.reading.checkpoint import SparkCheckpoint, open_checkpoint
from statecore.queries.reading.files import spark_url
from statecore.queries.reading.logs import UniqueIds
from statecore.queries.rows.placement import TARGET
from statecore.storage import open_store
from statecore.storage.urls import normal_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statecore.queries.reading.stores import StateStore

Place = Callable[[DataFrame], DataFrame]
"""Takes the rows of a state store, as ``read_store`` gives them, and adds the int column ``target``."""

_ORDER = "order_in_source"
# RocksDB loads faster in the order of its keys. Rows of one key lie in one partition of the source, so that their
# order there is that of their list.
_SORTED = ("column_family_name", "key_bytes", _ORDER)
_REWRITER = "org.apache.spark.sql.execution.streaming.state.StateRewriter"


def rewrite(
    spark: SparkSession, source: str, target: str, batch: int, partitions: int, place: Place
) -> UniqueIds | None:
    """Write the state after a batch into another checkpoint, with another number of partitions.

    The target holds ``offsets`` of the batch with the new number of partitions, the operators' metadata and their
    schema files; its metadata of version 2 names schema files below the target. Each partition becomes a snapshot,
    with changelog checkpointing too; the query resumes from it. The order of values within a list stays. Check the
    source first: ``read_store`` raises for files that are not whole.

    Args:
        spark: The session; its settings stay as they are.
        source: The checkpoint to read: a local path or ``s3://bucket/prefix``.
        target: The checkpoint to write.
        batch: Number of the newest batch that is committed in the source.
        partitions: Number of state partitions in the target.
        place: Adds ``target`` (0 … ``partitions - 1``) to the rows of a store. It is called for each store, on the
            driver and in another thread, and may attach an observation.

    Returns:
        For each operator and partition the ids of its stores' files, which the commit log of format 2 names; None for
        format 1.

    Raises:
        CheckpointDamagedError: Spark cannot read the source.
        NotProvenError: Spark did not write a partition of the target.
        StorageError: The storage fails.

    """
    checkpoint = open_checkpoint(source)
    session = writing_session(spark, checkpoint.checkpoint_format)
    layout = _Layout(session, checkpoint, partitions, place)
    jvm: Any = spark.sparkContext._jvm
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    some, java_session = jvm.scala.Option.apply, session._jsparkSession
    hadoop = java_session.sessionState().newHadoopConf()
    with readable(checkpoint) as read:
        rewriter = getattr(jvm, _REWRITER)(
            java_session, batch, batch, spark_url(target), hadoop, some(spark_url(read)), some(layout), some(None)
        )
        try:
            with spark_failures(source):
                ids = _ids(rewriter.run())
        except StatecoreError:
            if layout.error is not None:
                raise layout.error from None
            raise
    _require_written(target, batch, layout.written, ids)
    return ids


class _Layout:
    """Spark's ``DataFrame => DataFrame``, called once for each state store.

    Attributes:
        written: The stores so far, each with its number of partitions in the target.
        error: The error raised in Python: the JVM would turn it into text.

    """

    def __init__(self, session: SparkSession, source: SparkCheckpoint, partitions: int, place: Place) -> None:
        self._session = session
        self._source = source.store
        self._partitions = partitions
        self._stores = {(store.operator, store.name): store for each in source.operators for store in each.stores}
        self._place = place
        self.written: dict[StateStore, int] = {}
        self.error: BaseException | None = None

    def apply(self, rows: Any) -> Any:
        try:
            options = rows.queryExecution().analyzed().collectLeaves().head().options()
            store = self._stores[int(options.get("operatorId")), options.get("storeName")]
            return self._laid_out(store, DataFrame(rows, self._session))._jdf
        except BaseException as error:
            self.error = error
            raise

    def _laid_out(self, store: StateStore, rows: DataFrame) -> DataFrame:
        require_partitions(self._source, store, rows)
        # Spark would look for files of later versions in a second partition of an operator without keys.
        partitions = 1 if is_keyless(rows) else self._partitions
        self.written[store] = partitions
        ordered = with_partition(rows).withColumn(_ORDER, f.monotonically_increasing_id())
        placed = self._place(ordered)
        return placed.repartitionById(partitions, TARGET).sortWithinPartitions(*_SORTED).select(*rows.columns)

    class Java:
        implements: ClassVar = ["scala.Function1"]


def _ids(by_operator: Any) -> UniqueIds | None:
    if by_operator.isEmpty():
        return None
    ids, entries = {}, by_operator.get().iterator()
    while entries.hasNext():
        entry = entries.next()
        ids[int(entry._1())] = tuple(tuple(map(str, stores)) for stores in entry._2())
    return dict(sorted(ids.items()))


def _require_written(target: str, batch: int, written: Mapping[StateStore, int], ids: UniqueIds | None) -> None:
    """Check that Spark wrote every partition: it starts a task for each, and no task means no file."""
    files, seen = open_store(normal_url(target)), Counter[int]()
    for store, partitions in written.items():
        for partition in range(partitions):
            unique_id = None if ids is None else ids[store.operator][partition][seen[store.operator]]
            path = snapshot_path(store, partition, batch + 1, unique_id)
            if files.size(path) is None:
                raise NotProvenError(
                    f"found no file {path} in {target} after Spark wrote it; expected one for each state partition; "
                    "repeat the rescale"
                )
        seen[store.operator] += 1
