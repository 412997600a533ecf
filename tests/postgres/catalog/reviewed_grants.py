"""The grants that a person has judged, each with why it brings no code and reaches no other job's rows, log or state.

Beside an unknown grant, write what a login could do with it at worst; if that is code, or another job's, withdraw it.
Row security limits the drivers of one job everywhere below.
"""

from __future__ import annotations

from statecore.catalog.roles import AIRFLOW, DRIVER, SUPERVISOR

_STARTED = (
    "accept_lost_records checkpoint claims_savepoint max_parallelism parallelism roll_back start_after_generation "
    "start_from updated_ms"
)
_CHANGED = (
    "accept_lost_records allow_non_restored_state artifact artifact_sha256 checkpoint claims_savepoint desired_state "
    "max_parallelism parallelism roll_back start_after_generation start_from updated_ms"
)
_AUDITED = "INSERT(at_ms change job on_behalf_of)"
_ALL = "DELETE INSERT SELECT UPDATE"
_ANSWERED = "UPDATE(error result state updated_ms)"

_ALL_ROLES = {
    # The revision of the tables.
    "statecore_alembic_version": "SELECT",
    # Numbers of new rows: gaps at worst.
    "audit_id_seq": "USAGE",
}
_CHANGES = {
    # Who may change every job sees who has.
    "audit": f"{_AUDITED} SELECT",
    "decisions_id_seq": "USAGE",
    "requests_id_seq": "USAGE",
    # Among the job files of the job only: whoever runs one asks ``job_files``.
    "jobs": f"SELECT UPDATE({_CHANGED})",
    # With the job as it is, by row security, and not changed afterwards: the owner restores it.
    "leases": "DELETE INSERT SELECT UPDATE(expires_ms heartbeat_ms)",
    # Sizes, and savepoints of the job to start from: data.
    "decisions": _ALL,
    "policies": _ALL,
    "rescale_runs": _ALL,
    "taken_back": _ALL,
    "told_alerts": _ALL,
}

REVIEWED: dict[str, dict[str, str]] = {
    # Temporary tables hide none: every statement of ours runs in a session of ours.
    "public": {"database": "CONNECT TEMPORARY", "schema public": "USAGE"},
    DRIVER: _ALL_ROLES
    | {
        # Says what it did, for its own job; the login is the database's word.
        "audit": _AUDITED,
        # Its own job's state and size. Not the job file, nor whether it runs.
        "jobs": f"SELECT UPDATE({_STARTED})",
        "job_files": "SELECT",
        # Its heartbeat and its end. No log, and no process that the supervisor would end.
        "generations": (
            "INSERT(ended_ms epoch generation heartbeat_ms job lineage parallelism started_ms state) SELECT "
            "UPDATE(ended_ms epoch error heartbeat_ms lineage parallelism running_ms settled_ms state trigger_ms "
            "version)"
        ),
        # Answers to what it was asked. It sees no check of a job file, by row security, and asks for none.
        "requests": f"SELECT {_ANSWERED}",
        "savepoints": "DELETE INSERT SELECT",
        "epochs": "DELETE INSERT SELECT",
        "subtasks": "DELETE INSERT SELECT",
        "key_groups": "DELETE INSERT SELECT",
        "backlogs": "DELETE INSERT SELECT",
        "arrivals": "DELETE INSERT SELECT",
        "rollups": "DELETE INSERT SELECT",
        "topics": "DELETE INSERT SELECT",
        "dataflows": "DELETE INSERT SELECT",
    },
    AIRFLOW: _ALL_ROLES
    | _CHANGES
    | {
        "job_files": "SELECT",
        # A generation without a process. The log page shows a generation's own log, whatever stands here.
        "generations": (
            "INSERT(generation heartbeat_ms job log_path parallelism started_ms state) SELECT "
            "UPDATE(ended_ms error state)"
        ),
        # Asks the supervisor to check a job file; an answer of its own is no permission.
        "requests": f"INSERT SELECT {_ANSWERED}",
        "savepoints": "DELETE INSERT SELECT",
        "clusters": "SELECT UPDATE(desired_workers updated_ms)",
        "supervisors": "SELECT",
        "epochs": "SELECT",
        "subtasks": "SELECT",
        "key_groups": "SELECT",
        "backlogs": "SELECT",
        "arrivals": "SELECT",
        "rollups": "SELECT",
        "topics": "SELECT",
        "dataflows": "SELECT",
    },
    SUPERVISOR: _ALL_ROLES
    | _CHANGES
    | {
        # By decision: it accepts the job files of upgrades, and starts all drivers.
        "job_files": "INSERT(artifact artifact_sha256 at_ms job on_behalf_of) SELECT",
        "job_files_id_seq": "USAGE",
        "generations": _ALL,
        "requests": _ALL,
        "savepoints": _ALL,
        # Not their settings, such as the folder of Spark.
        "clusters": "SELECT UPDATE(desired_workers host max_workers message min_workers ready_workers updated_ms)",
        "supervisors": _ALL,
        "epochs": _ALL,
        "subtasks": _ALL,
        "key_groups": _ALL,
        "backlogs": _ALL,
        "arrivals": _ALL,
        "rollups": _ALL,
        "topics": _ALL,
        "dataflows": _ALL,
    },
}
