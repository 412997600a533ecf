"""State of each operator of a query of Spark's own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; it was not recorded of the epochs that are there."""
    with op.batch_alter_table("epochs") as epochs:
        epochs.add_column(sa.Column("state", sa.JSON))
    op.execute("UPDATE epochs SET state = '[]'")
    with op.batch_alter_table("epochs") as epochs:
        epochs.alter_column("state", existing_type=sa.JSON, nullable=False)
