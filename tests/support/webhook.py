"""A local server that receives webhook messages."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Self


class Webhook:
    """Runs while it is entered.

    Attributes:
        answer: Status that it answers with.
        messages: What was posted, in order.

    """

    def __init__(self) -> None:
        self.answer = 200
        self.messages: list[dict[str, str]] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                webhook.messages.append(json.loads(self.rfile.read(length)))
                self.send_response(webhook.answer)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Address of the server, with a secret in it as in those of chat webhooks."""
        return f"http://127.0.0.1:{self._server.server_port}/hooks/s3cret"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
