"""A job from topic to topic goes on exactly where a savepoint, a copy of it or a store without its catalog says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from stack.kafka import CONNECTOR
from statecore.catalog import Catalog
from tests.support.bench import JOB, Bench, bench
from tests.support.jobs import topics
from tests.support.kafka import KafkaBroker
from tests.support.shell import run
from tests.support.waiting import wait

__all__ = ["bench"]

# As tests.support.jobs.topics puts out a record: key, number, how many of its key there were.
Numbered = tuple[str, int, int]


def register(bench: Bench, kafka: KafkaBroker, incoming: str, outgoing: str, how: str = "subscribe") -> None:
    bench.register(
        artifact=Path(topics.__file__),
        conf={"spark.jars": CONNECTOR},
        settings={
            "servers": kafka.servers, "how": how, "from": incoming, "to": outgoing, "sink": outgoing, "most": "500",
        },
    )  # fmt: skip


def numbered(kafka: KafkaBroker, topic: str) -> Counter[Numbered]:
    rows = (json.loads(record.value or b"") for record in kafka.read(topic))
    return Counter((row["k"], row["n"], row["seen"]) for row in rows)


def test_it_goes_on_after_its_catalog_is_lost_after_a_roll_back_and_from_a_copied_savepoint_elsewhere(
    spark: SparkSession, bench: Bench, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    outgoing, copy = kafka.create(f"{topic}-numbered", 2), tmp_path / "copy"
    register(bench, kafka, topic, outgoing)
    keys = 7

    def feed(first: int, rows: int) -> None:
        records = [(f"k{n % keys}", str(n)) for n in range(first, first + rows)]
        kafka.produce(topic, records, headers=[("origin", b"shop")])

    def expected(first: int, rows: int) -> Counter[Numbered]:
        return Counter((f"k{n % keys}", n, n // keys + 1) for n in range(first, first + rows))

    def offsets(bench: Bench) -> int:
        (source,) = bench.newest().sources
        return sum(json.loads(source.positions[0])[topic].values())

    feed(0, 140)
    with bench.running(2):
        wait(lambda: bench.rows_done() == 140, "the first records")
        assert bench.savepoint("noon", target=str(copy)).result is not None
        feed(140, 70)
        wait(lambda: bench.rows_done() == 210, "more records")
    bench.catalog.close()
    for file in tmp_path.glob("catalog.db*"):
        file.unlink()
    feed(210, 35)

    rebuilt = run("catalog", "rebuild", bench.store, "--json", STATECORE_CATALOG=bench.catalog_url)
    assert json.loads(rebuilt.stdout)[0]["withheld"] == [], rebuilt
    bench.catalog = Catalog(bench.catalog_url)
    with bench.running(3):
        wait(lambda: bench.rows_done() == 245, "what was fed meanwhile")
    assert bench.newest().lineage == 1 and offsets(bench) == 245
    truth = expected(0, 245)
    assert numbered(kafka, outgoing) == truth

    # What came after the savepoint is published once more, with the numbers that it had.
    back = ("start", JOB, "--from", "savepoints/noon/manifest.json", "--roll-back")
    assert run(*back, STATECORE_CATALOG=bench.catalog_url).returncode == 0
    with bench.running():
        wait(lambda: bench.newest().lineage > 1 and bench.rows_done() == 245, "the records after the savepoint")
    assert offsets(bench) == 245
    assert numbered(kafka, outgoing) == truth + expected(140, 105)

    (tmp_path / "other").mkdir()
    other, elsewhere = Bench(tmp_path / "other"), kafka.create(f"{topic}-elsewhere", 2)
    register(other, kafka, json.dumps({topic: [0, 1, 2]}), elsewhere, how="assign")
    with other.running(1, start_from=str(copy)):
        wait(lambda: other.rows_done() == 245, "the records after the copied savepoint")
    other.catalog.close()
    assert offsets(other) == 245
    assert numbered(kafka, elsewhere) == expected(140, 105)
