"""The catalog on PostgreSQL."""

from __future__ import annotations

import pytest

from statecore.catalog import Catalog
from statecore.catalog.tables import metadata
from tests.contracts.catalog.fixtures import catalog, clock, job, register_fixture
from tests.postgres.catalog.logins import as_role
from tests.support.postgres import Database, PostgresServer

__all__ = ["as_role", "catalog", "clock", "job", "register_fixture"]


@pytest.fixture
def kind() -> str:
    return "postgresql"


@pytest.fixture
def empty_url(database: Database) -> str:
    """The URL of a new database."""
    return database.url


@pytest.fixture(scope="session")
def postgres_catalog(postgres_server: PostgresServer) -> Database:
    """A database with the tables of a catalog, to be emptied."""
    database = Database(postgres_server)
    with Catalog(database.url) as catalog:
        catalog.create_schema()
    return database


@pytest.fixture
def catalog_url(postgres_catalog: Database) -> str:
    """The URL of a catalog with nothing in it; to make its tables for each test would take longer than the test."""
    postgres_catalog(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
    return postgres_catalog.url
