"""The history of the catalog's tables: Alembic's environment, and one revision for each change."""
