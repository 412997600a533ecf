"""A Kafka broker in KRaft mode, in a folder of its own and on a free port; its jars come from ``make kafka``.

Its records are read by a consumer that shares no code with the sink.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from stack.processes import StackError
from stack.quick_start import QUICK
from statecore.cluster.ports import free_ports

JARS = Path(sys.prefix) / "kafka"
FETCHED = JARS / ".fetched"
CONNECTOR = ",".join(map(str, sorted((JARS / "connector").glob("*.jar")))) if FETCHED.exists() else ""
"""Spark's connector, for ``spark.jars``."""

NO_JARS = f"found no jars in {JARS}; expected a Kafka broker; run `make kafka`, which needs Maven"

_START_S = 180.0
_STEP_S = 0.05


def has_jars() -> bool:
    """Return whether ``make kafka`` has fetched the jars."""
    return FETCHED.exists()


class Record(NamedTuple):
    """A committed record."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaBroker:
    """A broker; the caller of ``start`` also calls ``stop``.

    Args:
        folder: An existing folder for this broker alone.
        environment: Environment that marks its processes as part of a stack, which then ends them; None outside of one.
        listeners: Security protocols of additional listeners, by name.
        settings: Settings of these listeners, as lines of the broker's properties.
        users: Passwords by user, for SCRAM-SHA-512.

    Raises:
        StackError: There are no jars, or the folder cannot be prepared.

    """

    properties = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map={protocols},CONTROLLER:PLAINTEXT
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
{more}
"""
    """Its settings; ``__init__`` fills in the names in braces."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        listeners: Mapping[str, str] = MappingProxyType({}),
        settings: str = "",
        users: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if not has_jars():
            raise StackError(NO_JARS)
        self.folder = folder
        self._environment = environment
        protocols = {"PLAINTEXT": "PLAINTEXT", **listeners}
        controller, *ports = free_ports(1 + len(protocols))
        self.ports = dict(zip(protocols, ports, strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        properties = folder / "server.properties"
        properties.write_text(
            self.properties.format(
                listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
                protocols=",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
                port=self.ports["PLAINTEXT"],
                controller=controller,
                folder=folder,
                more=settings,
            )
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        scram = [f"SCRAM-SHA-512=[name={user},password={password}]" for user, password in users.items()]
        more = [part for each in scram for part in ("--add-scram", each)]
        # With ``=``, because one id in 64 begins with a hyphen and would be parsed as an option.
        made = self._java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties), *more)
        if made.wait(_START_S):
            raise StackError(f"could not format {folder} for Kafka; expected an empty folder; see {self.log}")

    @property
    def servers(self) -> str:
        """Its address, for clients."""
        return f"127.0.0.1:{self.ports['PLAINTEXT']}"

    @property
    def log(self) -> Path:
        """Path of its output."""
        return self.folder / "log"

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            StackError: It ends, or does not answer.

        """
        self._process = self._java("kafka.Kafka", str(self.folder / "server.properties"))
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise StackError(f"found no answer of the broker at {self.servers}; expected one; see {self.log}")
            time.sleep(_STEP_S)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(_START_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend it: it answers no client, as behind a network that is down."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def create(self, topic: str, partitions: int = 3, **settings: str) -> str:
        """Create a topic, and return its name; ``_`` in the name of a setting stands for ``.``."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        # It answers for as long as it lives.
        admin = self.admin()
        (made,) = admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values()
        made.result(_START_S)
        while topic not in admin.list_topics(timeout=_START_S).topics:
            time.sleep(_STEP_S)
        return topic

    def admin(self) -> AdminClient:
        """Return a client for its topics."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def topics(self) -> Mapping[str, Any]:
        """Return the metadata of all topics by name."""
        topics: Mapping[str, Any] = self.admin().list_topics(timeout=_START_S).topics
        return topics

    def read(self, topic: str, *, isolation: str = "read_committed") -> Sequence[Record]:
        """Return all records up to the newest one that is committed when this is called, partition by partition.

        Raises:
            StackError: The broker does not answer.

        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "readers",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            partitions = self.topics()[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            records, open_ = list[Record](), set(partitions)
            while open_:
                message: Any = consumer.poll(_START_S)
                error: Any = "no answer" if message is None else message.error()
                if error is None:
                    headers = tuple(message.headers() or ())
                    records.append(Record(message.partition(), message.key(), message.value(), headers))
                elif message is not None and error.name() == "_PARTITION_EOF":
                    open_.discard(message.partition())
                else:
                    raise StackError(f"found {error} of topic {topic}; expected its records; see {self.log}")
        finally:
            consumer.close()
        return sorted(records, key=lambda record: record.partition)

    def _answers(self) -> bool:
        try:
            self.admin().list_topics(timeout=1)
        except KafkaException:
            return False
        return True

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["java", *QUICK.split(), "-Xmx256m", "-cp", f"{JARS / 'broker'}/*", main, *arguments],
                stdout=log,
                stderr=log,
                env={**(self._environment or os.environ), "LC_ALL": "C"},
                # Ctrl-C in the terminal does not reach a stack.
                start_new_session=self._environment is not None,
            )
