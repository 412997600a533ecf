"""How clients of Kafka reach its brokers.

Security settings may be secret. They are in a file that only the driver's user should be able to read, which the
environment names; they are in no log, command, manifest or page.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from statecore.errors import JobDefinitionError

VARIABLE = "STATECORE_KAFKA_CLIENT"
# What the promise of the sink rests on.
_OURS = {
    "bootstrap.servers", "transactional.id", "enable.idempotence", "isolation.level", "group.id", "partitioner",
    "enable.partition.eof", "enable.auto.commit", "auto.offset.reset",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client.

    Attributes:
        servers: ``host:port`` of brokers, with commas between.
        more: Others, of the library librdkafka, such as ``security.protocol``.

    """

    servers: str
    more: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, servers: str) -> ClientSettings:
        """Return the settings for brokers, with those of the file that ``STATECORE_KAFKA_CLIENT`` names, if any.

        The file has a line ``name=value`` for each; empty lines and those that begin with ``#`` mean nothing.

        Raises:
            JobDefinitionError: The file cannot be read, a line is none, or sets what the sink sets itself.

        """
        path = os.environ.get(VARIABLE)
        return cls(servers, {} if not path else _parsed(Path(path)))

    def client(self, **more: str | int | bool) -> dict[str, str | int | float | bool]:
        """Return what a client is made with; ``_`` in the name of an argument stands for ``.``."""
        own: dict[str, str | int | float | bool] = {name.replace("_", "."): value for name, value in more.items()}
        return {**own, **self.more, "bootstrap.servers": self.servers}


def _parsed(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeError) as error:
        raise JobDefinitionError(
            f"found {error} for the file that {VARIABLE} names; expected lines 'name=value'; correct the variable, or "
            "grant the driver's user access"
        ) from error
    settings = dict[str, str]()
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, equals, value = map(str.strip, line.partition("="))
        # The line may hold a secret: only its name is told.
        if not equals or not name:
            raise JobDefinitionError(
                f"found no 'name=value' in line {number} of {path}; expected one; correct the line"
            )
        if name in _OURS:
            raise JobDefinitionError(
                f"found {name} in line {number} of {path}; expected it left to the sink, whose promise rests on it; "
                "remove the line"
            )
        settings[name] = value
    return settings
