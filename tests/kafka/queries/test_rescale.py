"""A query of Spark's own that reads topics goes on from its rescaled checkpoint, at the offsets where it was."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from statecore.queries.job.query_file import described, load_query
from statecore.queries.reading.checkpoint import open_checkpoint
from tests.support.kafka import KafkaBroker
from tests.support.shell import run

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUERY = """
import json
import pathlib

from pyspark.sql import functions as F


SETTINGS = json.loads('''%s''')


def build(spark, settings):
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", SETTINGS["servers"])
        .option("subscribe", SETTINGS["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )
    out = pathlib.Path(SETTINGS["out"])
    totals = records.groupBy(F.expr("CAST(key AS STRING) AS k")).agg(F.expr("sum(CAST(CAST(value AS STRING) AS INT))"))

    def write(batch, number):
        (out / f"{number}.json").write_text(json.dumps(sorted(map(list, batch.collect()))))

    return totals.writeStream.outputMode("update").foreachBatch(write)
"""


@pytest.mark.parametrize("provider", [None, ROCKSDB], ids=["hdfs", "rocksdb"])
def test_a_query_with_a_topic_goes_on_from_its_rescaled_checkpoint(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path, provider: str | None
) -> None:
    query, out = tmp_path / "query.py", tmp_path / "out"
    query.write_text(QUERY % json.dumps({"servers": kafka.servers, "topic": topic, "out": str(out)}))
    out.mkdir()
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    truth: Counter[str] = Counter()

    def feed(first: int) -> None:
        records = [(f"k{n % 7}", str(n)) for n in range(first, first + 100)]
        kafka.produce(topic, records)
        for k, n in records:
            truth[k] += int(n)

    def read_all(checkpoint: str) -> None:
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "2")
        if provider is not None:
            session.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        writer = described(session, load_query(str(query)), {}).query
        assert isinstance(writer, DataStreamWriter)
        started = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        started.awaitTermination()

    feed(1)
    read_all(old)
    done = run("checkpoint", "rescale", old, new, "--partitions", "3", "--query", query)
    assert done.returncode == 0, done
    assert open_checkpoint(new).partitions == 3
    feed(101)
    before = len(list(out.glob("*.json")))
    read_all(new)
    batches = {int(each.stem): json.loads(each.read_text()) for each in out.glob("*.json")}
    # None of the 100 that were read before is read again.
    assert len(batches) == before + 3
    assert {k: total for number in sorted(batches) for k, total in batches[number]} == truth
