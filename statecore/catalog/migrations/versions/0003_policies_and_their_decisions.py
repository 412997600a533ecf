"""Policies and their decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Change the tables."""
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(length=200), nullable=False),
        sa.Column("decided_ms", sa.BigInteger(), nullable=False),
        sa.Column("from_parallelism", sa.Integer(), nullable=False),
        sa.Column("to_parallelism", sa.Integer(), nullable=False),
        sa.Column("from_workers", sa.Integer(), nullable=True),
        sa.Column("to_workers", sa.Integer(), nullable=True),
        sa.Column("method", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("run_id", sa.String(length=500), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("announced_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.name"], name=op.f("fk_decisions_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_decisions_job_decided_ms"), ["job", "decided_ms"], unique=False)
        batch_op.create_index(batch_op.f("ix_decisions_state"), ["state"], unique=False)

    op.create_table(
        "policies",
        sa.Column("job", sa.String(length=200), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("memory", sa.JSON(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("finding", sa.Text(), nullable=True),
        sa.Column("looked_ms", sa.BigInteger(), nullable=True),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.name"], name=op.f("fk_policies_job")),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_policies")),
    )
