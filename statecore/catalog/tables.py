"""The tables of the catalog; ``records`` explains the columns.

Every table that belongs to a job refers to ``jobs``, except the audit: writers lock the job's row first, so that
changes to one job are serialized on every database.

On PostgreSQL the database itself fills in ``actor``, the login of the session; no program writes that column.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

from statecore.catalog.session_user import SessionUser
from statecore.redaction import redacted

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class RedactedText(TypeDecorator[str]):
    """An error's text without its secrets, because it appears on pages, in chats and in tickets."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Redact the text before it is stored."""
        return None if value is None else redacted(value)


def _job(*, primary_key: bool = False) -> Column[str]:
    return Column("job", String(200), ForeignKey("jobs.name"), primary_key=primary_key, nullable=False)


def _actor() -> Column[str]:
    return Column("actor", String(100), server_default=SessionUser())


def _epoch() -> tuple[Column[Any], ...]:
    """Return the columns that name a row's epoch."""
    return (
        _job(primary_key=True),
        Column("lineage", BigInteger, primary_key=True, autoincrement=False),
        Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    )


clusters = Table(
    "clusters",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("kind", String(50), nullable=False),
    Column("settings", JSON, nullable=False),
    Column("desired_workers", Integer, nullable=False),
    Column("ready_workers", Integer, nullable=False),
    Column("min_workers", Integer),
    Column("max_workers", Integer),
    Column("message", RedactedText),
    Column("host", Text),
    Column("updated_ms", BigInteger, nullable=False),
)

