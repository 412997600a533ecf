"""Other S3 servers than moto: one that lets two writers win, and one that keeps its promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from stack.quick_start import QUICK
from statecore.cluster.ports import free_ports
from tests.support.s3 import SECRET, USER
from tests.support.waiting import wait

_S3MOCK = Path(sys.prefix) / "s3mock"
_VERSITYGW = Path(sys.prefix) / "versitygw"


@contextmanager
def s3mock() -> Iterator[str]:
    """Run Adobe's S3Mock and give its URL."""
    if not (_S3MOCK / ".fetched").exists():
        pytest.skip("found no jar of S3Mock; run `make s3mock`, which needs Maven")
    (jar,) = (_S3MOCK / "server").glob("*.jar")
    # The first port is of HTTPS.
    ports = ("--server.port=0", "--com.adobe.testing.s3mock.httpPort=0")
    java = ("java", *QUICK.split(), "-Xmx256m", "-jar", str(jar), *ports)
    with _started(java, r"Tomcat started on ports .* (\d+) \(http\)") as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def versitygw() -> Iterator[str]:
    """Run versitygw, which keeps objects in files and their metadata in extended attributes, and give its URL."""
    program = next(_VERSITYGW.glob("*/versitygw"), None)
    if program is None:
        pytest.skip("found no versitygw; run `make versitygw`, which needs Go")
    (port,) = free_ports(1)
    credentials = {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": SECRET}
    with tempfile.TemporaryDirectory(prefix="versitygw-") as folder:
        command = (str(program), "--port", f"127.0.0.1:{port}", "posix", folder)
        with _started(command, rf"http://127\.0\.0\.1:({port})", credentials):
            yield f"http://127.0.0.1:{port}"


@contextmanager
def _started(
    command: Sequence[str], ready: str, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Start a program, wait until it prints a line that matches ``ready``, and give the match's group."""
    with tempfile.TemporaryDirectory(prefix="s3-server-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT
            )

        def line() -> re.Match[str] | None:
            assert server.poll() is None, log.read_text()
            return re.search(ready, log.read_text())

        try:
            found = wait(line, f"{command[0]} to start")
            assert found is not None
            yield found[1]
        finally:
            server.terminate()
            server.wait(30)
