"""The row of publishing alone has a figure and leaves no process and no file."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from benchmarks.harness import Bench
from benchmarks.rows import topics
from tests.support.kafka import KafkaBroker
from tests.support.processes import naming


def test_publishing_has_a_figure_and_leaves_nothing(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "ROWS", 4_000)
    said: list[str] = []
    (figure,) = topics.publish(Bench(None, tmp_path, said.append))  # type: ignore[arg-type]
    assert figure.name == "kafka_publish" and figure.ratio > 0
    assert sum("KafkaSink" in line for line in said) == 6
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not naming(psutil.Process().children(recursive=True), str(tmp_path))
