"""What Spark's connector is told of the settings of Kafka clients, and what an error of its clients means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.errors import JobDefinitionError, SourceError
from statecore.runtime import kafka_options
from statecore.runtime.kafka_source import kafka_refusal
from statecore.topics.client_settings import VARIABLE

SASL = {"security.protocol": "sasl_plaintext", "sasl.username": "me", "sasl.password": "hunter2"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----"


def options(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> dict[str, str]:
    monkeypatch.setenv(VARIABLE, json.dumps(settings))
    return kafka_options("host:9092")


def test_without_settings_it_has_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"kafka.bootstrap.servers": "host:9092", "kafka.security.protocol": "PLAINTEXT"}
    assert kafka_options("host:9092") == plain
    assert options(monkeypatch, {"linger.ms": "5", "transaction.timeout.ms": "9"}) == plain


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_password_becomes_a_login_module(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, module: str, name: str
) -> None:
    assert options(monkeypatch, SASL | {name: mechanism, "sasl.password": "a\"b\\c;\n'é"}) == {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": (
            f"org.apache.kafka.common.security.{module} required "
            r"""username="me" password="a\"b\\c;\n'é";"""
        ),
    }


def test_certificates_are_passed_on_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"ca": f"of us\n{CERTIFICATE}\nand\n{CERTIFICATE}\n", "certificate": CERTIFICATE, "key": KEY}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    expected = {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": f"{CERTIFICATE}\n{CERTIFICATE}",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": CERTIFICATE,
        "kafka.ssl.keystore.key": KEY,
        "kafka.ssl.key.password": "hunter2",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    common = {
        "security.protocol": "ssl", "ssl.key.password": "hunter2", "ssl.endpoint.identification.algorithm": "none",
        "enable.ssl.certificate.verification": "true",
    }  # fmt: skip
    assert options(monkeypatch, common | {f"ssl.{name}.location": f"{tmp_path}/{name}" for name in files}) == expected
    assert options(monkeypatch, common | {f"ssl.{name}.pem": text for name, text in files.items()}) == expected


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"ssl.keystore.location": "hunter2"}, "found ssl.keystore.location in the settings of"),
        ({"enable.ssl.certificate.verification": "false"}, "found enable.ssl.certificate.verification in"),
        ({"sasl.oauthbearer.client.secret": "hunter2"}, "found sasl.oauthbearer.client.secret in"),
        (SASL, "found the sasl.mechanism none in .*; expected one of PLAIN, SCRAM"),
        (SASL | {"sasl.mechanism": "GSSAPI"}, "found the sasl.mechanism GSSAPI in"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}, "found no sasl.username and no sasl.password"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nosuch"}, "found ssl.ca.location=/nosuch .*No such file"),
        (
            {"security.protocol": "ssl", "ssl.ca.pem": "hunter2"},
            "found none in ssl.ca.pem .*; expected certificates",
        ),
        ({"security.protocol": "ssl", "ssl.certificate.pem": CERTIFICATE}, "without its key.*; add ssl.key.location"),
        ({"security.protocol": "ssl", "ssl.key.pem": KEY}, "without its certificate.*; add ssl.certificate.location"),
        (
            {
                "security.protocol": "ssl",
                "ssl.key.pem": KEY.replace("PRIVATE", "RSA PRIVATE").replace("MIIB", "hunter2"),
            },
            "expected a private key in PKCS#8, which `openssl pkcs8 -topk8",
        ),
    ],
)
def test_what_a_source_cannot_have_is_named_without_its_value(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], found: str
) -> None:
    with pytest.raises(JobDefinitionError, match=found) as refused:
        options(monkeypatch, settings)
    assert "hunter2" not in str(refused.value)


def test_a_client_that_brokers_do_not_let_in_is_told_what_to_correct() -> None:
    kafka = "[STREAM_FAILED] Query [id = 1] terminated with exception: org.apache.kafka.common.errors."
    failure = RuntimeError(f"{kafka}SaslAuthenticationException: Authentication failed SQLSTATE: XXKST\n=== Plan")
    refusal = kafka_refusal(failure)
    assert isinstance(refusal, SourceError) and refusal.__cause__ is failure
    assert "let a source in: Authentication failed; expected" in str(refusal) and "(sasl.…)" in str(refusal)
    refusal = kafka_refusal(RuntimeError(f"{kafka}SslAuthenticationException: SSL handshake failed"))
    assert "SSL handshake failed; expected" in str(refusal) and "certificates (ssl.…)" in str(refusal)
    assert kafka_refusal(RuntimeError("SaslAuthenticationException is a word")) is None
    assert kafka_refusal(None) is None
