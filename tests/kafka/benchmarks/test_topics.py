"""The rows of Kafka measure what they say, at a small size: both sides put out the sums of all records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness import Bench
from benchmarks.rows import topics
from tests.support.kafka import KafkaBroker

ROWS, EPOCHS, KEYS = 400, 2, 50


class OneRound(Bench):
    def rounds(self, sides: Mapping[str, Callable[[], float]], **_: Any) -> dict[str, list[float]]:
        return {name: [side()] for name, side in sides.items()}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, kafka: KafkaBroker) -> Iterator[KafkaBroker]:
    @contextmanager
    def shared(_: Path) -> Iterator[KafkaBroker]:
        yield kafka

    monkeypatch.setattr(topics, "_broker", shared)
    # Spark shares an epoch's rows out among partitions, rounded down: of several, three epochs would not read all.
    for name, value in {"ROWS": ROWS, "EPOCHS": EPOCHS, "WARM_UP": 1, "KEYS": KEYS, "PARTITIONS": 1}.items():
        monkeypatch.setattr(topics, name, value)
    yield kafka
    for topic in ("records", "totals", "ours-1", "spark-2"):
        if topic in kafka.topics():
            kafka.delete(topic)


def test_both_sides_come_to_the_same_sums(small: KafkaBroker, spark: SparkSession, tmp_path: Path) -> None:
    (figure,) = topics.against_spark(OneRound(spark, tmp_path, print))
    assert figure.name == "kafka_vs_spark" and figure.ratio > 0
    sums: Counter[str] = Counter()
    for record in small.read("records"):
        sums[(record.key or b"").decode()] += int(record.value or b"")
    assert len(sums) == KEYS

    outputs = {
        side: [((record.key or b"").decode(), int(record.value or b"")) for record in small.read(side)]
        for side in ("ours-1", "spark-2")
    }
    assert len(outputs["ours-1"]) == (EPOCHS + 1) * ROWS
    for side, found in outputs.items():
        # Sums only grow, so the last one of a key is its largest.
        largest: dict[str, int] = {}
        for k, total in found:
            largest[k] = max(largest.get(k, 0), total)
        assert largest == sums, side


def test_publishing_alone_sends_each_row(small: KafkaBroker, spark: SparkSession, tmp_path: Path) -> None:
    (figure,) = topics.publish(OneRound(spark, tmp_path, print))
    assert figure.name == "kafka_publish" and figure.ratio > 0
    # Once by the sink, and once by the bare producer.
    assert len(small.read("totals")) == 2 * ROWS
