"""A PostgreSQL server of the tests' own, in a temporary folder and on a free port."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL

from statecore.cluster.ports import free_ports
from tests.support.waiting import wait

PASSWORD = "a secret of the tests"
_USER = "tester"
_databases = count()


class PostgresServer:
    """The server; whoever starts it stops it.

    Args:
        folder: Of its own.
        port: A free one by default.
        standby_of: If given, a running server that this one becomes a standby of.

    """

    def __init__(self, folder: Path, *, port: int | None = None, standby_of: PostgresServer | None = None) -> None:
        self.port = port or free_ports(1)[0]
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to be run by root.
        self._as: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []}
        if os.getuid() != 0:
            self._as = {}
        if self._as:
            shutil.chown(folder, "postgres", "postgres")
        if standby_of is None:
            self._create()
        else:
            self._copy(standby_of)

    def start(self) -> None:
        command = [_program("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB"]
        settings += ["wal_retrieve_retry_interval=200ms"]
        for setting in settings:
            command += ["-c", setting]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, **self._as)
        log.close()
        try:
            self._wait_ready()
        except BaseException:
            self.stop(signal.SIGQUIT)
            raise

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(30)

    def promote(self) -> None:
        """Make a standby the primary."""
        with self.connect() as connection:
            assert connection.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)

    def require_standby(self) -> None:
        """Acknowledge no commit from now on that the standby does not have, and wait until there is one."""
        with self.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            attached = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            wait(lambda: connection.execute(attached).fetchone(), "the standby")

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
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if self._as:
            shutil.chown(password, "postgres", "postgres")
        command = [_program("initdb"), "-D", str(self.folder / "data"), "--no-sync", "--encoding=UTF8", "--locale=C"]
        command += [f"--username={_USER}", "--auth=scram-sha-256", f"--pwfile={password}"]
        self._run(command)

    def _copy(self, primary: PostgresServer) -> None:
        command = [
            _program("pg_basebackup"),
            "-D",
            str(self.folder / "data"),
            "-d",
            primary.dsn(),
            "--write-recovery-conf",
        ]
        self._run([*command, "--checkpoint=fast", "--no-sync"])

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, **self._as)
        assert done.returncode == 0, done.stderr

    def _wait_ready(self) -> None:
        assert self._process is not None
        wait(self._is_ready, f"PostgreSQL; see {self.folder / 'log'}")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
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


class Replicated:
    """A primary and its standby: what one has acknowledged, the other has. Both change places when one fails.

    Attributes:
        primary: The server that takes writes.

    """

    def __init__(self) -> None:
        self.primary = _started()
        self._ports = [self.primary.port]
        self._standby: PostgresServer | None = None
        try:
            self._standby = self._new_standby()
        except BaseException:
            self.close()
            raise
        self._ports.append(self._standby.port)

    def url(self, database: str) -> str:
        """Return a catalog's URL that names both servers, as one for libpq does."""
        hosts = tuple(f"127.0.0.1:{port}" for port in self._ports)
        url = URL.create("postgresql+psycopg", username=_USER, password=PASSWORD, database=database)
        url = url.set(query={"host": hosts, "target_session_attrs": "read-write"})
        return url.render_as_string(hide_password=False)

    def fail_over(self) -> None:
        """Lose the primary as in a power cut, promote its standby, and make it a new one."""
        assert self._standby is not None
        lost, self.primary, self._standby = self.primary, self._standby, None
        lost.stop(signal.SIGQUIT)
        self.primary.promote()
        shutil.rmtree(lost.folder)
        self._standby = self._new_standby(lost.port)

    def close(self) -> None:
        """Stop both."""
        # At once: what they would still write to their files goes with them.
        for server in filter(None, (self._standby, self.primary)):
            server.stop(signal.SIGQUIT)
            shutil.rmtree(server.folder)

    def _new_standby(self, port: int | None = None) -> PostgresServer:
        standby = _started(port=port, standby_of=self.primary)
        self.primary.require_standby()
        return standby


def _started(**arguments: Any) -> PostgresServer:
    # Not below pytest's folder, into which another user could not look.
    folder = Path(tempfile.mkdtemp(prefix="statecore-postgres-"))
    server = PostgresServer(folder, **arguments)
    server.start()
    return server


@contextmanager
def _server() -> Iterator[PostgresServer]:
    server = _started()
    yield server
    server.stop(signal.SIGQUIT)
    shutil.rmtree(server.folder)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with _server() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop and start."""
    with _server() as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Database:
    return Database(postgres_server)


def _program(name: str) -> str:
    """Return the path of a program of PostgreSQL's server; Debian keeps them off the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(debian[-1]) if debian else None)
    assert found, f"found no {name}; expected PostgreSQL's server programs; install the package postgresql"
    return found
