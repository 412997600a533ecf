"""The tables of the first release.

Frozen: every later change of ``tables.py`` is a separate revision.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from statecore.catalog.session_user import SessionUser

revision = "0001"
down_revision = None

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _job(*, primary_key: bool = False) -> sa.Column[str]:
    return sa.Column("job", sa.String(200), sa.ForeignKey("jobs.name"), primary_key=primary_key, nullable=False)


def _actor() -> sa.Column[str]:
    return sa.Column("actor", sa.String(100), server_default=SessionUser())


def _epoch() -> tuple[sa.Column[Any], ...]:
    """Return the columns that name a row's epoch."""
    return (
        _job(primary_key=True),
        sa.Column("lineage", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    )


sa.Table(
    "clusters",
    metadata,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("kind", sa.String(50), nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("desired_workers", sa.Integer, nullable=False),
    sa.Column("ready_workers", sa.Integer, nullable=False),
    sa.Column("min_workers", sa.Integer),
    sa.Column("max_workers", sa.Integer),
    sa.Column("message", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
)

sa.Table(
    "supervisors",
    metadata,
    sa.Column("seat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("id", sa.String(100), nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("process_started_ms", sa.BigInteger, nullable=False),
    sa.Column("version", sa.String(50), nullable=False),
    sa.Column("hung", sa.JSON, nullable=False),
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_ms", sa.BigInteger, nullable=False),
)

sa.Table(
    "jobs",
    metadata,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("artifact", sa.Text, nullable=False),
    sa.Column("artifact_sha256", sa.String(64)),
    sa.Column("store", sa.Text, nullable=False),
    sa.Column("master_url", sa.Text, nullable=False),
    sa.Column("cluster", sa.String(200), sa.ForeignKey("clusters.name")),
    sa.Column("conf", sa.JSON, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("desired_state", sa.String(20), nullable=False),
    sa.Column("parallelism", sa.Integer, nullable=False),
    sa.Column("max_parallelism", sa.Integer, nullable=False),
    sa.Column("roll_back", sa.Boolean, nullable=False),
    sa.Column("allow_non_restored_state", sa.Boolean, nullable=False),
    sa.Column("accept_lost_records", sa.Boolean, nullable=False),
    sa.Column("start_from", sa.Text),
    sa.Column("start_after_generation", sa.Integer, nullable=False),
    sa.Column("claims_savepoint", sa.JSON(none_as_null=True)),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.Column("checkpoint", sa.Text),
)

sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job", sa.String(200), nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    _actor(),
    sa.Column("on_behalf_of", sa.String(500), nullable=False),
    sa.Column("change", sa.JSON, nullable=False),
    sa.Index(None, "job", "at_ms"),
)

sa.Table(
    "job_files",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _job(),
    sa.Column("artifact", sa.Text, nullable=False),
    sa.Column("artifact_sha256", sa.String(64)),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    _actor(),
    sa.Column("on_behalf_of", sa.String(500), nullable=False),
    sa.Index(None, "job", "artifact_sha256"),
)

sa.Table(
    "generations",
    metadata,
    _job(primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("parallelism", sa.Integer, nullable=False),
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_ms", sa.BigInteger, nullable=False),
    sa.Column("ended_ms", sa.BigInteger),
    sa.Column("error", sa.Text),
    sa.Column("log_path", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("lineage", sa.BigInteger),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("host", sa.Text),
    sa.Column("pid", sa.Integer),
    sa.Column("process_started_ms", sa.BigInteger),
    sa.Column("version", sa.String(50)),
    sa.Column("trigger_ms", sa.BigInteger),
    sa.Column("running_ms", sa.BigInteger),
    sa.Column("settled_ms", sa.BigInteger),
)

sa.Table(
    "requests",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _job(),
    sa.Column("kind", sa.String(50), nullable=False),
    sa.Column("arguments", sa.JSON, nullable=False),
    sa.Column("idempotency_key", sa.String(500), nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("result", sa.JSON(none_as_null=True)),
    sa.Column("error", sa.Text),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("idempotency_key"),
    sa.Index(None, "job", "state"),
    sa.Index(None, "kind", "state"),
)

sa.Table(
    "savepoints",
    metadata,
    sa.Column("path", sa.String(1000), primary_key=True),
    _job(),
    sa.Column("lineage", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("parallelism", sa.Integer, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("took_ms", sa.BigInteger),
    sa.Index(None, "job", "created_ms"),
)

sa.Table(
    "epochs",
    metadata,
    *_epoch(),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("parallelism", sa.Integer, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("rows_total", sa.BigInteger, nullable=False),
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("committed_ms", sa.BigInteger, nullable=False),
    sa.Column("duration_ms", sa.BigInteger, nullable=False),
    sa.Column("phases", sa.JSON, nullable=False),
    sa.Column("cache_hits", sa.Integer, nullable=False),
    sa.Column("subtasks", sa.Integer, nullable=False),
    sa.Column("backlog", sa.JSON, nullable=False),
    sa.Column("memory_share", sa.Float),
    sa.Column("host_share", sa.Float),
    sa.Column("late_rows", sa.JSON, nullable=False),
    sa.Column("rows_out", sa.BigInteger, nullable=False),
    sa.Column("state_rows", sa.BigInteger, nullable=False),
    sa.Column("state_bytes", sa.BigInteger, nullable=False),
    sa.Column("publish_ms", sa.JSON, nullable=False),
    sa.Column("state", sa.JSON, nullable=False),
    sa.Column("watermark_ms", sa.BigInteger),
    sa.Column("source_times", sa.JSON, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("source_rows", sa.JSON, nullable=False),
    sa.Column("sink_rows", sa.JSON, nullable=False),
    sa.Index(None, "job", "committed_ms"),
)

sa.Table(
    "subtasks",
    metadata,
    *_epoch(),
    sa.Column("committed_ms", sa.BigInteger, nullable=False),
    sa.Column("operators", sa.JSON, nullable=False),
    sa.Index(None, "job", "committed_ms"),
)

sa.Table(
    "key_groups",
    metadata,
    *_epoch(),
    sa.Column("uid", sa.String(500), primary_key=True),
    sa.Column("committed_ms", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.JSON, nullable=False),
    sa.Column("bytes", sa.JSON, nullable=False),
    sa.Index(None, "job", "committed_ms"),
)

sa.Table(
    "backlogs",
    metadata,
    _job(primary_key=True),
    sa.Column("measured_ms", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("sources", sa.JSON, nullable=False),
    sa.Column("waiting_since_ms", sa.BigInteger),
    sa.Column("by_driver", sa.Boolean, nullable=False),
)

sa.Table(
    "rollups",
    metadata,
    _job(primary_key=True),
    sa.Column("level_ms", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_ms", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ran", sa.Boolean, nullable=False),
    sa.Column("epochs", sa.Integer, nullable=False),
    sa.Column("rows", sa.Float, nullable=False),
    sa.Column("duration_ms", sa.BigInteger, nullable=False),
    sa.Column("phases", sa.JSON, nullable=False),
    sa.Column("parallelism", sa.Integer),
    sa.Column("backlog", sa.JSON(none_as_null=True)),
)

sa.Table(
    "arrivals",
    metadata,
    _job(primary_key=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("first_ms", sa.BigInteger, nullable=False),
    sa.Column("newest_ms", sa.BigInteger, nullable=False),
    sa.Column("longest_ms", sa.BigInteger, nullable=False),
)

sa.Table(
    "topics",
    metadata,
    _job(primary_key=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("measured_ms", sa.BigInteger, nullable=False),
    sa.Column("sources", sa.JSON, nullable=False),
)

sa.Table(
    "dataflows",
    metadata,
    _job(primary_key=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("nodes", sa.JSON, nullable=False),
    sa.Column("ui_url", sa.Text),
)

sa.Table(
    "leases",
    metadata,
    _job(primary_key=True),
    sa.Column("owner", sa.String(500), nullable=False),
    sa.Column("acquired_ms", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("before", sa.JSON, nullable=False),
)

sa.Table(
    "taken_back",
    metadata,
    _job(primary_key=True),
    sa.Column("owner", sa.String(500), nullable=False),
    sa.Column("taken_ms", sa.BigInteger, nullable=False),
)

sa.Table(
    "told_alerts",
    metadata,
    sa.Column("channel", sa.String(50), primary_key=True),
    sa.Column("subject", sa.String(200), primary_key=True),
    sa.Column("alert", sa.String(50), primary_key=True),
    sa.Column("firing", sa.Boolean, nullable=False),
    sa.Column("told_ms", sa.BigInteger),
    sa.Column("changed_ms", sa.BigInteger),
    sa.Column("claimed_until_ms", sa.BigInteger, nullable=False),
)

sa.Table(
    "rescale_runs",
    metadata,
    sa.Column("run_id", sa.String(500), primary_key=True),
    _job(),
    sa.Column("from_parallelism", sa.Integer, nullable=False),
    sa.Column("to_parallelism", sa.Integer, nullable=False),
    sa.Column("from_workers", sa.Integer),
    sa.Column("to_workers", sa.Integer),
    sa.Column("method", sa.String(20), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("asked", sa.JSON, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("savepoint", sa.Text),
    sa.Column("rescaled", sa.Text),
    sa.Column("steps", sa.JSON, nullable=False),
    sa.Column("aborted_by", sa.String(500)),
    sa.Column("error", sa.Text),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.Column("ended_ms", sa.BigInteger),
    sa.Index(None, "job", "created_ms"),
)

sa.Table(
    "policies",
    metadata,
    _job(primary_key=True),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("memory", sa.JSON, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("finding", sa.Text),
    sa.Column("looked_ms", sa.BigInteger),
    sa.Column("diagnosis", sa.String(50)),
    sa.Column("diagnosed_ms", sa.BigInteger),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
)

sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _job(),
    sa.Column("decided_ms", sa.BigInteger, nullable=False),
    sa.Column("from_parallelism", sa.Integer, nullable=False),
    sa.Column("to_parallelism", sa.Integer, nullable=False),
    sa.Column("from_workers", sa.Integer),
    sa.Column("to_workers", sa.Integer),
    sa.Column("method", sa.String(20), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("figures", sa.JSON, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("run_id", sa.String(500)),
    sa.Column("outcome", sa.Text),
    sa.Column("announced_ms", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.Index(None, "job", "decided_ms"),
    sa.Index(None, "state"),
)


def upgrade() -> None:
    """Create the tables."""
    metadata.create_all(op.get_bind(), checkfirst=False)
