"""How clients reach Kafka brokers: the settings that the variable ``STATECORE_KAFKA_CLIENT`` gives.

::

    /etc/statecore/kafka.properties                 a file: lines name=value, or one of the next three
    {"security.protocol": "SASL_SSL", …}            the settings as JSON
    {"conn_type": "kafka", "extra": {…}}            an Airflow connection as JSON, with the settings in its extra
    kafka://?security.protocol=SASL_SSL&…           the same as a URI

The names are those of librdkafka. Security settings may be secret: they are in no log, command, manifest or page.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from statecore.errors import JobDefinitionError

VARIABLE = "STATECORE_KAFKA_CLIENT"
# The job names the brokers; the sink's guarantees depend on the others.
_OURS = {
    "bootstrap.servers", "metadata.broker.list", "transactional.id", "enable.idempotence", "isolation.level",
    "group.id", "partitioner", "enable.partition.eof", "enable.auto.commit", "auto.offset.reset",
}  # fmt: skip
_URI = re.compile(r"[a-z][\w+.-]*://", re.IGNORECASE)
_EXPECTED = "lines 'name=value', a JSON object, or an Airflow connection"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client.

    Attributes:
        servers: ``host:port`` of brokers, with commas between.
        more: Other settings of librdkafka, such as ``security.protocol``.

    """

    servers: str
    more: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, servers: str) -> ClientSettings:
        """Return the settings for brokers, with those that ``STATECORE_KAFKA_CLIENT`` gives, if any.

        In lines, empty ones and those that begin with ``#`` mean nothing. Of an Airflow connection, the brokers and
        what the sink sets itself are left out.

        Raises:
            JobDefinitionError: The settings cannot be read, or set what the sink sets itself.

        """
        given = os.environ.get(VARIABLE, "").strip()
        return cls(servers, _given(given) if given else {})

    def client(self, **more: str | int | bool) -> dict[str, str | int | float | bool]:
        """Return the configuration of a client; ``_`` in the name of an argument stands for ``.``."""
        own: dict[str, str | int | float | bool] = {name.replace("_", "."): value for name, value in more.items()}
        return {**own, **self.more, "bootstrap.servers": self.servers}


def _given(value: str) -> dict[str, str]:
    if _is_connection(value):
        return _parsed(value, VARIABLE)
    try:
        text = Path(value).read_text().strip()
    except (OSError, UnicodeError, ValueError) as error:
        # The value may be the settings themselves, so it is shown only if it looks like a path.
        shown = value if re.fullmatch(r"[\w ./~-]+", value) else "a value that is no path"
        why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise JobDefinitionError(
            f"found {shown} in {VARIABLE}: {why}; expected the path of a file with {_EXPECTED}; correct the variable, "
            "or grant the driver's user access"
        ) from None
    return _parsed(text, value)


def _is_connection(text: str) -> bool:
    return text.startswith("{") or _URI.match(text) is not None


def _parsed(text: str, place: str) -> dict[str, str]:
    """Return the settings in a text, which may hold secrets: an error shows only their names."""
    if not _is_connection(text):
        return _lines(text, place)
    try:
        document = _query(text) if _URI.match(text) else json.loads(text)
        is_connection = "conn_type" in document or "extra" in document or _URI.match(text) is not None
        extra = document.get("extra") or {} if is_connection else document
        settings = dict(json.loads(extra) if isinstance(extra, str) else extra)
    except (ValueError, TypeError, AttributeError):
        # Not even the cause: a JSON error has the document.
        raise JobDefinitionError(
            f"found no JSON object of settings in {place}; expected {_EXPECTED}, which has the settings in its extra; "
            "correct it"
        ) from None
    texts = {name: _text(value, name, place) for name, value in settings.items()}
    if is_connection:
        return {name: value for name, value in texts.items() if name not in _OURS}
    for name in texts:
        _refuse_ours(name, place)
    return texts


def _query(uri: str) -> Mapping[str, Any]:
    """Return the extra of a connection as Airflow writes it into a URI: as its query, or as JSON in ``__extra__``."""
    query = dict(parse_qsl(urlsplit(uri).query, keep_blank_values=True))
    return {"extra": query.get("__extra__", query)}


def _text(value: object, name: str, place: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise JobDefinitionError(
        f"found a value of the type {type(value).__name__} for {name} in {place}; expected a text, a number, true or "
        "false; correct it"
    )


def _lines(text: str, place: str) -> dict[str, str]:
    settings = dict[str, str]()
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        name, equals, value = map(str.strip, line.partition("="))
        if not equals or not name:
            raise JobDefinitionError(
                f"found no 'name=value' in line {number} of {place}; expected one; correct the line"
            )
        _refuse_ours(name, f"line {number} of {place}")
        settings[name] = value
    return settings


def _refuse_ours(name: str, place: str) -> None:
    if name in _OURS:
        raise JobDefinitionError(
            f"found {name} in {place}; expected the job to set it, because its guarantees depend on it; remove it"
        )
