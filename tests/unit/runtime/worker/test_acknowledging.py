"""A worker acknowledges its task at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from statecore.runtime.worker.acknowledging import acknowledge_now

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has the option")


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"])
def connection(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """Return the worker's end of a connection whose acknowledgements Linux delays."""
    family, host = request.param
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with listening, socket.create_connection(listening.getsockname()[:2]) as worker:
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        yield worker


def test_the_sockets_of_the_process_acknowledge_at_once(connection: socket.socket) -> None:
    assert not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    acknowledge_now()
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_the_socket_stays_open(connection: socket.socket) -> None:
    before = connection.getsockname()
    acknowledge_now()
    assert connection.getsockname() == before


def test_other_sockets_are_left_alone() -> None:
    # A Unix socket and a UDP socket know no such option.
    with socket.socket(socket.AF_UNIX) as unix, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        acknowledge_now()
        assert unix.fileno() >= 0
        assert datagrams.fileno() >= 0
