"""Settings of Kafka clients: from a file, from the environment, from an Airflow connection, and told nobody."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from statecore.errors import JobDefinitionError
from statecore.topics.client_settings import VARIABLE, ClientSettings

SETTINGS = {"security.protocol": "SASL_SSL", "sasl.password": "hunter2 = & %"}
CONNECTION = {"conn_type": "kafka", "extra": {"bootstrap.servers": "other:9092", "group.id": "x", **SETTINGS}}
FORMS = {
    "lines": "# of the tests\n\nsecurity.protocol = SASL_SSL\nsasl.password=hunter2 = & %\n",
    "json": json.dumps(SETTINGS),
    "connection": json.dumps(CONNECTION),
    "connection, its extra as text": json.dumps(CONNECTION | {"extra": json.dumps(CONNECTION["extra"])}),
    "uri": "kafka://?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in SETTINGS.items()),
    "uri, its extra as json": f"kafka:///?__extra__={quote(json.dumps(CONNECTION['extra']), safe='')}",
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_settings_is_read_from_a_file(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kafka"
    file.write_text(FORMS[form])
    monkeypatch.setenv(VARIABLE, str(file))
    settings = ClientSettings.of("host:9092")
    assert settings.more == SETTINGS
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "lines"])
def test_json_and_connections_are_read_from_the_environment(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, FORMS[form])
    assert ClientSettings.of("host:9092").more == SETTINGS


def test_a_client_gets_the_settings_over_its_own_and_the_brokers_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ClientSettings.of("host:9092").client(log_level=0) == {"bootstrap.servers": "host:9092", "log.level": 0}
    monkeypatch.setenv(VARIABLE, json.dumps({"linger.ms": 20, "socket.keepalive.enable": True}))
    assert ClientSettings.of("host:9092").client(linger_ms=5, log_level=0) == {
        "bootstrap.servers": "host:9092", "linger.ms": "20", "log.level": 0, "socket.keepalive.enable": "true",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("hunter2", "found no 'name=value' in line 1 of"),
        ("group.id=hunter2", "found group.id in line 1 of .*; expected the job to set it"),
        # By its other name.
        ("metadata.broker.list=hunter2", "found metadata.broker.list in line 1 of .*; expected the job to set it"),
        ('{"group.id": "hunter2"}', "found group.id in"),
        ('{"sasl.password": "hunter2"', "found no JSON object of settings in"),
        ('{"extra": "hunter2"}', "found no JSON object of settings in"),
        ('{"extra": ["hunter2"]}', "found no JSON object of settings in"),
        ('{"sasl.password": ["hunter2"]}', "found a value of the type list for sasl.password in"),
        ("kafka://?__extra__=hunter2", "found no JSON object of settings in"),
    ],
)
def test_what_is_none_is_refused_without_its_value(
    given: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kafka"
    file.write_text(given)
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(JobDefinitionError, match=found) as refused:
        ClientSettings.of("host:9092")
    error: BaseException | None = refused.value
    assert "hunter2" not in str(error)
    assert error is not None and error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/nosuch")
    with pytest.raises(JobDefinitionError, match=r"found /.*/nosuch in STATECORE_KAFKA_CLIENT: No such file .*; "):
        ClientSettings.of("host:9092")


@pytest.mark.parametrize("value", ["sasl.password=hunter2", "sasl.password=hunter2\n" * 400, "hunter2\0="])
def test_a_variable_that_holds_lines_instead_of_a_path_is_told_without_them(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {VARIABLE: value})
    with pytest.raises(JobDefinitionError, match="found a value that is no path in STATECORE_KAFKA_CLIENT") as refused:
        ClientSettings.of("host:9092")
    assert "hunter2" not in str(refused.value)
