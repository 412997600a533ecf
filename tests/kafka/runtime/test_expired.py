"""Records of a topic expire while its job is stopped: the driver counts them, and goes on once a person accepts it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.bench import JOB, KEYS, Bench, bench
from tests.support.jobs import topics
from tests.support.kafka import KafkaBroker
from tests.support.waiting import wait

__all__ = ["bench"]


def most_tasks(spark: SparkSession) -> int:
    """Return how many tasks the largest stage of the running query has had."""
    (query,) = spark.streams.active
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(str(query.runId))]
    stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
    return max(stage.numTasks for stage in stages if stage)


def test_expired_records_are_refused_with_their_number_and_the_others_are_read_once(
    spark: SparkSession, bench: Bench, kafka: KafkaBroker, topic: str
) -> None:
    other, outgoing = kafka.create(f"{topic}-other", 1), kafka.create(f"{topic}-numbered", 1)
    bench.register(
        artifact=Path(topics.__file__),
        settings={
            "servers": kafka.servers, "from": f"{topic},{other}", "to": outgoing, "sink": outgoing, "splits": "12",
        },
    )  # fmt: skip

    sent_ms = int(time.time() * 1000) - 60_000

    def feed(into: str, first: int, rows: int) -> None:
        records = [(f"k{n % KEYS}", str(n)) for n in range(first, first + rows)]
        kafka.produce(into, records, headers=[("origin", b"shop")], timestamp=sent_ms)

    feed(topic, 0, 120)
    feed(other, 1_000, 30)
    with bench.running(2):
        wait(lambda: bench.rows_done() == 150, "the records of both topics")
        # There are four partitions; minPartitions asks for more tasks.
        assert most_tasks(spark) > 4
    (source,) = bench.newest().sources
    assert source.max_event_time_ms == sent_ms
    feed(topic, 120, 60)
    feed(other, 1_030, 10)
    records = [record for record in kafka.read(topic) if record.partition == 0]
    lost = [int(record.value or b"") for record in records if int(record.value or b"") >= 120]
    assert lost
    kafka.expire(topic, {0: len(records)})

    with bench.running():
        bench.wait_failed()
    told = bench.generation().error or ""
    there, wanted = len(records), len(records) - len(lost)
    assert f"{topic}-0 wants offset {wanted} and has {there} to {there}" in told
    assert f"{len(lost)} records are lost" in told and f"statecore start {JOB} --accept-lost-records" in told
    assert f"{topic}-1" not in told and f"{other}-" not in told
    assert bench.rows_done() == 150

    bench.catalog.jobs.set_desired(JOB, accept_lost_records=True)
    with bench.running():
        wait(lambda: bench.rows_done() == 220 - len(lost), "what is left")
    numbers = sorted(json.loads(record.value or b"")["n"] for record in kafka.read(outgoing))
    assert numbers == sorted({*range(180), *range(1_000, 1_040)} - set(lost))
