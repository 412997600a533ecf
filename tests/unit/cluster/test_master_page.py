"""A master that does not answer may be back soon; a page that is no master's will not become one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from statecore.cluster.master_page import read_master_page
from statecore.errors import ClusterBusyError, ClusterError


@pytest.fixture
def stranger() -> Iterator[str]:
    """URL of a server that is no Spark master."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"hi")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_master_that_restarts_may_be_back_soon() -> None:
    with pytest.raises(ClusterBusyError, match="found no answer from the Spark master's page"):
        read_master_page("http://127.0.0.1:1")


def test_another_page_is_not_a_masters(stranger: str) -> None:
    with pytest.raises(ClusterError, match="found an unknown answer") as error:
        read_master_page(stranger)
    assert not isinstance(error.value, ClusterBusyError)
