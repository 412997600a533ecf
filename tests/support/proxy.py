"""An HTTP proxy before the S3 server that simulates network faults: lost answers, torn answers, refusals."""

from __future__ import annotations

import http.client
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Fault = Callable[["ProxyHandler"], None]


@dataclass
class Proxy:
    """Faults to inject by method, and the requests seen.

    Attributes:
        url: Its endpoint.
        faults: Per HTTP method what happens to the next requests, one each; then they are forwarded.
        always: What happens to every request that ``faults`` has nothing for; None forwards them.
        seen: Method, path and the header ``Range`` of each request.

    """

    url: str
    faults: defaultdict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    always: Fault | None = None
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)

    def reset(self) -> None:
        """Inject no fault, and forget what was seen."""
        self.faults.clear()
        self.always = None
        self.seen.clear()

    def count(self, method: str) -> int:
        return sum(seen[0] == method for seen in self.seen)


class ProxyHandler(BaseHTTPRequestHandler):
    """One request: forward, answer or drop it. Subclasses set ``upstream``."""

    protocol_version = "HTTP/1.1"
    # An answer is sent in two pieces; without this, the second waits for the acknowledgement of the first.
    disable_nagle_algorithm = True
    proxy: Proxy
    upstream: str

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.proxy.seen.append((self.command, self.path, self.headers.get("Range")))
        faults = self.proxy.faults[self.command]
        fault = faults.popleft() if faults else self.proxy.always
        (fault or passed_on)(self)

    def forward(self) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.upstream)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "expect":
                connection.putheader(name, value)
        connection.endheaders(self.body)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def passed_on(request: ProxyHandler) -> None:
    request.answer(*request.forward())


def lost_answer(request: ProxyHandler) -> None:
    """Execute the request, but lose the answer."""
    request.forward()
    request.drop()


def torn_answer(request: ProxyHandler) -> None:
    """Send half of the body."""
    status, headers, body = request.forward()
    assert len(body) > 1
    request.answer(status, headers, body[: len(body) // 2])
    request.drop()


def refusal(status: int, code: str) -> Fault:
    """Answer with an S3 error without asking the server."""

    def refuse(request: ProxyHandler) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>made up</Message></Error>".encode()
        request.answer(status, [], b"" if request.command == "HEAD" else body)

    return refuse


def heedless(request: ProxyHandler) -> None:
    """Execute a put without its condition."""
    del request.headers["If-None-Match"]
    passed_on(request)


@contextmanager
def proxy_to(endpoint: str) -> Iterator[Proxy]:
    """Run a proxy on a free port."""
    handler = type("Handler", (ProxyHandler,), {"upstream": urlsplit(endpoint).netloc})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    proxy = handler.proxy = Proxy(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
