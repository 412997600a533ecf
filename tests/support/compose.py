"""docker-compose.yaml, as it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.paths import REPO

RAW = (REPO / "docker-compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(RAW)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = "statecore:local"
LISTENERS = ("LISTENERS", "ADVERTISED_LISTENERS")


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (service, command) of everything that runs in our image, health checks included."""
    for name, service in SERVICES.items():
        if service["image"] == OURS:
            yield name, service["command"]
            if "healthcheck" in service:
                yield name, service["healthcheck"]["test"][1:]


def addresses(listeners: str) -> dict[str, tuple[str, int]]:
    """Return host and port of each of a broker's listeners."""
    found = (listener.partition("://")[::2] for listener in listeners.split(","))
    return {name: (address.rpartition(":")[0], int(address.rpartition(":")[2])) for name, address in found}
