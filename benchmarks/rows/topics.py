"""From a Kafka topic to a Kafka topic, compared with Spark's aggregation; and publishing alone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks import peers
from benchmarks.epochs import seconds_of
from benchmarks.harness import Bench, Figure, median_ratio
from benchmarks.inputs import key_names
from benchmarks.ours import OurJob, phases
from benchmarks.rows.throughput import EPOCHS, KEYS, ROWS, WARM_UP, rate
from stack.kafka import KafkaBroker
from statecore.runtime import KafkaSink, StagedEpoch
from statecore.snapshot.manifest import FileRef, StagedOutput
from statecore.storage import LocalFileStore

TOPIC_SUM = Path(__file__).parents[1] / "jobs" / "topic_sum.py"
PARTITIONS = 4
_FILES = 4


@contextmanager
def _broker(folder: Path) -> Iterator[KafkaBroker]:
    place = folder / "broker"
    place.mkdir()
    broker = KafkaBroker(place)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def against_spark(bench: Bench) -> list[Figure]:
    """Measure a running sum, record by record and exactly once, against ``groupBy().sum()``, at least once."""
    with bench.workspace("topics") as folder, _broker(folder) as broker:
        broker.create("records", PARTITIONS)
        _feed(broker, "records", (WARM_UP + EPOCHS) * ROWS)
        sides = _Sides(bench, folder, broker)
        taken = bench.rounds({"ours": sides.ours, "Spark": sides.spark}, unit="rows/s")
        ratio = median_ratio(taken["ours"], taken["Spark"])
        return [Figure("kafka_vs_spark", ratio, rate(taken["ours"]), rate(taken["Spark"]), sides.note)]


def publish(bench: Bench) -> list[Figure]:
    """Measure what the sink publishes of staged rows against a transactional producer that has them in memory."""
    with bench.workspace("publish") as folder, _broker(folder) as broker:
        broker.create("totals", PARTITIONS)
        rows = _rows(ROWS)
        sink, epochs = KafkaSink("totals", broker.servers, key="k", value="total"), count(1)
        outputs = _staged(folder, rows)
        keys, totals = (rows.column(name).to_pylist() for name in ("k", "total"))
        settings = {"bootstrap.servers": broker.servers, "transactional.id": "bare", "partitioner": "murmur2_random"}
        # As many as KafkaSink has in its queue.
        bare = Producer({**settings, "queue.buffering.max.messages": 200_000})
        bare.init_transactions(60)

        def ours() -> float:
            staged = StagedEpoch(
                job="bench", sink="totals", lineage=1, epoch=next(epochs), schema="k string, total string",
                store=LocalFileStore(folder), outputs=outputs, spark=cast(Any, None),
            )  # fmt: skip
            return _rate(lambda: sink.publish(staged))

        def theirs() -> float:
            def send() -> None:
                bare.begin_transaction()
                for key, total in zip(keys, totals, strict=True):
                    _sent(bare, "totals", total, key)
                bare.commit_transaction(60)

            return _rate(send)

        taken = bench.rounds({"KafkaSink": ours, "bare producer": theirs}, unit="rows/s")
        ratio = median_ratio(taken["KafkaSink"], taken["bare producer"])
        return [Figure("kafka_publish", ratio, rate(taken["KafkaSink"]), rate(taken["bare producer"]))]


class _Sides:
    """Runs each side over the same records, from the first; the first epoch does not count."""

    def __init__(self, bench: Bench, folder: Path, broker: KafkaBroker) -> None:
        self._bench, self._folder, self._broker = bench, folder, broker
        self._runs = count(1)
        self.note = ""

    def ours(self) -> float:
        name = f"ours-{next(self._runs)}"
        settings = {
            "servers": self._broker.servers,
            "from": "records",
            "to": self._broker.create(name, PARTITIONS),
            "rows": str(ROWS),
        }
        job = OurJob(self._bench.spark, self._folder / name, self._folder, artifact=TOPIC_SUM, settings=settings)
        with job.running() as query:
            seconds = seconds_of(query, WARM_UP + EPOCHS)
        self.note = f"last round, {phases(job.epochs()[WARM_UP:])}"
        # First, because a worker may still write files.
        self._bench.forget_state()
        job.close()
        return _epoch_rate(seconds)

    def spark(self) -> float:
        name = f"spark-{next(self._runs)}"
        self._broker.create(name, PARTITIONS)
        query = self._query(peers.peer_session(self._bench.spark), name)
        try:
            return _epoch_rate(seconds_of(query, WARM_UP + EPOCHS))
        finally:
            peers.stop_between_batches(query)

    def _query(self, spark: SparkSession, target: str) -> Any:
        servers = ("kafka.bootstrap.servers", self._broker.servers)
        reader = spark.readStream.format("kafka").option(*servers).option("subscribe", "records")
        records = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS).load()
        parsed = records.selectExpr("CAST(key AS STRING) AS k", "CAST(CAST(value AS STRING) AS BIGINT) AS n")
        sums = peers.grouped_sum(parsed).selectExpr("k AS key", "CAST(total AS STRING) AS value")
        writer = sums.writeStream.outputMode("update").format("kafka").option(*servers).option("topic", target)
        writer = writer.option("checkpointLocation", str(self._folder / target))
        return writer.trigger(processingTime=peers.TRIGGER).start()


def _epoch_rate(seconds: Sequence[float]) -> float:
    measured = seconds[WARM_UP:]
    return ROWS * len(measured) / sum(measured)


def _rows(number: int) -> pa.Table:
    drawn = np.random.default_rng(0).integers(0, KEYS, number)
    return pa.table({"k": key_names(pa.array(drawn)), "total": pa.array(drawn).cast(pa.string())})


def _feed(broker: KafkaBroker, topic: str, number: int) -> None:
    producer, rows = Producer({"bootstrap.servers": broker.servers}), _rows(number)
    for key, value in zip(*(rows.column(name).to_pylist() for name in ("k", "total")), strict=True):
        _sent(producer, topic, value, key)
    producer.flush()


def _sent(producer: Producer, topic: str, value: str, key: str) -> None:
    while True:
        try:
            return producer.produce(topic, value, key)
        except BufferError:
            # As KafkaSink does.
            producer.poll(0.005)


def _staged(folder: Path, rows: pa.Table) -> tuple[StagedOutput, ...]:
    """Write rows as workers stage them."""
    outputs = []
    for number in range(_FILES):
        path = f"{number}.parquet"
        pq.write_table(rows.slice(number * ROWS // _FILES, ROWS // _FILES), folder / path)
        data = (folder / path).read_bytes()
        file = FileRef(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        outputs.append(StagedOutput(sink="totals", file=file, rows=ROWS // _FILES))
    return tuple(outputs)


def _rate(action: Callable[[], None]) -> float:
    started = time.monotonic()
    action()
    return ROWS / (time.monotonic() - started)
