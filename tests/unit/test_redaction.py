"""Texts that people see hold no secrets, and lose nothing else."""

from __future__ import annotations

import re

import pytest

from statecore.redaction import SPARK_PATTERN, looks_secret, redacted


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@host/db",
        "postgresql://me:hun/ter2@host/db",
        "postgresql://me:hun@ter2/x@host/db",
        "redis://:hunter2/x@host",
        "//hunter2@host",
        "password=hunter2",
        "PASSWORD = hunter2,x",
        "password: hunter2",
        "host=h password='hunter2 and more' dbname=d",
        '{"db_password": "hunter2", "host": "h"}',
        r"{\"password\": \"hunter2\"}",
        "Map(fs.s3a.secret.key -> hunter2)",
        "{'api_token': 'hunter2'}",
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "https://h/x?access_token=hunter2&b=1",
        "-Djavax.net.ssl.trustStorePassword=hunter2",
        r"""required username="me" password="hunter2 \"hunter2\" \\";""",
        "[kafka.ssl.keystore.key=hunter2, subscribe=t]",
        "[ssl.key.pem=-----BEGIN PRIVATE KEY-----\nhunter2\n+/A==\n-----END PRIVATE KEY-----]",
        r"-----BEGIN ENCRYPTED PRIVATE KEY-----\nhunter2\n-----END ENCRYPTED PRIVATE KEY-----",
    ],
)
def test_a_secret_is_left_out(text: str) -> None:
    shown = redacted(f"found {text} in it; expected none")
    assert "hunter2" not in shown and "ter2" not in shown
    assert shown.startswith("found ") and shown.endswith(" in it; expected none")


@pytest.mark.parametrize(
    "text",
    [
        "found no file s3://bucket/a@b/manifest.json; expected it",
        "see http://localhost:8080/job?name=orders and write to me@example.org",
        "password authentication failed for user 'me'",
        "grant these credentials s3:GetObject and s3:PutObject",
        "postgresql+psycopg://host:5432/catalog",
        "abfss://container@account.dfs.core.windows.net/checkpoint",
    ],
)
def test_all_else_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_long_line_takes_no_time() -> None:
    for unit in ("//a:", "token", "a.", "//", "password=x ", 'password="', "-----BEGIN PRIVATE KEY-----"):
        redacted(unit * (256 * 1024 // len(unit)))


def test_spark_is_told_of_options_that_are_secret() -> None:
    """Its rule looks at the name and at the value of each."""
    for text in (
        "kafka.ssl.keystore.key",
        "fs.s3a.secret.key",
        'required password="x";',
        "-----BEGIN PRIVATE KEY-----",
    ):
        assert re.search(SPARK_PATTERN, text)
    for text in ("kafka.bootstrap.servers", "spark.app.name", "-----BEGIN CERTIFICATE-----", "localhost"):
        assert not re.search(SPARK_PATTERN, text)


def test_a_private_key_is_a_secret_by_its_setting_and_by_its_text() -> None:
    for text in (
        "kafka.ssl.key.pem",
        "ssl_key",
        "-----BEGIN PRIVATE KEY-----\nMIIE",
        "-----BEGIN RSA PRIVATE KEY-----",
    ):
        assert looks_secret(text)
    for text in ("-----BEGIN CERTIFICATE-----", "spark.ssl.keyStoreType", "ssl.keystore.location", "ssl.key.location"):
        assert not looks_secret(text)


def test_a_jar_whose_name_has_token_in_it_is_no_secret() -> None:
    """A catalog that is rebuilt would lack ``spark.jars``, and the job its source."""
    jars = "jars/spark-sql-kafka-0-10_2.13-4.2.0.jar,jars/spark-token-provider-kafka-0-10_2.13-4.2.0.jar"
    assert not looks_secret(jars)
    assert looks_secret(f"{jars},token=hunter2")
