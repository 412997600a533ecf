"""The rows of Kafka, at a small size: both sides put out the sums of all records, and nothing is left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from benchmarks.harness import ROUNDS, Bench
from benchmarks.rows import topics
from tests.support.kafka import KafkaBroker
from tests.support.one_round import OneRound
from tests.support.processes import naming

ROWS, EPOCHS, KEYS = 400, 2, 50


def test_both_sides_come_to_the_same_sums(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared(_: Path) -> Iterator[KafkaBroker]:
        yield kafka

    monkeypatch.setattr(topics, "_broker", shared)
    # Spark shares an epoch's rows out among partitions, rounded down: of several, three epochs would not read all.
    for name, value in {"ROWS": ROWS, "EPOCHS": EPOCHS, "WARM_UP": 1, "KEYS": KEYS, "PARTITIONS": 1}.items():
        monkeypatch.setattr(topics, name, value)
    (figure,) = topics.against_spark(OneRound(spark, tmp_path, print))
    assert figure.name == "kafka_vs_spark" and figure.ratio > 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    sums: Counter[str] = Counter()
    for record in kafka.read("records"):
        sums[(record.key or b"").decode()] += int(record.value or b"")
    assert len(sums) == KEYS
    outputs = {
        side: [((record.key or b"").decode(), int(record.value or b"")) for record in kafka.read(side)]
        for side in ("ours-1", "spark-2")
    }
    assert len(outputs["ours-1"]) == (EPOCHS + 1) * ROWS
    for side, found in outputs.items():
        # Sums only grow, so the last one of a key is its largest.
        largest: dict[str, int] = {}
        for k, total in found:
            largest[k] = max(largest.get(k, 0), total)
        assert largest == sums, side


def test_publishing_has_a_figure_and_leaves_nothing(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "ROWS", 4_000)
    said: list[str] = []
    (figure,) = topics.publish(Bench(None, tmp_path, said.append))  # type: ignore[arg-type]
    assert figure.name == "kafka_publish" and figure.ratio > 0
    # One more than count: the first warms both sides up.
    assert sum("KafkaSink" in line for line in said) == ROUNDS + 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not naming(psutil.Process().children(recursive=True), str(tmp_path))
