"""Diagnosis of a job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; the next evaluation of a policy fills them."""
    with op.batch_alter_table("policies") as policies:
        policies.add_column(sa.Column("diagnosis", sa.String(50)))
        policies.add_column(sa.Column("diagnosed_ms", sa.BigInteger))
