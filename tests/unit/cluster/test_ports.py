"""Ports for servers: free, distinct, and none without saying why."""

from __future__ import annotations

import socket

import pytest

from statecore.cluster.ports import free_ports


def test_ports_are_distinct_and_can_be_bound() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            assert port not in free_ports(1)


def test_an_address_of_another_machine_is_named_at_once() -> None:
    # RFC 5737: an address for documentation, which no machine has.
    with pytest.raises(OSError, match="assign requested address"):
        free_ports(1, "192.0.2.1")
