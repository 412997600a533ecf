"""The SQL of the database's own name for who asks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler


class SessionUser(ColumnElement[str]):
    """The login of the database's session, which ``SET ROLE`` does not change; SQLite has no logins."""

    inherit_cache = True


@compiles(SessionUser)
def _session_user(_element: SessionUser, compiler: SQLCompiler, **_: Any) -> str:
    return "SESSION_USER" if compiler.dialect.name == "postgresql" else "NULL"
