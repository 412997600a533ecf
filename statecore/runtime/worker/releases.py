"""Refuses to work for a driver of another release."""

from __future__ import annotations

import socket

from statecore.errors import ConfigurationError
from statecore.release import RELEASE


def require_release_of_driver(driver: str) -> None:
    """Check that this worker has the driver's release: both sides of their messages change together.

    Raises:
        ConfigurationError: The driver's release is another one.

    """
    if driver != RELEASE:
        raise ConfigurationError(
            f"found release {RELEASE} of statecore in a worker on {socket.gethostname()}; expected {driver}, that of "
            "the driver; install one release for drivers and workers, and if it was upgraded under a running job, "
            "restart the job"
        )
