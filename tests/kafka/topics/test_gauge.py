"""What waits in topics, as a broker says."""

from __future__ import annotations

import time

import pytest

from statecore.errors import SourceError
from statecore.topics import lag
from statecore.topics.brokers import Brokers
from statecore.topics.client_settings import ClientSettings
from statecore.topics.gauge import Gauge
from statecore.topics.positions import Partition
from tests.support.kafka import KafkaBroker


@pytest.fixture
def gauge(kafka: KafkaBroker) -> Gauge:
    return Gauge(Brokers(ClientSettings(kafka.servers), committed=False), assigned=False)


def ms(seconds_ago: float) -> int:
    return int((time.time() - seconds_ago) * 1000)


def test_what_waits_is_counted_per_partition_with_the_oldest_record(
    gauge: Gauge, kafka: KafkaBroker, topic: str
) -> None:
    old, new = ms(3_600), ms(60)
    kafka.produce(topic, [(None, "read")] * 4, partition=0, timestamp=ms(9_000))
    kafka.produce(topic, [(None, "old")], partition=0, timestamp=old)
    kafka.produce(topic, [(None, "new")] * 4, partition=0, timestamp=new)
    kafka.produce(topic, [(None, "new")], partition=1, timestamp=new)
    positions = {Partition(topic, 0): 4, Partition(topic, 1): 0, Partition(topic, 2): 0}
    found = gauge.measure(positions)
    assert [(each.partition, each.records, each.oldest_ms) for each in found] == [
        (0, 5, old),
        (1, 1, new),
        (2, 0, None),
    ]
    assert lag.records(found) == 6
    assert lag.skew(found) == 2.5
    assert lag.oldest_age_ms(found, old + 5_000) == 5_000

    # A partition that is not read on is not asked for its record again, one that is, is.
    kafka.expire(topic, {1: 1})
    kafka.grow(topic, 4)
    kafka.produce(topic, [(None, "more")] * 3, partition=3, timestamp=new)
    found = gauge.measure({**positions, Partition(topic, 0): 5})
    assert [(each.records, each.oldest_ms) for each in found] == [(4, new), (0, None), (0, None), (3, new)]


def test_records_that_are_gone_do_not_wait(gauge: Gauge, kafka: KafkaBroker, topic: str) -> None:
    kafka.produce(topic, [(None, "x")] * 9, partition=0)
    kafka.expire(topic, {0: 6})
    waiting = gauge.measure({Partition(topic, 0): 2, Partition("nowhere", 0): 7})
    assert [(each.topic, each.position, each.records) for each in waiting if each.partition == 0] == [
        ("nowhere", 7, 0),
        (topic, 2, 3),
    ]


def test_brokers_that_do_not_answer_are_named(kafka: KafkaBroker, topic: str) -> None:
    gone = Gauge(Brokers(ClientSettings("127.0.0.1:1"), committed=False), assigned=False)
    with pytest.raises(
        SourceError, match=r"no answer about topics from the Kafka brokers 127\.0\.0\.1:1.*expected one"
    ):
        gone.measure({Partition(topic, 0): 2})
