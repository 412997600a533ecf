"""Detects and redacts secrets: messages end up on pages, in tickets and in chats."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"
"""Shown instead of a value that is hidden."""

# Spark's redaction rule, plus other common names of secrets; a jar of Spark's connector for Kafka has one in its name.
_NAME = (
    r"secret|passw(?:or)?d|passphrase|token(?!-provider-kafka)|(?:access|api|private|account|keystore)[._-]?key"
    r"|credential"
)
# A password in a URL may hold a slash or an @ that should have been encoded: all up to the last @ may belong to it.
# Everywhere the lengths are bounded, because a text may be a whole log.
# Azure's URLs have a container before the @: abfss://container@account.
_USER = r"(?<!abfs:)(?<!abfss:)(?<!wasb:)(?<!wasbs:)//(?:[^/\s:]{0,200}:\S{0,500}@|[^/\s]{0,200}@)"
_SECRET = re.compile(rf"{_NAME}|ssl[._-]key(?!store|[._-]location)|dsn|{_USER}|PRIVATE KEY-----", re.IGNORECASE)
_IN_URL = re.compile(_USER)
_ASSIGNED = re.compile(
    rf"""((?:{_NAME})[\w.-]{{0,40}}[\\"']{{0,2}}\s?(?:=>?|->|:)\s?)"""
    r"""(?:"(?:\\.|[^"\\])*"|\\"[^"]*"|\\?'[^']*'|\S+)""",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[\w+/=\s\\]*")
SPARK_PATTERN = rf"(?i){_NAME}|PRIVATE KEY-----"
"""The same for ``spark.redaction.regex``: plans, and errors that quote them, show the options of sources."""


def looks_secret(text: str) -> bool:
    """Return whether a name looks like a secret's, or a value holds one, such as a URL with a password."""
    return _SECRET.search(text) is not None


def without_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values that neither look like a secret nor have a secret's name."""
    return {name: value for name, value in values.items() if not (looks_secret(name) or looks_secret(value))}


def redacted(text: str) -> str:
    """Return a text without private keys, user and password of URLs, and values such as in ``password=…``."""
    return _ASSIGNED.sub(r"\1***", _IN_URL.sub("//", _PRIVATE_KEY.sub(r"\1***", text)))
