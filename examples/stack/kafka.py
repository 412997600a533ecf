"""A Kafka broker in KRaft mode, in a folder of its own and on a free port; its jars come from ``make kafka``."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from examples.quick_start import QUICK
from examples.stack.processes import StackError, free_ports

JARS = Path(sys.prefix) / "kafka"
CONNECTOR = ",".join(map(str, sorted((JARS / "connector").glob("*.jar"))))
"""Spark's connector, for ``spark.jars``."""

_START_S = 180.0
_STEP_S = 0.05
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


def has_jars() -> bool:
    """Tell whether ``make kafka`` has fetched the jars."""
    return (JARS / ".fetched").exists()


class KafkaBroker:
    """The broker; whoever starts it stops it.

    Args:
        folder: Of its own; it exists.

    Raises:
        StackError: There are no jars, or the folder cannot be prepared.

    """

    def __init__(self, folder: Path) -> None:
        if not has_jars():
            raise StackError(f"found no jars in {JARS}; expected a Kafka broker; run `make kafka`, which needs Maven")
        self.folder = folder
        self.port, controller = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        settings = folder / "server.properties"
        settings.write_text(_PROPERTIES.format(port=self.port, controller=controller, folder=folder))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        made = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
        if made.wait(_START_S):
            raise StackError(f"found that Kafka cannot use {folder}; expected an empty folder; see {self.log}")

    @property
    def servers(self) -> str:
        """Its address, for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it has said."""
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
        """Let it answer nobody, as behind a network that is down."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def create(self, topic: str, partitions: int = 3, **settings: str) -> str:
        """Make a topic, and return its name; ``_`` in the name of a setting stands for ``.``."""
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
                env={**os.environ, "LC_ALL": "C"},
            )
