"""The audit: who changed which fields of a job, and when. A change and its line are one transaction.

It is a record for people. No program reads it as permission.
"""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any

from sqlalchemy import Connection, insert

from statecore.catalog import tables
from statecore.catalog.records import JobRecord

audit = tables.audit

_FIELDS = (
    "artifact",
    "artifact_sha256",
    "store",
    "master_url",
    "cluster",
    "desired_state",
    "parallelism",
    "max_parallelism",
    "start_from",
    "roll_back",
    "allow_non_restored_state",
    "accept_lost_records",
    "checkpoint",
)
# Their values may be secrets.
_NAMED = ("conf", "settings")


def this_user() -> str:
    """Return the user of this process and the host, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user without a name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def record_change(connection: Connection, job: str, change: dict[str, Any], on_behalf_of: str, at_ms: int) -> None:
    """Write a line of the audit; the database adds the login that writes it."""
    values = {"job": job, "at_ms": at_ms, "on_behalf_of": on_behalf_of, "change": change}
    # Inline: to return the line's number, PostgreSQL would ask for the right to read it.
    connection.execute(insert(audit).values(**values).inline())


def difference(before: JobRecord | None, after: JobRecord) -> dict[str, Any]:
    """Return the changed fields as ``{field: [before, after]}``; of fields that may hold secrets, only the names."""
    pairs = {field: [getattr(before, field, None), getattr(after, field)] for field in _FIELDS}
    changed: dict[str, Any] = {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}
    for field in _NAMED:
        old, new = getattr(before, field, {}), getattr(after, field)
        names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        if names:
            changed[field] = names
    return changed
