"""A PostgreSQL server of the tests' own, in a temporary folder and on a free port."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL

from examples.stack.processes import free_ports
from tests.support.waiting import wait

PASSWORD = "a secret of the tests"
_USER = "tester"
_databases = count()


class PostgresServer:
    """The server; whoever starts it stops it."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to be run by root.
        self._as: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []}
        if os.getuid() != 0:
            self._as = {}
        self._create()

    def start(self) -> None:
        command = [_program("postgres"), "-D", str(self._folder / "data"), "-p", str(self.port)]
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB"]
        for setting in settings:
            command += ["-c", setting]
        log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, **self._as)
        log.close()
        self._wait_ready()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(30)

    def dsn(self, database: str = "postgres", password: str = PASSWORD) -> str:
        return f"host=127.0.0.1 port={self.port} dbname={database} user={_USER} password='{password}'"

    def url(self, database: str) -> str:
        """Return a catalog's URL."""
        place = {"host": "127.0.0.1", "port": self.port, "database": database}
        url = URL.create("postgresql+psycopg", username=_USER, password=PASSWORD, **place)  # type: ignore[arg-type]
        return url.render_as_string(hide_password=False)

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(database), autocommit=True)

    def create_database(self) -> str:
        name = f"test_{next(_databases)}"
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def _create(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if self._as:
            shutil.chown(self._folder, "postgres", "postgres")
            shutil.chown(password, "postgres", "postgres")
        command = [_program("initdb"), "-D", str(self._folder / "data"), "--no-sync", "--encoding=UTF8", "--locale=C"]
        command += [f"--username={_USER}", "--auth=scram-sha-256", f"--pwfile={password}"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, **self._as)
        assert done.returncode == 0, done.stderr

    def _wait_ready(self) -> None:
        assert self._process is not None
        wait(self._is_ready, f"PostgreSQL; see {self._folder / 'log'}")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


class Database:
    """A fresh database on the server."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = server.create_database()
        self.dsn = server.dsn(self.name)
        self.url = server.url(self.name)

    def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement by itself; returns its rows, if it has some."""
        with self.server.connect(self.name) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # Not below pytest's folder, into which another user could not look.
    folder = Path(tempfile.mkdtemp(prefix="statecore-postgres-"))
    server = PostgresServer(folder)
    server.start()
    yield server
    # At once: what it would still write to its files goes with them.
    server.stop(signal.SIGQUIT)
    shutil.rmtree(folder)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop and start."""
    folder = Path(tempfile.mkdtemp(prefix="statecore-postgres-"))
    server = PostgresServer(folder)
    server.start()
    yield server
    server.stop(signal.SIGQUIT)
    shutil.rmtree(folder)


@pytest.fixture
def database(postgres_server: PostgresServer) -> Database:
    return Database(postgres_server)


def _program(name: str) -> str:
    """Return the path of a program of PostgreSQL's server; Debian keeps them off the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(debian[-1]) if debian else None)
    assert found, f"found no {name}; expected PostgreSQL's server programs; install the package postgresql"
    return found
