"""A topic that is read from its latest record on is read from there, also if the first epochs fail."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statecore.errors import StorageError
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.bench import Bench, bench
from tests.support.jobs import topics
from tests.support.kafka import KafkaBroker
from tests.support.waiting import wait

__all__ = ["bench"]


def test_records_that_come_while_the_first_epoch_fails_are_not_skipped(
    spark: SparkSession, bench: Bench, kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outgoing = kafka.create(f"{topic}-numbered", 1)
    bench.register(
        artifact=Path(topics.__file__),
        settings={"servers": kafka.servers, "from": topic, "to": outgoing, "sink": outgoing, "begin": "latest"},
    )

    def feed(first: int, rows: int) -> None:
        records = [(f"k{n % 3}", str(n)) for n in range(first, first + rows)]
        kafka.produce(topic, records, headers=[("origin", b"shop")])

    def is_away(*_: object) -> None:
        raise StorageError("found no answer; expected one; wait")

    feed(0, 10)
    with monkeypatch.context() as patch:
        # The first epoch has no records yet, so nothing else can fail.
        patch.setattr(CheckpointStore, "commit", is_away)
        with bench.running(2):
            bench.wait_failed()
    feed(10, 25)
    with bench.running():
        wait(lambda: bench.rows_done() == 25, "all records since the first driver began")
    found = Counter(json.loads(record.value or b"")["n"] for record in kafka.read(outgoing))
    assert found == Counter(range(10, 35))
