"""Trigger interval of each generation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column; the next heartbeat of a driver fills it."""
    with op.batch_alter_table("generations") as generations:
        generations.add_column(sa.Column("trigger_ms", sa.BigInteger))
