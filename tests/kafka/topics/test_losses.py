"""Which records a source wants that a broker's topics no longer have."""

from __future__ import annotations

import pytest

from statecore.topics.brokers import Brokers
from statecore.topics.client_settings import ClientSettings
from statecore.topics.losses import Loss, losses
from statecore.topics.positions import Partition
from tests.support.kafka import KafkaBroker


@pytest.fixture
def brokers(kafka: KafkaBroker) -> Brokers:
    return Brokers(ClientSettings(kafka.servers), committed=False)


@pytest.fixture
def ids(brokers: Brokers, kafka: KafkaBroker, topic: str) -> dict[str, str]:
    """Put ten records into each of the topic's partitions; return its id."""
    for number in range(3):
        kafka.produce(topic, [(None, "x")] * 10, partition=number)
    return {topic: brokers.topics([topic])[topic].id}


def at(topic: str, *offsets: int) -> dict[Partition, int]:
    return {Partition(topic, number): offset for number, offset in enumerate(offsets)}


def test_nothing_is_lost_from_the_first_record_to_the_end(brokers: Brokers, topic: str, ids: dict[str, str]) -> None:
    assert losses(brokers, at(topic, 0, 5, 10), ids, assigned=False) == []


def test_expired_records_are_counted(brokers: Brokers, kafka: KafkaBroker, topic: str, ids: dict[str, str]) -> None:
    kafka.expire(topic, {0: 6, 1: 4})
    (lost,) = losses(brokers, at(topic, 2, 4, 10), ids, assigned=False)
    assert lost == Loss(Partition(topic, 0), 2, 6, 10, 4, 6, "4 records have expired")
    assert str(lost) == f"{topic}-0 wants offset 2 and has 6 to 10 (4 records have expired; it would go on at 6)"


def test_a_topic_made_anew_is_noticed_although_it_has_more_records(
    brokers: Brokers, kafka: KafkaBroker, topic: str, ids: dict[str, str]
) -> None:
    kafka.remake(topic)
    kafka.produce(topic, [(None, "y")] * 20, partition=0)
    lost = losses(brokers, at(topic, 7, 7, 0), ids, assigned=False)
    assert [(each.partition.number, each.begin, each.end, each.records, each.goes_on) for each in lost] == [
        (0, 0, 20, None, 0),
        (1, 0, 0, None, 0),
        (2, 0, 0, None, 0),
    ]
    assert {each.why for each in lost} == {"the topic was deleted and made anew"}
    # A manifest of an earlier release names no id: then the offset alone speaks.
    assert [each.partition.number for each in losses(brokers, at(topic, 7, 7, 0), {}, assigned=False)] == [1]


def test_a_topic_and_a_partition_that_are_gone_are_named(
    brokers: Brokers, kafka: KafkaBroker, topic: str, ids: dict[str, str]
) -> None:
    kafka.remake(topic, partitions=1)
    found = losses(brokers, at(topic, 0, 5), {}, assigned=False)
    assert [str(each) for each in found] == [f"{topic}-1 wants offset 5 and is gone (the topic has fewer partitions)"]
    kafka.delete(topic)
    (lost,) = losses(brokers, at(topic, 0), ids, assigned=False)
    assert lost.why == "there is no such topic" and lost.goes_on is None


def test_a_log_that_was_cut_off_is_noticed(brokers: Brokers, topic: str, ids: dict[str, str]) -> None:
    (lost,) = losses(brokers, at(topic, 12, 10, 10), ids, assigned=False)
    assert (lost.wanted, lost.end, lost.goes_on) == (12, 10, 10)
