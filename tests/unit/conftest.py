"""Fixtures of the tests that need Python alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.catalog import Catalog


@pytest.fixture(scope="session")
def sqlite_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables of a catalog, to be copied."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    with Catalog(f"sqlite:///{path}") as catalog:
        catalog.create_schema()
    return path


@pytest.fixture
def catalog_url(sqlite_catalog: Path, tmp_path: Path) -> str:
    """The URL of a catalog with nothing in it; to make its tables for each test would take longer than the test."""
    shutil.copyfile(sqlite_catalog, tmp_path / "catalog.db")
    return f"sqlite:///{tmp_path}/catalog.db"
