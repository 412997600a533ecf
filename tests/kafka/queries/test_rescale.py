"""A query of Spark's own that reads topics goes on from its rescaled checkpoint, at the offsets where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from examples.quick_start import QUICK_START
from examples.stack.kafka import CONNECTOR
from statecore.queries.checkpoint import open_checkpoint
from tests.support.kafka import KafkaBroker
from tests.support.programs import kafka_query

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


@pytest.mark.parametrize("provider", ["default", ROCKSDB], ids=["hdfs", "rocksdb"])
def test_a_query_with_a_topic_goes_on_from_its_rescaled_checkpoint(
    kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS",
        f'--driver-memory 512m --driver-java-options "{QUICK_START}" --jars {CONNECTOR} pyspark-shell',
    )
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

    def run(checkpoint: str) -> None:
        call(kafka_query.__file__, str(query), checkpoint, "2", provider)

    feed(1)
    run(old)
    call("-m", "statecore", "checkpoint", "rescale", old, new, "--partitions", "3", "--query", str(query))
    assert open_checkpoint(new).partitions == 3
    feed(101)
    before = len(list(out.glob("*.json")))
    run(new)
    batches = {int(each.stem): json.loads(each.read_text()) for each in out.glob("*.json")}
    # None of the 100 that were read before is read again.
    assert len(batches) == before + 3
    assert {k: total for number in sorted(batches) for k, total in batches[number]} == truth


def call(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
