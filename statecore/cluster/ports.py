"""Ports for servers that this machine starts."""

from __future__ import annotations

import errno
import random
import socket

from statecore.errors import ClusterError

# Below the ports that Linux and macOS use for outgoing connections.
_LISTENING_PORTS = range(20_000, 32_000)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return distinct ports that are free now.

    The system gives none of them to an outgoing connection, so they are still free when a slow program binds them.

    Raises:
        ClusterError: Fewer are free.
        OSError: The host is not an address of this machine.

    """
    free: list[int] = []
    for port in random.sample(_LISTENING_PORTS, len(_LISTENING_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            free.append(port)
        if len(free) == count:
            return free
    raise ClusterError(f"found {len(free)} free ports from {_LISTENING_PORTS}; expected {count}; end their users")
