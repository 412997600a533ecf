"""The examples that read and write topics when told to, each driven once over a real broker."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from examples import campaign_report, flight_delays
from examples.campaign_report import EPOCH, HOUR, Event, Report, final_figures, generated_week
from examples.demo.feeder import load_flights
from examples.demo.kafka_flow import order_of_alerts
from examples.demo.topic_feeder import TopicFeeder
from tests.support.bench import Bench, bench
from tests.support.kafka import KafkaBroker

__all__ = ["bench"]


@contextmanager
def driven(bench: Bench, kafka: KafkaBroker, job: ModuleType, topic: str, sinks: tuple[str, ...]) -> Iterator[None]:
    """Run a job from a topic into topics; all is published at the end of the block."""
    for sink in sinks:
        kafka.create(f"{topic}-{sink}")
    bench.register(
        artifact=Path(job.__file__ or ""),
        settings={"servers": kafka.servers, "from": topic, "to": topic, "max_rows_per_epoch": "1000"},
    )
    with bench.running(2):
        yield
        bench.wait_done()


def rows(kafka: KafkaBroker, topic: str, key: str) -> list[Mapping[str, Any]]:
    """Return the rows in a topic, each of which has its key."""
    records = [(record.key, json.loads(record.value or b"")) for record in kafka.read(topic)]
    assert all(found == row[key].encode() for found, row in records if row[key] is not None)
    return [row for _, row in records]


def test_each_event_of_a_topic_is_in_the_report_of_its_hour_or_late(
    spark: SparkSession, bench: Bench, kafka: KafkaBroker, topic: str
) -> None:
    events = [arrival.event for arrival in generated_week(seed=4, events=1_600)]
    end = max(event.viewed_at for event in events)

    def feed(*fed: Event) -> None:
        values = ((event.campaign, msgspec.json.encode(event._asdict()).decode()) for event in fed)
        kafka.produce(topic, values)
        bench.fed += [(event.campaign, 0) for event in fed]

    with driven(bench, kafka, campaign_report, topic, ("reports", "late")):
        # An hour is corrected by an epoch after the one that reported it: the week has to come in several.
        for start in range(0, len(events), 400):
            feed(*events[start : start + 400])
            bench.wait_done()
        # One epoch lets all hours end, and one more reports them.
        for days in (30, 60):
            feed(Event("house", end + timedelta(days=days), "impression", Decimal(0)))
            bench.wait_done()

    late = Counter(
        Event(row["campaign"], moment(row["viewed_at"]), row["kind"], Decimal(row["spend"]))
        for row in rows(kafka, f"{topic}-late", "campaign")
    )
    reports = [
        Report(**{**row, "hour": moment(row["hour"]), "spend": Decimal(row["spend"])})
        for row in rows(kafka, f"{topic}-reports", "campaign")
    ]
    sums: dict[Any, tuple[int, Decimal]] = defaultdict(lambda: (0, Decimal(0)))
    for event in (Counter(events) - late).elements():
        hour = event.campaign, EPOCH + (event.viewed_at - EPOCH) // HOUR * HOUR
        sums[hour] = sums[hour][0] + 1, sums[hour][1] + event.spend
    final = {hour: row for hour, row in final_figures(reports).items() if row.hour <= end}
    assert {hour: (row.impressions + row.clicks, row.spend) for hour, row in final.items()} == sums
    assert len(reports) > len(final), "no hour was corrected"
    assert not late - Counter(events)


def test_flights_of_a_topic_give_the_alerts_of_each_aircraft_in_order(
    spark: SparkSession, bench: Bench, kafka: KafkaBroker, topic: str
) -> None:
    flights = load_flights().slice(0, 3_000)
    feeder = TopicFeeder(kafka.servers, topic)
    with driven(bench, kafka, flight_delays, topic, ("alerts", "rejects")):
        for part in (flights.slice(0, 1_000), flights.slice(1_000)):
            feeder.feed(part)
            bench.fed += [("", 0)] * part.num_rows
            bench.wait_done()
    assert [fed.rows_total for fed in feeder.history] == [1_000, 3_000]

    delays: dict[str, list[int]] = defaultdict(list)
    alerts, rejects = Counter[Any](), Counter[Any]()
    for flight in flights.to_pylist():
        leg = (flight["tailnum"], flight["sched_dep"], flight["carrier"], flight["flight"], flight["origin"])
        if None in (flight["tailnum"], flight["dep_time"], flight["arr_delay"]):
            rejects[leg] += 1
            continue
        delays[leg[0]] = last = [*delays[leg[0]], flight["arr_delay"]][-3:]
        alerts[(*leg, *last)] += len(last) == 3 and min(last) > 15
    published = Counter((*leg_of(row), *row["delays"]) for row in rows(kafka, f"{topic}-alerts", "tailnum"))
    assert published == +alerts and len(published) > 5
    assert order_of_alerts(kafka.read(f"{topic}-alerts")).exact
    # The others wait in the job for a hundred to come together.
    rejected = Counter(map(leg_of, rows(kafka, f"{topic}-rejects", "tailnum")))
    assert not rejected - rejects and (rejects - rejected).total() < 200


def leg_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["tailnum"], moment(row["sched_dep"]), row["carrier"], row["flight"], row["origin"]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