# One row: its holder is active, and other supervisors wait for the seat.
supervisors = Table(
    "supervisors",
    metadata,
    Column("seat", Integer, primary_key=True, autoincrement=False),
    Column("id", String(100), nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_started_ms", BigInteger, nullable=False),
    Column("version", String(50), nullable=False),
    Column("hung", JSON, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("heartbeat_ms", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("artifact", Text, nullable=False),
    Column("artifact_sha256", String(64)),
    Column("store", Text, nullable=False),
    Column("master_url", Text, nullable=False),
    Column("cluster", String(200), ForeignKey("clusters.name")),
    Column("conf", JSON, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("desired_state", String(20), nullable=False),
    Column("parallelism", Integer, nullable=False),
    Column("max_parallelism", Integer, nullable=False),
    Column("roll_back", Boolean, nullable=False, default=False),
    Column("allow_non_restored_state", Boolean, nullable=False, default=False),
    Column("accept_lost_records", Boolean, nullable=False, default=False),
    Column("start_from", Text),
    Column("start_after_generation", Integer, nullable=False, default=0),
    Column("claims_savepoint", JSON(none_as_null=True)),
    Column("updated_ms", BigInteger, nullable=False),
    Column("checkpoint", Text),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    # No reference: its lines outlive the job.
    Column("job", String(200), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    _actor(),
    Column("on_behalf_of", String(500), nullable=False),
    Column("change", JSON, nullable=False),
    Index(None, "job", "at_ms"),
)

# What may run: only the owner of the tables and the supervisor add lines, and nobody changes one.
job_files = Table(
    "job_files",
    metadata,
    Column("id", Integer, primary_key=True),
    _job(),
    Column("artifact", Text, nullable=False),
    Column("artifact_sha256", String(64)),
    Column("at_ms", BigInteger, nullable=False),
    _actor(),
    Column("on_behalf_of", String(500), nullable=False),
    Index(None, "job", "artifact_sha256"),
)

generations = Table(
    "generations",
    metadata,
    _job(primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("state", String(20), nullable=False),
    Column("parallelism", Integer, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("heartbeat_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("error", RedactedText),
    Column("log_path", Text, nullable=False, server_default=text("''")),
    Column("lineage", BigInteger),
    Column("epoch", BigInteger),
    Column("host", Text),
    Column("pid", Integer),
    Column("process_started_ms", BigInteger),
    Column("version", String(50)),
    Column("trigger_ms", BigInteger),
    Column("running_ms", BigInteger),
    Column("settled_ms", BigInteger),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Integer, primary_key=True),
    _job(),
    Column("kind", String(50), nullable=False),
    Column("arguments", JSON, nullable=False),
    Column("idempotency_key", String(500), nullable=False),
    Column("state", String(20), nullable=False),
    Column("result", JSON(none_as_null=True)),
    Column("error", RedactedText),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    UniqueConstraint("idempotency_key"),
    Index(None, "job", "state"),
    Index(None, "kind", "state"),
)

savepoints = Table(
    "savepoints",
    metadata,
    Column("path", String(1000), primary_key=True),
    _job(),
    Column("lineage", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("parallelism", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("bytes", BigInteger),
    Column("took_ms", BigInteger),
    Index(None, "job", "created_ms"),
)

epochs = Table(
    "epochs",
    metadata,
    *_epoch(),
    Column("generation", Integer, nullable=False),
    Column("parallelism", Integer, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("rows_total", BigInteger, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("committed_ms", BigInteger, nullable=False),
    Column("duration_ms", BigInteger, nullable=False),
    Column("phases", JSON, nullable=False),
    Column("cache_hits", Integer, nullable=False),
    Column("subtasks", Integer, nullable=False),
    Column("backlog", JSON, nullable=False),
    Column("memory_share", Float),
    Column("host_share", Float),
    Column("late_rows", JSON, nullable=False),
    Column("rows_out", BigInteger, nullable=False),
    Column("state_rows", BigInteger, nullable=False),
    Column("state_bytes", BigInteger, nullable=False),
    Column("publish_ms", JSON, nullable=False),
    Column("state", JSON, nullable=False),
    Column("watermark_ms", BigInteger),
    Column("source_times", JSON, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("source_rows", JSON, nullable=False),
    Column("sink_rows", JSON, nullable=False),
    Index(None, "job", "committed_ms"),
)

# A separate table, because the rows are wide: a chart over many epochs must not read them.
subtasks = Table(
    "subtasks",
    metadata,
    *_epoch(),
    Column("committed_ms", BigInteger, nullable=False),
    Column("operators", JSON, nullable=False),
    Index(None, "job", "committed_ms"),
)

key_groups = Table(
    "key_groups",
    metadata,
    *_epoch(),
    Column("uid", String(500), primary_key=True),
    Column("committed_ms", BigInteger, nullable=False),
    Column("rows", JSON, nullable=False),
    Column("bytes", JSON, nullable=False),
    Index(None, "job", "committed_ms"),
)

backlogs = Table(
    "backlogs",
    metadata,
    _job(primary_key=True),
    Column("measured_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("generation", Integer, nullable=False),
    Column("sources", JSON, nullable=False),
    Column("waiting_since_ms", BigInteger),
    Column("by_driver", Boolean, nullable=False),
)

rollups = Table(
    "rollups",
    metadata,
    _job(primary_key=True),
    Column("level_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("ran", Boolean, nullable=False),
    Column("epochs", Integer, nullable=False),
    Column("rows", Float, nullable=False),
    Column("duration_ms", BigInteger, nullable=False),
    Column("phases", JSON, nullable=False),
    Column("parallelism", Integer),
    Column("backlog", JSON(none_as_null=True)),
)

arrivals = Table(
    "arrivals",
    metadata,
    _job(primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("first_ms", BigInteger, nullable=False),
    Column("newest_ms", BigInteger, nullable=False),
    Column("longest_ms", BigInteger, nullable=False),
)

# Only the newest: a measurement names every partition.
topics = Table(
    "topics",
    metadata,
    _job(primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("measured_ms", BigInteger, nullable=False),
    Column("sources", JSON, nullable=False),
)

# Only the newest: a job file may be long.
dataflows = Table(
    "dataflows",
    metadata,
    _job(primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("nodes", JSON, nullable=False),
    Column("ui_url", RedactedText),
)

leases = Table(
    "leases",
    metadata,
    _job(primary_key=True),
    Column("owner", String(500), nullable=False),
    Column("acquired_ms", BigInteger, nullable=False),
    Column("heartbeat_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("before", JSON, nullable=False),
)

# A separate table, because a row outlives its lease.
taken_back = Table(
    "taken_back",
    metadata,
    _job(primary_key=True),
    Column("owner", String(500), nullable=False),
    Column("taken_ms", BigInteger, nullable=False),
)

# No reference to jobs: the subject may be all of them.
told_alerts = Table(
    "told_alerts",
    metadata,
    Column("channel", String(50), primary_key=True),
    Column("subject", String(200), primary_key=True),
    Column("alert", String(50), primary_key=True),
    Column("firing", Boolean, nullable=False),
    Column("told_ms", BigInteger),
    Column("changed_ms", BigInteger),
    Column("claimed_until_ms", BigInteger, nullable=False),
)

rescale_runs = Table(
    "rescale_runs",
    metadata,
    Column("run_id", String(500), primary_key=True),
    _job(),
    Column("from_parallelism", Integer, nullable=False),
    Column("to_parallelism", Integer, nullable=False),
    Column("from_workers", Integer),
    Column("to_workers", Integer),
    Column("method", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked", JSON, nullable=False),
    Column("state", String(20), nullable=False),
    Column("savepoint", Text),
    Column("rescaled", Text),
    Column("steps", JSON, nullable=False),
    Column("aborted_by", String(500)),
    Column("error", RedactedText),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Index(None, "job", "created_ms"),
)

policies = Table(
    "policies",
    metadata,
    _job(primary_key=True),
    Column("enabled", Boolean, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("memory", JSON, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("finding", RedactedText),
    Column("looked_ms", BigInteger),
    Column("updated_ms", BigInteger, nullable=False),
    Column("diagnosis", String(50)),
    Column("diagnosed_ms", BigInteger),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", Integer, primary_key=True),
    _job(),
    Column("decided_ms", BigInteger, nullable=False),
    Column("from_parallelism", Integer, nullable=False),
    Column("to_parallelism", Integer, nullable=False),
    Column("from_workers", Integer),
    Column("to_workers", Integer),
    Column("method", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("figures", JSON, nullable=False),
    Column("state", String(20), nullable=False),
    Column("run_id", String(500)),
    Column("outcome", RedactedText),
    Column("announced_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Index(None, "job", "decided_ms"),
    Index(None, "state"),
)
