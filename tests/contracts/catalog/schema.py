"""The tables over releases: created, upgraded, refused when they are of another release."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text

from statecore.catalog import Catalog, SourceBacklog, database, schema
from statecore.catalog.tables import metadata
from statecore.errors import CatalogSchemaError


def run(url: str, script: str) -> None:
    """Run SQL that is not the catalog's own."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in script.split(";\n"):
            if statement.strip() and not statement.strip().startswith(("BEGIN", "COMMIT")):
                connection.execute(text(statement.replace(":", "\\:")))
    engine.dispose()


@pytest.fixture
def older(empty_url: str) -> str:
    """The URL of a catalog of an earlier release."""
    with Catalog(empty_url) as catalog:
        catalog.create_schema()
    run(empty_url, f"UPDATE {schema.VERSION_TABLE} SET version_num = '0000'")
    return empty_url


def differences(url: str) -> list[object]:
    """Return what would have to be done to the tables to make them what ``tables.py`` says."""
    engine = create_engine(url)
    with engine.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_server_default": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()
    return found


def test_the_newest_revision_is_what_the_tables_say(empty_url: str) -> None:
    with Catalog(empty_url) as catalog:
        catalog.create_schema()
        assert catalog.revision() == schema.head()
    assert differences(empty_url) == []


# A column that may not be null, in a table that others refer to: SQLite copies it, and must keep their rows.
NEXT_REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "{number}"
down_revision = "{before}"


def upgrade() -> None:
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("team", sa.Text))
    op.execute("UPDATE jobs SET team = 'unknown'")
    with op.batch_alter_table("jobs") as jobs:
        jobs.alter_column("team", existing_type=sa.Text, nullable=False)
"""


@pytest.fixture
def install_next_release(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Return a function that adds a revision, as the next release does, and returns its number."""
    before, number = schema.head(), f"{int(schema.head()) + 1:04d}"
    migrations = tmp_path / "next" / "migrations"
    shutil.copytree(schema.MIGRATIONS, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    (migrations / "versions" / f"{number}_team.py").write_text(NEXT_REVISION.format(number=number, before=before))
    with pytest.MonkeyPatch.context() as patch:

        def install() -> str:
            patch.setattr(schema, "MIGRATIONS", migrations)
            schema.head.cache_clear()
            return number

        yield install
    schema.head.cache_clear()


def test_an_older_catalog_is_upgraded_and_keeps_its_rows(
    empty_url: str, install_next_release: Callable[[], str]
) -> None:
    with Catalog(empty_url) as catalog:
        catalog.create_schema()
        first = catalog.revision()
        catalog.jobs.register("flights", artifact="a", store="/s", master_url="local", parallelism=2, max_parallelism=8)
        catalog.epochs.record_backlog("flights", 1, [SourceBacklog("in", 7)])
    number = install_next_release()
    with Catalog(empty_url) as catalog:
        with pytest.raises(CatalogSchemaError, match=f"at revision {first}; expected revision {number}"):
            catalog.jobs.all()
        catalog.create_schema()
        assert catalog.revision() == number
        assert catalog.jobs.get("flights").parallelism == 2
        assert [each.sources for each in catalog.epochs.backlogs("flights")] == [(SourceBacklog("in", 7),)]
        with catalog._database.read() as connection:
            assert connection.execute(text("SELECT team FROM jobs")).scalar_one() == "unknown"


@pytest.mark.parametrize(("found", "remedy"), [("0000", "upgrade the tables with"), ("9999", "install that release")])
def test_tables_of_another_release_are_refused_with_the_command_that_helps(older: str, found: str, remedy: str) -> None:
    run(older, f"UPDATE {schema.VERSION_TABLE} SET version_num = '{found}'")
    with Catalog(older) as catalog, pytest.raises(CatalogSchemaError) as caught:
        catalog.jobs.all()
    for part in (found, f"expected revision {schema.head()}", remedy, "`statecore catalog upgrade`"):
        assert part in str(caught.value)
    assert "a secret" not in str(caught.value)


def test_a_program_that_runs_notices_that_its_catalog_was_upgraded(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Catalog(empty_url) as catalog:
        catalog.create_schema()
        assert catalog.jobs.all() == []
        run(empty_url, f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
        monkeypatch.setattr(database, "_CHECKED_FOR_S", 0.0)
        for _ in range(2):
            with pytest.raises(CatalogSchemaError, match="revision 9999"):
                catalog.supervisors.lead("s", host="blue", pid=7, process_started_ms=0, version="0.1.0")
        run(empty_url, f"UPDATE {schema.VERSION_TABLE} SET version_num = '{schema.head()}'")
        assert catalog.supervisors.last() is None


def test_a_newer_catalog_is_not_touched(empty_url: str) -> None:
    with Catalog(empty_url) as catalog:
        catalog.create_schema()
        run(empty_url, f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
        with pytest.raises(CatalogSchemaError, match="9999"):
            catalog.create_schema()
        assert catalog.revision() == "9999"


def test_a_database_without_a_catalog_says_how_to_make_one(empty_url: str) -> None:
    with Catalog(empty_url) as catalog:
        with pytest.raises(CatalogSchemaError, match=r"no catalog in it.* `statecore catalog upgrade`"):
            catalog.jobs.all()
        catalog.create_schema(only_if_new=True)
        assert catalog.jobs.all() == []


def test_what_only_makes_new_catalogs_refuses_an_older_one(older: str) -> None:
    with Catalog(older) as catalog:
        with pytest.raises(CatalogSchemaError, match="revision 0000"):
            catalog.create_schema(only_if_new=True)
        assert catalog.revision() == "0000"


def test_airflow_may_live_in_the_same_database(empty_url: str) -> None:
    with Catalog(empty_url) as catalog:
        catalog.revision()  # makes the folder
        run(empty_url, "CREATE TABLE alembic_version (version_num VARCHAR(32))")
        run(empty_url, "INSERT INTO alembic_version VALUES ('cafe01')")
        run(empty_url, "CREATE TABLE job (id INTEGER)")
        catalog.create_schema()
        with catalog._database.read() as connection:
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "cafe01"
        assert catalog.revision() == schema.head()


def test_somebody_elses_jobs_are_not_taken_for_ours(empty_url: str) -> None:
    with Catalog(empty_url) as catalog:
        catalog.revision()
        run(empty_url, "CREATE TABLE jobs (id INTEGER)")
        with pytest.raises(CatalogSchemaError, match="a separate database"):
            catalog.create_schema()
