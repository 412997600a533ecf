"""The peers: Spark's own stateful operators, configured as an experienced user would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from benchmarks.cluster import until
from benchmarks.inputs import EVENTS, JOIN_WITHIN_S, MAX_LATENESS_S, RECORDS, SESSION_GAP_S
from statecore.snapshot.settings import DriverSettings

_STORE = "spark.sql.streaming.stateStore"
STATE_STORE: Mapping[str, str] = MappingProxyType(
    {
        f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    }
)
"""Configuration of Spark's stateful operators."""

TRIGGER = f"{DriverSettings().trigger_ms} milliseconds"
"""As our jobs have it."""

OUTPUT = "k string, total bigint"
Operator = Callable[[DataFrame], DataFrame]


def peer_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application with the peers' state store."""
    session = spark.newSession()
    for key, value in STATE_STORE.items():
        session.conf.set(key, value)
    return session


@contextmanager
def running(
    spark: SparkSession,
    operator: Operator,
    source: Path,
    folder: Path,
    *,
    schema: str = RECORDS,
    output_mode: str = "update",
    published: Callable[[], None] | None = None,
) -> Iterator[StreamingQuery]:
    """Run a query; stop it after the block.

    Args:
        spark: Session of ``peer_session``.
        operator: The stateful operator.
        source: Folder of the input.
        folder: Folder for checkpoint and output.
        schema: Columns of the input.
        output_mode: Which rows the operator emits.
        published: Called after each epoch's output is written.

    """

    def write(df: DataFrame, epoch: int) -> None:
        df.write.mode("overwrite").parquet(f"{folder}/output/epoch={epoch}")
        if published is not None:
            published()

    records = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = operator(records).writeStream.outputMode(output_mode).foreachBatch(write)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime=TRIGGER).start()
    try:
        yield query
    finally:
        stop_between_batches(query)


def stop_between_batches(query: StreamingQuery) -> None:
    """Stop a query when no batch is in flight: of one that is interrupted, Spark prints thousands of lines."""
    until(lambda: not query.status["isTriggerActive"], "the end of the batch in flight")
    query.stop()


def grouped_sum(records: DataFrame) -> DataFrame:
    """Sum per key with Spark's aggregation."""
    return records.groupBy("k").agg(F.sum("n").alias("total"))


def session_sum(events: DataFrame) -> DataFrame:
    """Sum per key and session with Spark's ``session_window``, which can only emit sessions that have ended."""
    session = F.session_window("ts", f"{SESSION_GAP_S} seconds")
    sums = events.withWatermark("ts", f"{MAX_LATENESS_S} seconds").groupBy("k", session).agg(F.sum("n").alias("total"))
    return sums.select("k", "total")


def interval_join(right: Path) -> Operator:
    """Return the join of events with those of a second folder: of the same key, at most ``JOIN_WITHIN_S`` apart."""

    def joined(left: DataFrame) -> DataFrame:
        others = left.sparkSession.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(str(right))
        one, other = (side.withWatermark("ts", f"{MAX_LATENESS_S} seconds") for side in (left, others))
        within = F.expr(f"interval {JOIN_WITHIN_S} seconds")
        is_near = F.col("right.ts").between(F.col("left.ts") - within, F.col("left.ts") + within)
        pairs = one.alias("left").join(other.alias("right"), (F.col("left.k") == F.col("right.k")) & is_near)
        return pairs.select("left.k", F.col("left.n").alias("n"), F.col("right.n").alias("other"))

    return joined


def tws_row(records: DataFrame) -> DataFrame:
    """Sum per key with ``transformWithState``."""
    return records.groupBy("k").transformWithState(RunningSum(), OUTPUT, "Update", "none")


def tws_pandas(records: DataFrame) -> DataFrame:
    """Sum per key with ``transformWithStateInPandas``."""
    return records.groupBy("k").transformWithStateInPandas(RunningSumInPandas(), OUTPUT, "Update", "none")


class RunningSum(StatefulProcessor):
    """Equivalent of ``benchmarks/jobs/running_sum.py``; reads and writes state once per key and epoch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        found = self._total.get()
        total = found[0] if found else 0
        for row in rows:
            total += row.n
            yield Row(k=key[0], total=total)
        self._total.update((total,))

    def close(self) -> None:
        pass


class RunningSumInPandas(RunningSum):
    """The same with pandas."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        found = self._total.get()
        total = found[0] if found else 0
        for frame in rows:
            totals = total + frame["n"].cumsum()
            total = int(totals.iloc[-1])
            yield pd.DataFrame({"k": key[0], "total": totals})
        self._total.update((total,))
