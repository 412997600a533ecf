"""A PostgreSQL connection string that keeps its password out of logs and pickles."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from statecore.errors import JobDefinitionError

_SECRET = ("password", "sslpassword", "oauth_client_secret")
_CONNECT_TIMEOUT_S = 10
# By default libpq waits many minutes for a server that vanished. The last one is in milliseconds.
_PATIENCE: dict[str, Any] = {"keepalives_idle": 10, "keepalives_interval": 10, "tcp_user_timeout": 30_000}


@dataclass(frozen=True, slots=True)
class Dsn:
    """A libpq connection string; libpq fills missing parts from ``PG*`` variables and ``~/.pgpass``.

    Its ``str``, ``repr`` and pickle omit the password.
    """

    _conninfo: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Dsn:
        """Parse a connection string: ``host=… dbname=…``, ``postgresql://user@host/database``, or an empty one.

        Raises:
            JobDefinitionError: libpq cannot parse it, or would misinterpret it.

        """
        try:
            parts = conninfo_to_dict(text)
        except psycopg.ProgrammingError:
            # libpq's message quotes the string, password included.
            raise _refusal("that libpq cannot parse") from None
        if not re.fullmatch(r"[\d,]*", str(parts.get("port", ""))):
            raise _refusal("whose port is not a number")
        if text.startswith("postgres") and "@" in f"{parts.get('host', '')}{parts.get('dbname', '')}":
            raise _refusal("with a second '@'")
        return cls(make_conninfo("", **parts))

    def connect(self) -> psycopg.Connection:
        """Open a connection.

        Raises:
            psycopg.OperationalError: The server cannot be reached or refuses the connection.

        """
        given = conninfo_to_dict(self._conninfo)
        timeout = given.get("connect_timeout") or _default("connect_timeout") or _CONNECT_TIMEOUT_S
        patience = {name: value for name, value in _PATIENCE.items() if name not in given}
        # Overrides PGCLIENTENCODING, because rows are Unicode.
        return psycopg.connect(self._conninfo, connect_timeout=timeout, client_encoding="utf8", **patience)

    def __str__(self) -> str:
        """Return database, host, port and user, for messages."""
        given = conninfo_to_dict(self._conninfo)
        hostaddr, host, port, user, database = (
            given.get(name) or _default(name) or "" for name in ("hostaddr", "host", "port", "user", "dbname")
        )
        place = host or hostaddr or "the local socket"
        return f"database {database or user!r} at {place}, port {port}, as user {user!r}"

    def __getstate__(self) -> str:
        parts = conninfo_to_dict(self._conninfo)
        return make_conninfo("", **{name: value for name, value in parts.items() if name not in _SECRET})

    def __setstate__(self, state: str) -> None:
        object.__setattr__(self, "_conninfo", state)


def _default(name: str) -> str | None:
    """Return libpq's default for a part: from the environment, or built in."""
    value = next(option.val for option in pq.Conninfo.get_defaults() if option.keyword == name.encode())
    return None if value is None else value.decode()


def _refusal(problem: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"found a dsn {problem}; expected 'host=… dbname=… user=…' or 'postgresql://user@host/database' in libpq's "
        "syntax; correct it: percent-encode special characters of the password (@ is %40), or move the password to "
        "~/.pgpass or PGPASSWORD"
    )
