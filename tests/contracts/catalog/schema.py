"""The tables over releases: made anew, brought up from any earlier release, refused when they are of another one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text

from statecore.catalog import Catalog, SourceBacklog, StepTimes, schema
from statecore.catalog.tables import metadata
from statecore.errors import CatalogSchemaError

DATA = Path(__file__).parent / "data"


def run(url: str, script: str) -> None:
    """Run SQL that is not the catalog's own."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in script.split(";\n"):
            if statement.strip() and not statement.strip().startswith(("BEGIN", "COMMIT")):
                connection.execute(text(statement.replace(":", "\\:")))
    engine.dispose()


@pytest.fixture
def first_release(empty_url: str, kind: str) -> str:
    """The URL of a catalog as the first release left it, with a rescale under way."""
    if kind == "sqlite":
        Path(empty_url.removeprefix("sqlite:///")).parent.mkdir(parents=True)
    run(empty_url, (DATA / f"first_release.{kind}.sql").read_text())
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


def test_a_catalog_of_the_first_release_is_brought_up_and_keeps_all_it_has(first_release: str) -> None:
    with Catalog(first_release) as catalog:
        assert catalog.revision() is None
        catalog.create_schema()
        assert differences(first_release) == []
        job, (newest, oldest) = catalog.job("flights"), catalog.generations("flights")
        assert (job.settings, job.start_from, job.parallelism) == (
            {"input": "it's"}, "savepoints/run-p4/manifest.json", 4,
        )  # fmt: skip
        assert (job.roll_back, job.claims_savepoint, job.start_after_generation) == (False, False, 0)
        assert (newest.state, newest.epoch, oldest.state, oldest.epoch) == ("running", 9, "stopped", 7)
        # What once was one number over all sources still is what waits.
        assert [epoch.backlog for epoch in catalog.epochs("flights")] == [(SourceBacklog("", records=5000),), ()]
        assert [epoch.rows_total for epoch in catalog.epochs("flights")] == [800, 900]
        assert [each.reason for each in catalog.savepoints("flights")] == ["drain"]
        run = catalog.rescale_run("manual__1")
        assert (run.state, run.steps) == ("running", {"restart": StepTimes(5, None)})
        assert catalog.get_request(1).result == {"savepoint": "savepoints/run/manifest.json"}
        assert catalog.cluster("local").desired_workers == 2
        # It goes on: numbers and locks work as ever.
        assert catalog.request("flights", "savepoint", {"name": "a"}, "key").id == 3
        assert catalog.recover_expired_lease("flights") is not None
        assert catalog.rescale_run("manual__1").state == "failed"


def test_one_to_which_later_releases_added_whole_tables_but_no_columns_is_brought_up_too(first_release: str) -> None:
    # As they did: what was missing was created, what was there stayed as it was.
    engine = create_engine(first_release)
    baseline = importlib.import_module("statecore.catalog.migrations.versions.0001_baseline")
    baseline.metadata.create_all(engine)
    engine.dispose()
    with Catalog(first_release) as catalog:
        catalog.create_schema()
        assert differences(first_release) == []
        assert catalog.epochs("flights")[0].backlog[0].records == 5000


def test_tables_of_another_release_are_refused_with_the_command_that_helps(first_release: str) -> None:
    for found, remedy in [("from before there were any", "bring the tables up"), ("9999", "install that release")]:
        if found == "9999":
            run(first_release, f"CREATE TABLE {schema.VERSION_TABLE} (version_num VARCHAR(32))")
            run(first_release, f"INSERT INTO {schema.VERSION_TABLE} VALUES ('9999')")
        with Catalog(first_release) as catalog, pytest.raises(CatalogSchemaError) as caught:
            catalog.jobs()
        for part in (found, f"expected revision {schema.head()}", remedy, "`statecore catalog upgrade`"):
            assert part in str(caught.value)
        assert "a secret" not in str(caught.value)


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
            catalog.jobs()
        catalog.create_schema(only_if_new=True)
        assert catalog.jobs() == []


def test_what_only_makes_new_catalogs_refuses_an_older_one(first_release: str) -> None:
    with Catalog(first_release) as catalog:
        with pytest.raises(CatalogSchemaError, match="from before there were any"):
            catalog.create_schema(only_if_new=True)
        assert catalog.revision() is None


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
        with pytest.raises(CatalogSchemaError, match="a database of its own"):
            catalog.create_schema()
