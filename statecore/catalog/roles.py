"""Database roles of supervisor, drivers and Airflow on PostgreSQL, each with the rights that its program needs.

::

                             supervisor       driver                 Airflow
    jobs                     change           change, without code   change
    job_files                add              read                   read
    audit                    add              add, cannot read       add
    generations              all              its own columns        add, end
    requests                 all              answer                 send, end
    savepoints               all              add, remove            add, remove
    epochs and other figures all              add, remove            read
    clusters                 change sizes     nothing                change the desired size
    leases                   take, release    nothing                take, release
    supervisors              all              nothing                read
    all else                 all              nothing                all

A driver's login that is also a member of ``statecore_job_<job>``, for one job or several, reaches the rows of these
jobs only. Any other driver reaches all.

No role may register a job, or change its store, master, configuration or settings: shells do that as the owner of the
tables. A lease restores them, so a role may insert a lease only with the job as it is. ``job_files`` has what may run:
a role that reads data can name no code there. No role may change or remove a line of it, or of the audit, or write who
wrote it. The supervisor ends processes and writes logs by what generations say, so drivers and Airflow name neither
there.

``catalog upgrade`` grants the rights, since only the owner can, and since an upgrade may add tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, text

from statecore.catalog.schema import VERSION_TABLE
from statecore.catalog.tables import metadata

SUPERVISOR, DRIVER, AIRFLOW = ROLES = ("statecore_supervisor", "statecore_driver", "statecore_airflow")

JOB = "statecore_job_"
"""The beginning of the name of a job's role."""

_FIGURES = ("epochs", "subtasks", "key_groups", "backlogs", "rollups", "arrivals", "topics", "dataflows")
_OF_RUNS = ("generations", "requests", "savepoints")
_OF_JOBS = ("audit", "job_files", *_FIGURES, *_OF_RUNS)
_START = ("parallelism", "max_parallelism", "start_from", "start_after_generation", "claims_savepoint", "roll_back")
# A query of Spark's own that goes back after a rescale gets a new checkpoint.
_STARTED = (*_START, "checkpoint", "accept_lost_records", "updated_ms")
_CHANGED = (*_STARTED, "artifact", "artifact_sha256", "desired_state", "allow_non_restored_state")
_AUDITED = ("job", "at_ms", "on_behalf_of", "change")
_PERMITTED = ("job", "artifact", "artifact_sha256", "at_ms", "on_behalf_of")
_CLAIMED = ("job", "generation", "state", "parallelism", "started_ms", "heartbeat_ms")
_ENDED = ("state", "error", "ended_ms")
_ANSWERED = ("state", "result", "error", "updated_ms")
_SIZES = ("desired_workers", "ready_workers", "min_workers", "max_workers", "message", "host", "updated_ms")
_NUMBERED = {
    SUPERVISOR: ("audit", "job_files", "requests", "decisions"),
    DRIVER: ("audit",),
    AIRFLOW: ("audit", "requests", "decisions"),
}
# What only a registration changes, and code.
_AS_REGISTERED = ("artifact", "artifact_sha256", "store", "master_url", "cluster")
_AS_REGISTERED_JSON = ("conf", "settings")
_EVERYBODY, _OWN_JOBS = "statecore_everybody", "statecore_own_jobs"
_TO_DRIVERS, _TRUE_COPIES = "statecore_to_drivers", "statecore_true_copies"
_ALL = "SELECT, INSERT, UPDATE, DELETE"


