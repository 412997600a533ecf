from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.catalog.tables import metadata
from tests.postgres import Database, PostgresServer, database, postgres_server

__all__ = ["database", "postgres_server"]


class ManualClock:
    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of database that has to keep the contract."""
    return str(request.param)


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    """The URL of a new database."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/made/on/demand/catalog.db"
    return str(request.getfixturevalue("database").url)


@pytest.fixture(scope="session")
def sqlite_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables of a catalog, to be copied."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    with Catalog(f"sqlite:///{path}") as catalog:
        catalog.create_schema()
    return path


@pytest.fixture(scope="session")
def postgres_catalog(postgres_server: PostgresServer) -> Database:
    """A database with the tables of a catalog, to be emptied."""
    database = Database(postgres_server)
    with Catalog(database.url) as catalog:
        catalog.create_schema()
    return database


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    """The URL of a catalog with nothing in it; to make its tables for each test would take longer than the test."""
    if kind == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_catalog"), tmp_path / "catalog.db")
        return f"sqlite:///{tmp_path}/catalog.db"
    database = request.getfixturevalue("postgres_catalog")
    database(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
    return str(database.url)


@pytest.fixture
def catalog(catalog_url: str, clock: ManualClock) -> Iterator[Catalog]:
    with Catalog(catalog_url, clock=clock) as catalog:
        yield catalog


@pytest.fixture
def job(catalog: Catalog) -> str:
    return register(catalog, "flights")


def register(catalog: Catalog, name: str) -> str:
    catalog.register_job(
        name,
        artifact="/jobs/flights.py",
        store="/store/flights",
        master_url="spark://127.0.0.1:7077",
        conf={"spark.cores.max": "2"},
        parallelism=2,
        max_parallelism=128,
    )
    return name


@pytest.fixture(name="register")
def register_fixture() -> object:
    return register
