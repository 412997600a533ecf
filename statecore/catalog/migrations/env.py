"""Alembic's environment; ``statecore.catalog.schema`` passes it the connection, inside a transaction."""

from __future__ import annotations

from alembic import context

from statecore.catalog.schema import VERSION_TABLE
from statecore.catalog.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite cannot change a column, so Alembic recreates the table and copies its rows.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
