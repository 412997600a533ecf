"""A Kafka broker of the tests' own, in KRaft mode, in a temporary folder and on a free port.

Its records are read by a consumer that shares no code with the sink.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from examples.quick_start import QUICK
from examples.stack.processes import free_ports
from tests.support.waiting import PATIENCE_S, wait

JARS = Path(sys.prefix) / "kafka"
CONNECTOR = ",".join(map(str, sorted((JARS / "connector").glob("*.jar"))))
"""For ``spark.jars``."""

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.initial.task.delay.ms=100
file.delete.delay.ms=100
"""


class Record(NamedTuple):
    """A committed record."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaBroker:
    """The broker; whoever starts it stops it.

    Args:
        folder: Of its own.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, controller = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        settings = folder / "server.properties"
        settings.write_text(_PROPERTIES.format(port=self.port, controller=controller, folder=folder))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        made = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
        assert made.wait(PATIENCE_S) == 0, (folder / "log").read_text()

    @property
    def servers(self) -> str:
        """Its address, for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = self._java("kafka.Kafka", str(self.folder / "server.properties"))
        wait(self._is_ready, f"the broker; see {self.folder / 'log'}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(PATIENCE_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it answer nobody, as behind a network that is down."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def create(self, topic: str, partitions: int = 3, **settings: str) -> str:
        """Make a topic; ``_`` in the name of a setting stands for ``.``."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        # It answers for as long as it lives.
        admin = self._admin()
        (made,) = admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values()
        made.result(PATIENCE_S)
        wait(lambda: topic in self.topics(), f"the topic {topic}")
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self._admin()
        (grown,) = admin.create_partitions([NewPartitions(topic, partitions)]).values()
        grown.result(PATIENCE_S)
        wait(lambda: len(self.topics()[topic].partitions) == partitions, f"{partitions} partitions of {topic}")

    def topics(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._admin().list_topics(timeout=PATIENCE_S).topics
        return found

    def produce(self, topic: str, records: Iterable[tuple[str | None, str | None]], **how: Any) -> None:
        """Append records, not in a transaction."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for key, value in records:
            producer.produce(topic, key=key, value=value, **how)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, topic: str, *, isolation: str = "read_committed") -> Sequence[Record]:
        """Return all records up to the newest one that is committed when this is called, partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        try:
            partitions = self.topics()[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            found, open_ = list[Record](), set(partitions)
            while open_:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                error, number = message.error(), message.partition()
                assert number is not None
                if error is not None:
                    assert error.name() == "_PARTITION_EOF", error
                    open_.discard(number)
                else:
                    headers: Any = tuple(message.headers() or ())
                    found.append(Record(number, message.key(), message.value(), headers))
        finally:
            consumer.close()
        return sorted(found, key=lambda record: record.partition)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            self._admin().list_topics(timeout=1)
        except KafkaException:
            return False
        return True

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                ["java", *QUICK.split(), "-Xmx256m", "-cp", f"{JARS / 'broker'}/*", main, *arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, "LC_ALL": "C"},
            )


@contextmanager
def started() -> Iterator[KafkaBroker]:
    """Start a broker; end it when the block ends."""
    if not (JARS / ".fetched").exists():
        pytest.skip(f"found no jars in {JARS}; run `make kafka`, which needs Maven")
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        broker = KafkaBroker(Path(folder))
        broker.start()
        try:
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
