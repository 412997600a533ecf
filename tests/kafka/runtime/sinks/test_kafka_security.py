"""KafkaSink at brokers that ask for a password, or for a certificate, too."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from statecore.errors import SinkError
from statecore.runtime import KafkaSink
from statecore.runtime.sinks import kafka_publisher
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.topics.client_settings import VARIABLE
from tests.support.epochs import Epochs
from tests.support.kafka import KafkaBroker
from tests.support.kafka_security import LISTENERS, PASSWORD, USER

GOOD = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}


@pytest.fixture
def epochs(tmp_path: Path, topic: str) -> Epochs:
    return Epochs(CheckpointStore.at(str(tmp_path / "store")), job=f"job-{topic}")


def sink(
    kafka: KafkaBroker, topic: str, listener: str, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> KafkaSink:
    """Return a sink with settings from an Airflow connection."""
    extra = {"bootstrap.servers": "of.airflow:9092", "security.protocol": LISTENERS[listener], **settings}
    monkeypatch.setenv(VARIABLE, json.dumps({"conn_type": "kafka", "extra": json.dumps(extra)}))
    return KafkaSink(topic, kafka.address(listener), key="k", value="k")


@pytest.mark.parametrize("listener", LISTENERS)
def test_it_publishes_with_a_password_and_a_certificate(
    epochs: Epochs, kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    certificates = kafka.certificates.settings() if listener == "MUTUAL" else {}
    epochs.run(sink(kafka, topic, listener, monkeypatch, GOOD | certificates), [(1, "a")])
    assert [record.value for record in kafka.read(topic)] == [b"a"]


@pytest.mark.parametrize(
    ("listener", "settings", "why"),
    [
        ("SASL", {"sasl.password": "Hunter2Hunter2"}, r"_AUTHENTICATION: .*; correct user, password and mechanism"),
        ("SASL", {"sasl.mechanism": "SCRAM-SHA-256"}, r"_AUTHENTICATION: .*; correct user, password and mechanism"),
        ("MUTUAL", {}, r"_SSL: .*; correct security\.protocol and the certificates"),
    ],
    ids=["password", "mechanism", "authority"],
)
def test_what_brokers_do_not_let_in_is_one_error_that_says_what_to_correct(
    epochs: Epochs,
    kafka: KafkaBroker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    settings: dict[str, str],
    why: str,
) -> None:
    monkeypatch.setattr(kafka_publisher, "_CALL_S", 1)
    monkeypatch.setattr(kafka_publisher, "_RETRY_S", 0.1)
    with caplog.at_level(logging.DEBUG), pytest.raises(SinkError, match=why) as refused:
        epochs.run(sink(kafka, topic, listener, monkeypatch, GOOD | settings), [(1, "a")])
    assert "Hunter2" not in str(refused.value) + caplog.text
    assert kafka.read(topic) == []
