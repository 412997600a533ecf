"""The job that docs/kafka.md shows, on the orders that it sends, publishes the totals that it shows."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.bench import Bench, bench
from tests.support.kafka import KafkaBroker
from tests.support.paths import REPO
from tests.support.waiting import wait

__all__ = ["bench"]

PAGE = (REPO / "docs" / "kafka.md").read_text()


def block(beginning: str) -> str:
    """Return the first block of code that begins like this."""
    found = re.search(rf"^```\w*\n({re.escape(beginning)}.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found, beginning
    return found[1]


def test_the_job_of_the_page_gives_what_the_page_shows(
    spark: SparkSession, bench: Bench, kafka: KafkaBroker, tmp_path: Path
) -> None:
    job = tmp_path / "totals.py"
    job.write_text(block("from datetime import timedelta"))
    for topic in ("orders", "totals"):
        kafka.create(topic, 4)
    sent = re.search(r"printf '(.*?)'", block("printf"))
    assert sent
    kafka.produce("orders", [tuple(each.split(":")) for each in sent[1].split("\\n") if each])
    shown = block('{"customer"').splitlines()
    bench.register(artifact=job, settings={"servers": kafka.servers})
    with bench.running(2):
        wait(lambda: bench.rows_done() == len(shown), "the orders")
    assert sorted((record.value or b"").decode() for record in kafka.read("totals")) == sorted(shown)
