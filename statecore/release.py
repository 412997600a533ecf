"""The release of statecore that this process runs, and where another one is refused."""

from __future__ import annotations

import socket
from importlib.metadata import version

from statecore.errors import ConfigurationError

RELEASE = version("statecore")
"""Read once, when the process begins: an upgrade of the files under it does not change what it runs."""


def require_release_of_driver(driver: str) -> None:
    """Refuse to work for a driver of another release, in a worker: both sides of their messages change together.

    Raises:
        ConfigurationError: The driver's release is another one.

    """
    if driver != RELEASE:
        raise ConfigurationError(
            f"found release {RELEASE} of statecore in a worker on {socket.gethostname()}; expected {driver}, that of "
            "the driver; install one release for drivers and workers, and if it was upgraded under a running job, "
            "restart the job"
        )
