"""A real S3 API server for tests: ``moto``, in a process of its own."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import boto3
import pytest
from botocore.loaders import create_loader

from statecore.storage.s3_client import _client_of
from tests.support.paths import REPO

USER, SECRET = "tests", "secret-of-the-tests"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """URL of the server; the environment of this process and of those it starts leads boto3 there, nowhere else."""
    with s3_server() as endpoint, boto3_led_to(endpoint):
        yield endpoint


@contextmanager
def boto3_led_to(endpoint: str) -> Iterator[None]:
    """Lead boto3 to an endpoint, in this process and in those that it starts, with a new client."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
            patch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.setenv(name, os.devnull)
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", USER)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        # boto3 reads the one, other programs the other.
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # Each client of a test reads the descriptions of the API anew otherwise, which takes longer than the test.
        patch.setattr("botocore.session.create_loader", lru_cache(create_loader))
        _client_of.cache_clear()
        yield
    _client_of.cache_clear()


@pytest.fixture
def s3_url(s3_endpoint: str) -> str:
    """URL of an empty store in its own bucket."""
    return new_store(s3_endpoint)


def new_store(endpoint: str) -> str:
    """Make a bucket, and return the URL of a store in it."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    _client(endpoint).create_bucket(Bucket=bucket)
    return f"s3://{bucket}/store"


@lru_cache
def _client(endpoint: str) -> Any:
    return boto3.session.Session().client("s3", endpoint_url=endpoint)


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server on a free port and give its URL."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3"],
        cwd=REPO,
        # Small pages, so that a listing that stops after the first page is caught.
        env={**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": "20"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        port = server.stdout.readline().strip()
        assert port, "the S3 server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        server.stdin.close()
        server.stdout.close()


def one_at_a_time(app: Callable[..., Any]) -> Callable[..., Any]:
    """Let an application handle one request at a time.

    moto looks for the object of a conditional put and stores it in two steps; in S3 it is one. The requests are read
    outside of the lock, so that a client which stops in the middle of its own (tests pause some) holds up nobody.
    """
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        size = -1 if environ.get("wsgi.input_terminated") else int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(size))
        with lock:
            return list(app(environ, start_response))

    return serve


def _serve() -> None:
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    s3, any_service = create_backend_app("s3"), DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        # To find out which service a request is for, moto takes as long as S3 to serve it.
        is_s3 = "/s3/aws4_request" in environ.get("HTTP_AUTHORIZATION", "")
        return (s3 if is_s3 else any_service)(environ, start_response)

    class KeepAlive(MotoRequestHandler):
        """Without it each request has a connection of its own, as in no S3."""

        protocol_version = "HTTP/1.1"

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, one_at_a_time(app), threaded=True, request_handler=KeepAlive)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Ends with the tests in any case: a killed process closes its end of the pipe.
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
