"""Ports for servers: free, distinct, and none without saying why."""

from __future__ import annotations

import socket

import pytest

from statecore.cluster import ports
from statecore.cluster.ports import free_ports
from statecore.errors import ClusterError


def test_ports_are_distinct_and_free(monkeypatch: pytest.MonkeyPatch) -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    taken, other = found[:2]
    monkeypatch.setattr(ports, "_LISTENING_PORTS", [taken, other])
    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1) == [other]
        with pytest.raises(ClusterError, match="found 1 free ports"):
            free_ports(2)


def test_an_address_of_another_machine_is_named_at_once() -> None:
    # RFC 5737: an address for documentation, which no machine has.
    with pytest.raises(OSError, match="assign requested address"):
        free_ports(1, "192.0.2.1")
