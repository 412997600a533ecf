"""What waits in the topics of each job's sources; whether a job may go on without records that they have lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the table, and the permission, which no job has."""
    op.create_table(
        "topics",
        sa.Column("job", sa.String(200), sa.ForeignKey("jobs.name", name="fk_topics_job"), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("measured_ms", sa.BigInteger, nullable=False),
        sa.Column("sources", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_topics"),
    )
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("accept_lost_records", sa.Boolean))
    op.execute("UPDATE jobs SET accept_lost_records = false")
    with op.batch_alter_table("jobs") as jobs:
        jobs.alter_column("accept_lost_records", existing_type=sa.Boolean, nullable=False)
