"""What a job was before its lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Change the tables; a lease that is held now knows no more than before."""
    with op.batch_alter_table("leases", schema=None) as batch_op:
        batch_op.add_column(sa.Column("before", sa.JSON(none_as_null=True), nullable=True))
