"""The network between the job and its storage, and what can be done to it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from random import Random
from urllib.parse import urlsplit

from tests.support.proxy import Fault, Proxy, ProxyHandler, lost_answer, passed_on, refusal

Request = ProxyHandler

THROTTLED = refusal(503, "SlowDown")
ERROR = refusal(500, "InternalError")


@dataclass
class Network:
    """Passes requests on, unless there is weather.

    Attributes:
        url: Its endpoint.
        weather: What happens to every request.
        manifests: How many times a manifest of an epoch was put, with success or not.

    """

    url: str
    weather: Fault = field(default=passed_on)
    manifests: int = 0

    def __call__(self, request: Request) -> None:
        # Whoever has sent the request may be dead by the time that its answer is there.
        try:
            self.weather(request)
        except (OSError, http.client.HTTPException):
            request.close_connection = True

    def clear(self) -> None:
        """Let the sun shine."""
        self.weather = passed_on


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections of killed processes are no error here."""


@contextmanager
def network_to(endpoint: str) -> Iterator[Network]:
    """Run a network on a free port."""

    class Handler(Request):
        upstream = urlsplit(endpoint).netloc

        def forward(self) -> tuple[int, list[tuple[str, str]], bytes]:
            try:
                return super().forward()
            finally:
                if self.command == "PUT" and "/manifests/" in self.path:
                    network.manifests += 1

    server = _Server(("127.0.0.1", 0), Handler)
    network = Network(f"http://127.0.0.1:{server.server_port}")
    Handler.proxy = Proxy(network.url, always=network)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield network
    finally:
        server.shutdown()
        server.server_close()


def slow(random: Random, longest_s: float) -> Fault:
    """Every request takes its time."""

    def wait(request: Request) -> None:
        time.sleep(random.uniform(0, longest_s))
        passed_on(request)

    return wait


def sometimes(random: Random, share: float, *faults: Fault) -> Fault:
    """One of some faults happens to a share of the requests."""

    def maybe(request: Request) -> None:
        (random.choice(faults) if random.random() < share else passed_on)(request)

    return maybe


def _lost_request(request: Request) -> None:
    request.drop()


def _torn_answer(request: Request) -> None:
    status, headers, body = request.forward()
    if not any(name.lower() == "content-length" for name, _ in headers):
        headers.append(("Content-Length", str(len(body))))
    request.answer(status, headers, body[: len(body) // 2])
    request.drop()


LOST = (_lost_request, lost_answer)
"""Without an answer nobody knows which of the two has happened."""
TORN = _torn_answer


class Trap:
    """Does something when a certain request is made, once.

    Args:
        method: Its HTTP method.
        part: Text in its path.
        action: What to do.
        after: Whether to do it when the request was carried out, and its answer is not given yet.
        hold: If given, the request goes no further until this is set.

    """

    def __init__(
        self,
        method: str,
        part: str,
        action: Callable[[], None],
        *,
        after: bool = False,
        hold: threading.Event | None = None,
    ) -> None:
        self._method, self._part, self._action, self._after, self._hold = method, part, action, after, hold
        self._lock = threading.Lock()
        self._met = False
        self.sprung = threading.Event()

    def __call__(self, request: Request) -> None:
        if not self._is_it(request):
            passed_on(request)
            return
        answer = request.forward() if self._after else None
        self._action()
        self.sprung.set()
        if self._hold is not None:
            self._hold.wait()
        request.answer(*(answer or request.forward()))

    def _is_it(self, request: Request) -> bool:
        with self._lock:
            if self._met or request.command != self._method or self._part not in request.path:
                return False
            self._met = True
            return True


class Dam:
    """Holds up all of certain requests, also when they are sent again, until it is opened.

    Args:
        method: Their HTTP method.
        part: Text in their path.

    Attributes:
        met: Set when the first one is held up.

    """

    def __init__(self, method: str, part: str) -> None:
        self._method, self._part = method, part
        self._opened = threading.Event()
        self.met = threading.Event()

    def __call__(self, request: Request) -> None:
        if request.command == self._method and self._part in request.path:
            self.met.set()
            self._opened.wait()
        passed_on(request)

    def open(self) -> None:
        """Let all pass, also those that nobody waits for any more."""
        self._opened.set()
