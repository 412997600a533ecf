"""The broker of docker-compose.yaml, started with the settings that its image would give it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from stack.kafka import KafkaBroker
from statecore.cluster.ports import free_ports
from tests.support.compose import SERVICES
from tests.support.waiting import PATIENCE_S

ENVIRONMENT = SERVICES["kafka"]["environment"]
# Read by the image's scripts, and no setting of the broker.
SCRIPTS = {"KAFKA_HEAP_OPTS"}


class ComposedBroker(KafkaBroker):
    """The broker, on this machine's ports and in a folder of its own."""

    properties = "\n".join(
        f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}"
        for name, value in ENVIRONMENT.items()
        if name not in SCRIPTS
    )
    for found, here in {
        r"//(kafka)?:9092": "//127.0.0.1:{port}",
        "127.0.0.1:9093": "127.0.0.1:{controller}",
        r"//(127.0.0.1)?:9094": "//127.0.0.1:OTHER",
        "/var/lib/kafka/data": "{folder}/data",
    }.items():
        properties, _ = re.subn(found, here, properties)

    def __init__(self, folder: Path) -> None:
        self.properties = self.properties.replace("OTHER", str(free_ports(1)[0]))
        super().__init__(folder)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    made = ComposedBroker(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop(signal.SIGKILL)


def test_it_knows_each_setting_and_takes_transactions(broker: KafkaBroker) -> None:
    # It answers for as long as it lives.
    admin = broker.admin()
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    # A name that the broker does not know is as secret as a password to it.
    known = {name for name, config in asked.result(PATIENCE_S).items() if not config.is_sensitive}
    assert {line.partition("=")[0] for line in ComposedBroker.properties.splitlines()} <= known

    broker.create("orders")
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": "tests", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", "5", "alice")
    producer.commit_transaction(PATIENCE_S)
    assert [(record.key, record.value) for record in broker.read("orders")] == [(b"alice", b"5")]
