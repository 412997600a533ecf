"""State of each operator of a query of Spark's own, and its watermark."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; they were not recorded of the epochs that are there."""
    with op.batch_alter_table("epochs") as epochs:
        epochs.add_column(sa.Column("state", sa.JSON))
        epochs.add_column(sa.Column("watermark_ms", sa.BigInteger))
    op.execute("UPDATE epochs SET state = '[]'")
    with op.batch_alter_table("epochs") as epochs:
        epochs.alter_column("state", existing_type=sa.JSON, nullable=False)
