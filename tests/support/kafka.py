"""A Kafka broker of the tests' own, in a temporary folder."""

from __future__ import annotations

import signal
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from stack import kafka as kafka_broker
from tests.support.kafka_security import LISTENERS, PASSWORD, USER, Certificates, broker_settings
from tests.support.waiting import PATIENCE_S, wait

_PUNCTUAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n"


class KafkaBroker(kafka_broker.KafkaBroker):
    """The broker, with users and certificates, and with what tests put into its topics and find there."""

    def __init__(self, folder: Path) -> None:
        self.certificates = Certificates(folder)
        settings = broker_settings(self.certificates) + _PUNCTUAL
        super().__init__(folder, listeners=LISTENERS, settings=settings, users={USER: PASSWORD})

    def address(self, listener: str) -> str:
        """Return the address of a listener of ``LISTENERS``."""
        return f"127.0.0.1:{self.ports[listener]}"

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self.admin()
        (grown,) = admin.create_partitions([NewPartitions(topic, partitions)]).values()
        grown.result(PATIENCE_S)
        wait(lambda: len(self.topics()[topic].partitions) == partitions, f"{partitions} partitions of {topic}")

    def setting(self, topic: str, name: str) -> str:
        """Return a setting of a topic."""
        admin = self.admin()
        (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return str(asked.result(PATIENCE_S)[name].value)

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        admin = self.admin()
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(PATIENCE_S)
        wait(lambda: self.setting(topic, name) == value, f"{name} of {topic}")

    def remake(self, topic: str, partitions: int = 3) -> None:
        """Delete a topic, and make it anew."""
        self.delete(topic)
        self.create(topic, partitions)

    def delete(self, topic: str) -> None:
        admin = self.admin()
        (deleted,) = admin.delete_topics([topic]).values()
        deleted.result(PATIENCE_S)
        wait(lambda: topic not in self.topics(), f"{topic} to be gone")

    def expire(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of partitions before an offset, as retention does."""
        admin = self.admin()
        asked = admin.delete_records([TopicPartition(topic, number, offset) for number, offset in before.items()])
        for each in asked.values():
            each.result(PATIENCE_S)

    def ends(self, topic: str) -> int:
        """Return how many records the topic was ever given, those among them that tell the end of a transaction."""
        admin = self.admin()
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in self.topics()[topic].partitions}
        return sum(int(found.result(PATIENCE_S).offset) for found in admin.list_offsets(asked).values())

    def produce(self, topic: str, records: Iterable[tuple[str | None, str | None]], **how: Any) -> None:
        """Append records, each once, not in a transaction."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
        for key, value in records:
            producer.produce(topic, key=key, value=value, **how)
        assert producer.flush(PATIENCE_S) == 0


@contextmanager
def started() -> Iterator[KafkaBroker]:
    """Start a broker; end it when the block ends."""
    if not kafka_broker.has_jars():
        pytest.skip("found no jars of a broker; run `make kafka`, which needs Maven")
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        broker = KafkaBroker(Path(folder))
        try:
            broker.start()
            yield broker
        finally:
            broker.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """One broker for the whole test run; each test makes topics of its own."""
    with started() as broker:
        yield broker


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """Make a topic with three partitions."""
    return kafka.create(f"topic-{uuid.uuid4().hex[:8]}")
