"""A job of several topics, one of which loses records; and what waits for it while it is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stack.kafka import CONNECTOR
from statecore.catalog import SourceBacklog
from statecore.supervisor import CATALOG_VARIABLE
from statecore.topics import lag
from tests.support.bench import JOB, KEYS, Bench, bench
from tests.support.jobs import topics
from tests.support.kafka import KafkaBroker
from tests.support.supervision import supervised
from tests.support.waiting import wait

__all__ = ["bench"]


def waiting(bench: Bench) -> SourceBacklog | None:
    found = bench.catalog.overviews.figures(JOB).backlog
    return None if found is None else found.sources[0]


def test_a_topic_made_anew_is_refused_until_a_person_accepts_it_and_what_waits_is_known_all_the_while(
    bench: Bench, kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    numbered = kafka.create(f"{topic}-numbered", 1)
    bench.register(
        artifact=Path(topics.__file__),
        conf={"spark.jars": CONNECTOR},
        settings={
            "servers": kafka.servers, "how": "subscribePattern", "from": f"^{topic}(-more)?$", "splits": "6",
            "to": numbered, "sink": f"lost-{topic}",
        },
    )  # fmt: skip

    def feed(first: int, rows: int, into: str = topic) -> None:
        records = [(f"k{n % KEYS}", str(n)) for n in range(first, first + rows)]
        kafka.produce(into, records, headers=[("origin", b"shop")])

    feed(0, 120)
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    with supervised(bench, tmp_path / "logs"):
        wait(lambda: bench.rows_done() == 120, "the first records")
        assert max(epoch.rows for epoch in bench.catalog.epochs.of(JOB)) <= 100, "more than maxOffsetsPerTrigger"
        more = kafka.create(f"{topic}-more", 2)
        feed(500, 30, into=more)
        wait(lambda: bench.rows_done() == 150, "the records of a topic that begins to match")
        assert bench.stop("noon") is not None
        (source,) = bench.newest().sources
        assert list(source.topic_ids) == [topic, more]
        assert sum(json.loads(source.positions[0])[more].values()) == 30

        feed(120, 50)
        wait(lambda: (found := waiting(bench)) is not None and found.records == 50, "what waits while nothing runs")
        found = waiting(bench)
        assert found is not None and found.oldest_age_ms is not None and found.partitions == 5
        assert 0 <= found.oldest_age_ms < 600_000 and found.skew is not None and found.skew >= 1
        recorded = bench.catalog.epochs.topics(JOB)
        assert recorded is not None and recorded.sources[0].servers == kafka.servers
        assert lag.records(recorded.sources[0].partitions) == 50

        # More than was read: Spark alone would go on in the middle of other records.
        kafka.remake(topic)
        feed(1_000, 400)
        bench.catalog.jobs.set_desired(JOB, state="running")
        told = wait(lambda: bench.generation().error, "the driver to refuse") or ""
        wanted = json.loads(source.positions[0])[topic]["0"]
        assert f"{topic}-0 wants offset {wanted} and has 0 to " in told
        assert "deleted and made anew" in told and f"statecore start {JOB} --accept-lost-records" in told
        assert f"{more}-" not in told
        assert bench.rows_done() == 150

        bench.catalog.jobs.set_desired(JOB, accept_lost_records=True)
        wait(lambda: bench.rows_done() == 550, "all records of the new topic")
        wait(lambda: not bench.catalog.jobs.get(JOB).accept_lost_records, "the permission to end")
        # With fewer partitions than there were.
        assert bench.stop("evening") is not None
        kafka.remake(topic, 1)
        feed(2_000, 50)
        bench.catalog.jobs.set_desired(JOB, state="running")
        refusal = f"{topic}-2 wants offset "
        wait(lambda: refusal in (bench.generation().error or ""), "the driver to refuse again")
        bench.catalog.jobs.set_desired(JOB, accept_lost_records=True)
        wait(lambda: bench.rows_done() == 600, "all records of the only partition")
        ids = bench.newest().sources[0].topic_ids
        assert (
            ids.keys() == {topic, more}
            and ids[topic] != source.topic_ids[topic]
            and ids[more] == source.topic_ids[more]
        )
    rows = [json.loads(record.value or b"") for record in kafka.read(numbered)]
    assert sorted(row["n"] for row in rows) == [
        *range(120),
        *range(500, 530),
        *range(1_000, 1_400),
        *range(2_000, 2_050),
    ]
