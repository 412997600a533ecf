"""How the catalog's tables got to be what they are: Alembic's environment, and one revision for each change."""
