"""KafkaSink without a broker: its settings, its columns, and the way through the client library's own stand-in.

The stand-in neither fences nor hides what was aborted: what the sink promises is tested in ``tests/kafka``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from statecore.errors import JobDefinitionError, SinkError
from statecore.runtime import Job, KafkaSink
from statecore.runtime.sinks import kafka_publisher
from statecore.topics.client_settings import ClientSettings
from tests.support.epochs import Epochs
from tests.support.miniature import Totals

# The second is of one test alone: others leave records in the first.
TOPIC, READ = "seen", "read"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Address of the stand-in, which knows the topics."""
    mock = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    found = ",".join(f"{each.host}:{each.port}" for each in mock.list_topics(timeout=30).brokers.values())
    for topic in (TOPIC, READ, kafka_publisher.MARKERS):
        mock.produce(topic, b"{}", b"of nobody")
    assert mock.flush(30) == 0
    yield found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_publisher, "_RETRY_S", 0.1)
    monkeypatch.setattr(kafka_publisher, "_CALL_S", 5)
    # The stand-in has no settings of topics.
    monkeypatch.setattr(kafka_publisher.Publisher, "_check_compacted", lambda *_: None)


def values(servers: str) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests", "enable.partition.eof": True})
    partitions = consumer.list_topics(READ, timeout=30).topics[READ].partitions
    consumer.assign([TopicPartition(READ, number, 0) for number in partitions])
    found, left = [], set(partitions)
    while left:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None and message.key() != b"of nobody":
            found.append((message.key(), message.value(), message.headers()))
        elif message.error() is not None:
            left.discard(message.partition())
    consumer.close()
    return found


def test_an_epoch_is_published_with_its_marker_and_no_second_time(epochs: Epochs, servers: str) -> None:
    sink = KafkaSink(READ, servers, key="k")
    committed = epochs.run(sink, [(1, "a"), (2, None)])
    epochs.forget()
    epochs.publish(KafkaSink(READ, servers, key="k"), committed)
    epochs.run(KafkaSink(READ, servers, value="k", headers=("k",)), [(3, "b")], 1, 6)
    assert sorted(values(servers), key=str) == sorted(
        [(b"a", b'{"n":1,"k":"a"}', None), (None, b'{"n":2,"k":null}', None), (None, b"b", [("k", b"b")])], key=str
    )
    epochs.forget()
    with pytest.raises(SinkError, match=r"found epoch 6 of lineage 1 .* already published"):
        epochs.run(KafkaSink(TOPIC, servers), [(1, "a")], 1, 5)


def test_a_topic_that_is_missing_is_refused(epochs: Epochs, servers: str) -> None:
    with pytest.raises(SinkError, match=r"there is no topic nosuch, or .* describe; expected .*; create the topic"):
        epochs.run(KafkaSink("nosuch", servers), [(1, "a")])


def test_an_attempt_that_fails_is_given_up_and_another_begins_anew(
    epochs: Epochs, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_publisher, "_RETRY_S", 60)
    failing = iter([KafkaError._TRANSPORT])

    class Failing(Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            for code in failing:
                raise KafkaException(KafkaError(code))
            super().commit_transaction(*arguments)

    monkeypatch.setattr(kafka_publisher, "Producer", Failing)
    epochs.job = "failing"
    epochs.run(KafkaSink(TOPIC, servers), [(1, "again")])
    assert next(failing, None) is None


def test_a_queue_that_is_full_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    full, taken = iter([True, True]), list[Any]()

    class Full(Producer):
        def produce(self, *record: Any) -> None:
            if next(full, False):
                raise BufferError
            taken.append(record)

    producer = Full({"bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    kafka_publisher._produce(producer, "t", kafka_publisher.Records([b"k"], [b"v"]))
    assert taken == [("t", b"v", b"k")]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, "raise message.max.bytes"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "lower transaction.timeout.ms"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "grant the client's user"),
        (KafkaError._FENCED, "raise transaction.timeout.ms"),
        (KafkaError._TRANSPORT, "check brokers"),
    ],
)
def test_what_brokers_refuse_is_told_with_a_remedy(
    epochs: Epochs, servers: str, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    def refused(*_: object) -> None:
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(kafka_publisher, "_produce", refused)
    epochs.job = f"refused-{code}"
    with pytest.raises(SinkError, match=rf"does not take epoch 5 of sink 'seen': .*; {remedy}.*, then restart"):
        epochs.run(KafkaSink(TOPIC, servers), [(1, "a")])


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"key": "n"}, "found int for the key 'n'"),
        ({"value": "nosuch"}, "found no column for the value 'nosuch'"),
        ({"headers": ("n",)}, "found int for the header 'n'"),
    ],
    ids=["type", "missing", "header"],
)
def test_a_column_that_cannot_be_bytes_is_refused_when_the_job_is_built(columns: dict[str, Any], found: str) -> None:
    rows = (
        Job()
        .source("rows", lambda spark: spark.range(1))
        .key_by("k")
        .process(Totals(), output="n int, k string", uid="totals")
    )
    with pytest.raises(JobDefinitionError, match=rf"{found} .*; expected a column of type string or binary among n, k"):
        rows.sink("seen", KafkaSink(TOPIC, "127.0.0.1:9", **columns))


@pytest.mark.parametrize("wrong", [{"topic": ""}, {"servers": ""}, {"headers": "k"}])
def test_a_sink_that_names_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(JobDefinitionError, match=r"expected the name of a topic, host:port"):
        KafkaSink(**{"topic": "t", "servers": "host:9092", **wrong})


def test_a_row_that_cannot_be_json_is_refused(epochs: Epochs, servers: str) -> None:
    epochs.job = "no-json"
    with pytest.raises(SinkError, match=r"found a row that cannot be JSON: .*; have the job put out the"):
        epochs.run(KafkaSink(TOPIC, servers, key="k"), [("a", {True: 1})], schema="k string, m map<boolean,int>")


def test_the_newest_marker_counts_whatever_partition_it_is_in(servers: str) -> None:
    """As after somebody gave the topic more partitions."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for partition, epoch in ((3, 900), (1, 901), (0, 7)):
        marker = msgspec.json.encode(kafka_publisher._Marker(1, epoch, "x"))
        producer.produce(kafka_publisher.MARKERS, marker, b"grown/seen", partition=partition)
    assert producer.flush(30) == 0
    publisher = kafka_publisher.Publisher(ClientSettings(servers), TOPIC, "grown", "seen")
    found = publisher._read_marker(AdminClient({"bootstrap.servers": servers, "log_level": 0}))
    assert found is not None and found.epoch == 901


def test_a_marker_keeps_its_form() -> None:
    """Markers outlive releases."""
    marker = kafka_publisher._Marker(2, 5, "ab")
    assert msgspec.json.encode(marker) == b'{"lineage":2,"epoch":5,"outputs":"ab"}'
