"""Fixtures of the tests that need Python alone."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from statecore.catalog import Catalog


@event.listens_for(Engine, "connect")
def _without_sync(connection: Any, _: object) -> None:
    """Leave the disk out of commits, as the tests' PostgreSQL does: no test loses its power."""
    if isinstance(connection, sqlite3.Connection):
        with closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA synchronous=OFF")


@pytest.fixture(scope="session", autouse=True)
def _files_without_sync() -> Iterator[None]:
    """Leave the disk out of files, for the same reason."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


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
