"""Checkpoints of a job that is a query of Spark's own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns; the jobs that there are have none."""
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("checkpoint", sa.Text()))
        jobs.add_column(sa.Column("left_checkpoint", sa.Text()))
