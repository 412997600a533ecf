"""The revision of a catalog's tables: the one in the database, the one this release needs, and the upgrade.

A revision is a file in ``migrations/versions``; its name begins with its number. The catalog records its revision in
a separate version table instead of Alembic's usual one, so that it can share a database with Airflow.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from statecore.errors import CatalogSchemaError

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "statecore_alembic_version"
MIGRATIONS = Path(__file__).parent / "migrations"
UPGRADE = "statecore catalog upgrade"

_version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32)))


@cache
def head() -> str:
    """Return the revision that this release requires."""
    # Computed without Alembic, which every program that opens a catalog would have to import.
    return max(file.name.split("_")[0] for file in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def revision(connection: Connection) -> str | None:
    """Return the revision of the catalog's tables; None when there are none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(_version.c.version_num)).scalar_one_or_none()


def is_new(connection: Connection) -> bool:
    """Return whether the database has no catalog yet.

    Raises:
        CatalogSchemaError: There is a table ``jobs`` that is not a catalog's.

    """
    if revision(connection) is not None:
        return False
    if inspect(connection).has_table("jobs"):
        raise CatalogSchemaError(
            "found a table 'jobs' that belongs to no catalog; expected none; use a separate database for the catalog"
        )
    return True


def require_head(connection: Connection, name: str) -> None:
    """Raise CatalogSchemaError if the tables are missing or belong to another release; the error names the catalog."""
    current, expected = revision(connection), head()
    if current == expected:
        return
    if is_new(connection):
        what, remedy = "no catalog in it", f"create its tables with `{UPGRADE}`, or correct the URL"
    elif str(current) < expected:
        what = f"its tables at revision {current}"
        remedy = f"stop Airflow, supervisor and drivers, upgrade the tables with `{UPGRADE}`, and start them again"
    else:
        what = f"its tables at revision {current}, to which a newer release upgraded them with `{UPGRADE}`"
        remedy = "install that release here, too; the only way back is a backup of the database"
    raise CatalogSchemaError(f"catalog {name}: found {what}; expected revision {expected}; {remedy}")


def upgrade(connection: Connection) -> None:
    """Upgrade the tables to the newest revision, in the connection's transaction; a new database gets all tables."""
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


def alembic_config(connection: Connection) -> Config:
    """Return the configuration for Alembic's commands on this catalog."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    # Alembic takes a percent sign in the path for a reference to another option.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
