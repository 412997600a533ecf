"""The revision of a catalog's tables: which it is, which this release needs, and the way from one to the other.

A revision is a file in ``migrations/versions``; its name begins with its number. The catalog notes its own in
a table of ours, not in Alembic's usual one, so that it may share a database with Airflow.
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
    """Return the revision that this release works with."""
    # Not asked of Alembic: every program that opens a catalog would have to import it.
    return max(file.name.split("_")[0] for file in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def revision(connection: Connection) -> str | None:
    """Return the revision of the catalog's tables; None when there are none, or they are older than revisions."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(_version.c.version_num)).scalar_one_or_none()


def is_new(connection: Connection) -> bool:
    """Tell whether the database has no catalog yet."""
    return revision(connection) is None and not inspect(connection).has_table("jobs")


def require_head(connection: Connection, name: str) -> None:
    """Refuse to work with tables of another release.

    Args:
        connection: To the catalog.
        name: What the catalog is called in the error.

    Raises:
        CatalogSchemaError: The tables are missing, or are those of an older or a newer release.

    """
    found, expected = revision(connection), head()
    if found == expected:
        return
    if is_new(connection):
        what, remedy = "no catalog in it", f"create its tables with `{UPGRADE}`, or correct the URL"
    elif found is None or found < expected:
        what = f"its tables at revision {found or 'none, from before there were any'}"
        remedy = f"stop Airflow, supervisor and drivers, bring the tables up with `{UPGRADE}`, and start them again"
    else:
        what = f"its tables at revision {found}, which a newer release made with `{UPGRADE}`"
        remedy = "install that release here, too; there is no way back but a backup of the database"
    raise CatalogSchemaError(f"catalog {name}: found {what}; expected revision {expected}; {remedy}")


def upgrade(connection: Connection) -> None:
    """Bring the tables to the newest revision, in the connection's transaction; a new database gets all of them."""
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


def alembic_config(connection: Connection) -> Config:
    """Return what Alembic's commands take to work on this catalog."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    # A percent sign in the path would be taken for a reference to another option.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
