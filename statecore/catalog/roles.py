"""Database roles of supervisor, drivers and Airflow on PostgreSQL, each with the rights that its program needs.

::

                             supervisor   driver                 Airflow
    jobs                     change       change, without code   change
    clusters                 change       nothing                change the desired size
    audit                    add          add                    add
    epochs and other figures all          add, remove            read
    generations, requests,
    savepoints               all          all                    all
    all else                 all          nothing                all

A driver's login that is also a member of ``statecore_job_<job>``, for one job or several, reaches the rows of these
jobs only. Any other driver reaches all.

No role may register a job, or change its store, master, configuration or settings: shells do that as the owner of the
tables. No role may change or remove a line of the audit. ``catalog upgrade`` grants the rights, since only the owner
can, and since an upgrade may add tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, text

from statecore.catalog.schema import VERSION_TABLE
from statecore.catalog.tables import metadata

SUPERVISOR, DRIVER, AIRFLOW = ROLES = ("statecore_supervisor", "statecore_driver", "statecore_airflow")

JOB = "statecore_job_"
"""The beginning of the name of a job's role."""

_FIGURES = ("epochs", "subtasks", "key_groups", "backlogs", "topics")
_OF_RUNS = ("generations", "requests", "savepoints")
_START = ("parallelism", "max_parallelism", "start_from", "start_after_generation", "claims_savepoint", "roll_back")
# A query of Spark's own that goes back after a rescale gets a new checkpoint.
_STARTED = (*_START, "checkpoint", "accept_lost_records")
_CHANGED = (*_STARTED, "artifact", "artifact_sha256", "desired_state", "allow_non_restored_state")
_EVERYBODY, _OWN_JOBS = "statecore_everybody", "statecore_own_jobs"
_ALL = "SELECT, INSERT, UPDATE, DELETE"


def grant_roles(connection: Connection) -> list[str]:
    """Grant the rights to those of ``ROLES`` that exist, and withdraw all others; return these roles."""
    existing = text("SELECT rolname FROM pg_roles WHERE rolname = ANY(:names)")
    roles = sorted(connection.execute(existing, {"names": list(ROLES)}).scalars())
    for role in roles:
        connection.execute(text(f"REVOKE ALL ON {', '.join([*metadata.tables, VERSION_TABLE])} FROM {role}"))
        for right in _rights(role):
            connection.execute(text(f"GRANT {right} TO {role}"))
    for statement in _row_security() if DRIVER in roles else ():
        connection.execute(text(statement))
    return roles


def _rights(role: str) -> Iterator[str]:
    yield f"SELECT ON {VERSION_TABLE}"
    # For the numbers of new rows.
    yield "USAGE ON ALL SEQUENCES IN SCHEMA public"
    yield "SELECT, INSERT ON audit"
    yield f"SELECT, {_update(_STARTED if role == DRIVER else _CHANGED)} ON jobs"
    yield f"{_ALL} ON {', '.join(_OF_RUNS)}"
    if role == DRIVER:
        yield f"SELECT, INSERT, DELETE ON {', '.join(_FIGURES)}"
        return
    others = set(metadata.tables) - {"jobs", "clusters", "audit", *_FIGURES, *_OF_RUNS}
    yield f"{_ALL} ON {', '.join(sorted(others))}"
    yield f"{_ALL if role == SUPERVISOR else 'SELECT'} ON {', '.join(_FIGURES)}"
    yield f"SELECT, {'UPDATE' if role == SUPERVISOR else _update(('desired_workers',))} ON clusters"


def _row_security() -> Iterator[str]:
    """Yield the statements that limit a driver to the rows of its own jobs; everybody else reaches all."""
    # Of the session's user: SET ROLE must not leave the job's role behind.
    own = (
        f"SELECT substr(rolname, {len(JOB) + 1}) FROM pg_roles "  # noqa: S608 - of constants
        f"WHERE starts_with(rolname, '{JOB}') AND pg_has_role(session_user, oid, 'MEMBER')"
    )
    for table in ("jobs", "audit", *_FIGURES, *_OF_RUNS):
        column = "name" if table == "jobs" else "job"
        yield f"DROP POLICY IF EXISTS {_EVERYBODY} ON {table}"
        yield f"DROP POLICY IF EXISTS {_OWN_JOBS} ON {table}"
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield f"CREATE POLICY {_EVERYBODY} ON {table} USING (true)"
        yield (
            f"CREATE POLICY {_OWN_JOBS} ON {table} AS RESTRICTIVE TO {DRIVER} "
            f"USING (NOT EXISTS ({own}) OR {column} IN ({own}))"
        )


def _update(columns: Sequence[str]) -> str:
    return f"UPDATE ({', '.join([*columns, 'updated_ms'])})"
