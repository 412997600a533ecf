"""Publishing time of each sink."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; no sink was measured in the epochs that are there."""
    with op.batch_alter_table("epochs") as epochs:
        epochs.add_column(sa.Column("publish_ms", sa.JSON))
    op.execute("UPDATE epochs SET publish_ms = '{}'")
    with op.batch_alter_table("epochs") as epochs:
        epochs.alter_column("publish_ms", existing_type=sa.JSON, nullable=False)