def grant_roles(connection: Connection) -> list[str]:
    """Grant the rights to those of ``ROLES`` that exist, and withdraw all others; return these roles."""
    existing = text("SELECT rolname FROM pg_roles WHERE rolname = ANY(:names)")
    roles = sorted(connection.execute(existing, {"names": list(ROLES)}).scalars())
    for role in roles:
        connection.execute(text(f"REVOKE ALL ON {', '.join([*metadata.tables, VERSION_TABLE])} FROM {role}"))
        connection.execute(text(f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}"))
        for right in _rights(role):
            connection.execute(text(f"GRANT {right} TO {role}"))
    for statement in _row_security(roles):
        connection.execute(text(statement))
    return roles


def _rights(role: str) -> Iterator[str]:
    yield f"SELECT ON {', '.join((VERSION_TABLE, 'jobs', 'job_files', *_OF_RUNS, *_FIGURES))}"
    yield f"{_only('INSERT', _AUDITED)} ON audit"
    yield f"{_only('UPDATE', _STARTED if role == DRIVER else _CHANGED)} ON jobs"
    yield "INSERT, DELETE ON savepoints"
    # For the numbers of new rows.
    yield f"USAGE ON SEQUENCE {', '.join(f'{table}_id_seq' for table in _NUMBERED[role])}"
    yield from {SUPERVISOR: _of_supervisor, DRIVER: _of_driver, AIRFLOW: _of_airflow}[role]()


def _of_supervisor() -> Iterator[str]:
    yield f"{_only('INSERT', _PERMITTED)} ON job_files"
    yield f"{_ALL} ON {', '.join((*_OF_RUNS, *_FIGURES, 'supervisors'))}"
    yield f"SELECT, {_only('UPDATE', _SIZES)} ON clusters"
    yield from _of_changes()


def _of_driver() -> Iterator[str]:
    beats = ("heartbeat_ms", "parallelism", "lineage", "epoch")
    # A catalog from a backup learns the newest generation from the job's store.
    yield f"{_only('INSERT', (*_CLAIMED, 'ended_ms', 'lineage', 'epoch'))} ON generations"
    yield f"{_only('UPDATE', (*_ENDED, *beats, 'version', 'trigger_ms', 'running_ms', 'settled_ms'))} ON generations"
    yield f"{_only('UPDATE', _ANSWERED)} ON requests"
    yield f"INSERT, DELETE ON {', '.join(_FIGURES)}"


def _of_airflow() -> Iterator[str]:
    # A stop without a driver claims a generation, so that none starts meanwhile.
    yield f"{_only('INSERT', (*_CLAIMED, 'log_path'))}, {_only('UPDATE', _ENDED)} ON generations"
    yield f"INSERT, {_only('UPDATE', _ANSWERED)} ON requests"
    yield f"SELECT, {_only('UPDATE', ('desired_workers', 'updated_ms'))} ON clusters"
    yield "SELECT ON supervisors"
    yield from _of_changes()


def _of_changes() -> Iterator[str]:
    """Yield the rights of programs that change jobs."""
    yield "SELECT ON audit"
    yield f"SELECT, INSERT, DELETE, {_only('UPDATE', ('heartbeat_ms', 'expires_ms'))} ON leases"
    yield f"{_ALL} ON taken_back, rescale_runs, policies, decisions, told_alerts"


def _row_security(roles: Sequence[str]) -> Iterator[str]:
    """Yield the statements that limit the rows which roles reach; everybody else reaches all."""
    for table in ("jobs", *_OF_JOBS, "leases"):
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield from _policy(_EVERYBODY, table, "USING (true)")
    if DRIVER in roles:
        # Of the session's user: SET ROLE must not leave the job's role behind.
        own = (
            f"SELECT substr(rolname, {len(JOB) + 1}) FROM pg_roles "  # noqa: S608 - of constants
            f"WHERE starts_with(rolname, '{JOB}') AND pg_has_role(session_user, oid, 'MEMBER')"
        )
        for table in ("jobs", *_OF_JOBS):
            column = "name" if table == "jobs" else "job"
            limits = f"USING (NOT EXISTS ({own}) OR {column} IN ({own}))"
            yield from _policy(_OWN_JOBS, table, f"AS RESTRICTIVE TO {DRIVER} {limits}")
        # The others are the supervisor's, and an answer to one chooses a job file.
        yield from _policy(_TO_DRIVERS, "requests", f"AS RESTRICTIVE TO {DRIVER} USING (kind <> 'check_job_file')")
    if changing := [role for role in roles if role != DRIVER]:
        same = [f"leases.before->'job'->>'{field}' IS NOT DISTINCT FROM jobs.{field}" for field in _AS_REGISTERED]
        same += [f"(leases.before->'job'->'{field}')::jsonb = jobs.{field}::jsonb" for field in _AS_REGISTERED_JSON]
        is_true = f"EXISTS (SELECT 1 FROM jobs WHERE jobs.name = leases.job AND {' AND '.join(same)})"  # noqa: S608 - of constants
        insert = f"AS RESTRICTIVE FOR INSERT TO {', '.join(changing)} WITH CHECK ({is_true})"
        yield from _policy(_TRUE_COPIES, "leases", insert)


def _policy(name: str, table: str, rule: str) -> Iterator[str]:
    yield f"DROP POLICY IF EXISTS {name} ON {table}"
    yield f"CREATE POLICY {name} ON {table} {rule}"


def _only(privilege: str, columns: Sequence[str]) -> str:
    return f"{privilege} ({', '.join(columns)})"
